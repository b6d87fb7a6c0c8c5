# Arguments: path. Says gone, or dir and then a line for each entry.
there "$1" || { echo gone; exit 0; }
[ -d "$1" ] || die 65 "$1 is not a directory"
echo dir
ls -A -- "$1" || die 74 "cannot read $1"
