# Arguments: path, the most bytes to send.
there "$1" || { echo gone; exit 0; }
[ -f "$1" ] || die 65 "$1 is not a regular file"
size=$(stat -L -c %s -- "$1") || die 74 "cannot look at $1"
[ "$size" -le "$2" ] || die 65 "$1 has $size bytes, more than the limit of $2"
echo file
cat -- "$1"
