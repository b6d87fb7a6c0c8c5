# Arguments: path, sha256, mode, owner, group, encoding (plain or gzip). The content comes on stdin.
set -e
path=$1 sum=$2 mode=$3 owner=$4 group=$5 enc=$6
dir=$(dirname -- "$path")
mkdir -p -- "$dir"
[ -d "$path" ] && [ ! -L "$path" ] && die 65 "$path is a directory"
umask 077
tmp=$(mktemp "$dir/.moai-XXXXXXXX")
trap 'rm -f -- "$tmp"' EXIT
trap 'exit 143' HUP INT TERM
if [ "$enc" = gzip ]; then gzip -dc >"$tmp" || die 65 "what arrived is not whole"; else cat >"$tmp"; fi
got=$(sha256sum <"$tmp")
got=${got%% *}
[ "$got" = "$sum" ] || die 65 "sha256 of what arrived is $got, of what was sent $sum"
chown -- "$owner:$group" "$tmp"
chmod -- "$mode" "$tmp"
sync -- "$tmp" 2>/dev/null || :
guard
mv -f -- "$tmp" "$path"
trap - EXIT
sync -- "$dir" 2>/dev/null || :
echo done
