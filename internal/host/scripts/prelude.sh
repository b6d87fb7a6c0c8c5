LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin
token=$1
lock=$2
shift 2
umask 022
die() {
	code=$1
	shift
	printf 'moai: %s\n' "$*" >&2
	exit "$code"
}
# A writer that lost the host's lock must not write: the token is the first line of the lock file.
guard() {
	[ "$token" = - ] && return 0
	held=$(sed -n 1p -- "$lock" 2>/dev/null) || held=
	[ "$held" = "$token" ] || die 73 "this run no longer holds the host's lock"
}
# absent reads an error text of stat: does it prove that nothing is there?
absent() {
	case $1 in
	*'No such file or directory'* | *'Not a directory'*) return 0 ;;
	esac
	return 1
}
# there PATH: 0 it exists, 1 it provably does not; anything else ends the script.
there() {
	if err=$(stat -c %F -- "$1" 2>&1); then return 0; fi
	absent "$err" && return 1
	die 74 "cannot look at $1: $err"
}
# journal UNIT LINES FORMAT: the last lines of the unit's last start: its own, and systemd's about it. Where that start
# cannot be told, or has said nothing yet, the unit's last lines.
journal() {
	# By time, not by invocation: what a process says right before it ends is often stored without the invocation's id.
	at=$(TZ=UTC systemctl show -p ExecMainStartTimestamp -- "$1" 2>/dev/null) || at=
	at=${at#*=}
	[ -n "$at" ] && at=$(date -d "$at" +%s 2>/dev/null)
	journalctl --sync >/dev/null 2>&1
	lines=
	[ -n "$at" ] && lines=$(journalctl -u "$1" --since "@$at" -n "$2" --no-pager -o "$3" -q 2>/dev/null)
	[ -n "$lines" ] || lines=$(journalctl -u "$1" -n "$2" --no-pager -o "$3" -q)
	printf '%s\n' "$lines"
}
