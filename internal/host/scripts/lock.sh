# Arguments: verb (acquire, beat, release), fence file, owner, seconds after which a silent holder is dead. The lock file holds
# the token, the owner and the fence number, a line each; its time is the last heartbeat. Only this host's clock counts.
verb=$1 fencefile=$2 owner=$3 ttl=$4
# The guard is held for the few milliseconds of one answer, and removed with the lock. Who waited for a guard that was
# removed holds nothing: it looks whether its guard is still the one that has the name.
while :; do
	exec 9>"$lock.guard" || die 74 "cannot write $lock.guard"
	flock -w 10 9 || die 75 "the lock file is busy"
	[ "$(stat -L -c %d:%i /proc/self/fd/9)" = "$(stat -c %d:%i -- "$lock.guard" 2>/dev/null)" ] && break
done
# Where no lock is left, the guard goes too: an answer that came late would leave it for ever.
trap '[ -f "$lock" ] || rm -f -- "$lock.guard"' EXIT
held=
[ -f "$lock" ] && held=$(sed -n 1p -- "$lock")
case $verb in
acquire)
	old=
	if [ -n "$held" ] && [ "$held" != "$token" ]; then
		mtime=$(stat -c %Y -- "$lock") || die 74 "cannot look at $lock"
		age=$(($(date +%s) - mtime))
		old=$(sed -n 2p -- "$lock")
		# A time in the future is a clock that was set back: the beat counts as new.
		if [ "$age" -le "$ttl" ]; then
			printf 'held %s %s\n' "$age" "$old"
			exit 0
		fi
	fi
	fence=0
	[ -f "$fencefile" ] && fence=$(cat -- "$fencefile")
	case $fence in '' | *[!0-9]*) fence=0 ;; esac
	was=0
	[ -f "$lock" ] && was=$(sed -n 3p -- "$lock")
	case $was in '' | *[!0-9]*) was=0 ;; esac
	[ "$was" -gt "$fence" ] && fence=$was
	fence=$((fence + 1))
	mkdir -p -- "$(dirname -- "$fencefile")" || die 74 "cannot make the directory of $fencefile"
	printf '%s\n' "$fence" >"$fencefile.new" && mv -f -- "$fencefile.new" "$fencefile" || die 74 "cannot write $fencefile"
	printf '%s\n%s\n%s\n' "$token" "$owner" "$fence" >"$lock.new" && mv -f -- "$lock.new" "$lock" || die 74 "cannot write $lock"
	printf 'mine %s %s\n' "$fence" "$old"
	;;
beat)
	[ "$held" = "$token" ] || { echo lost; exit 0; }
	touch -- "$lock" || die 74 "cannot touch $lock"
	echo mine
	;;
release)
	[ "$held" = "$token" ] || { echo lost; exit 0; }
	rm -f -- "$lock" || die 74 "cannot remove $lock"
	echo done
	;;
*) die 64 "unknown verb $verb" ;;
esac
