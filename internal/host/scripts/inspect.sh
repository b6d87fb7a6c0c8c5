# Arguments: the number of paths, the paths, the units. Answers by index, so that names cannot disturb the reading.
n=$1
shift
i=0
command -v gzip >/dev/null 2>&1 && echo 'can gzip'
while [ "$i" -lt "$n" ]; do
	p=$1
	shift
	if s=$(stat -c '%a %U %G %s %F' -- "$p" 2>&1); then
		sum=-
		case $s in
		*' regular file' | *' regular empty file')
			sum=$(sha256sum <"$p") || die 74 "cannot read $p"
			sum=${sum%% *}
			;;
		esac
		printf 'file %s %s %s\n' "$i" "$sum" "$s"
	elif absent "$s"; then
		printf 'gone %s\n' "$i"
	else
		printf 'error %s %s\n' "$i" "$(printf %s "$s" | tr '\n' ' ')"
	fi
	i=$((i + 1))
done
[ $# -eq 0 ] && exit 0
echo units
systemctl show --no-pager -p Id,LoadState,ActiveState,SubState,MainPID,NRestarts,UnitFileState,NeedDaemonReload,FragmentPath,Result,ExecMainStatus -- "$@" ||
	die 74 'systemctl does not answer'
