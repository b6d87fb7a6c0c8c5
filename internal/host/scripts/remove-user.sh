# Arguments: kind (user or group), name.
db=passwd
[ "$1" = group ] && db=group
getent "$db" "$2" >/dev/null
case $? in
0) ;;
2) echo gone; exit 0 ;;
*) die 74 "cannot ask for $1 $2" ;;
esac
guard
if [ "$1" = group ]; then groupdel -- "$2"; else userdel -- "$2"; fi || die 70 "cannot remove $1 $2"
# userdel removes the user's own group too, where nobody else is in it.
echo done
