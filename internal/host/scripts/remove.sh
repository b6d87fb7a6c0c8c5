# Arguments: file, empty or tree; path. Says gone when nothing was there, done when it was removed, kept for a directory that is
# not empty. After either of the first two the path is proved absent.
kind=$1 path=$2
there "$path" || { echo gone; exit 0; }
guard
case $kind in
file)
	[ -d "$path" ] && [ ! -L "$path" ] && die 65 "$path is a directory"
	rm -f -- "$path"
	;;
empty)
	[ -d "$path" ] || die 65 "$path is not a directory"
	if [ -n "$(ls -A -- "$path")" ]; then echo kept; exit 0; fi
	rmdir -- "$path"
	;;
tree) rm -rf -- "$path" ;;
*) die 64 "unknown kind $kind" ;;
esac
there "$path" && die 74 "$path is still there after removal"
echo done
