# Arguments: kind (user or group), name, keep (or -) to leave alone the group of a user's name, which userdel would remove with it.
db=passwd
[ "$1" = group ] && db=group
getent "$db" "$2" >/dev/null
case $? in
0) ;;
2) echo gone; exit 0 ;;
*) die 74 "cannot ask for $1 $2" ;;
esac
guard
if [ "$1" = group ]; then
	groupdel -- "$2"
else
	# A group is removed with its user only while it is the user's primary one.
	if [ "$3" = keep ]; then usermod -g 0 -- "$2" || die 70 "cannot take user $2 out of its group"; fi
	userdel -- "$2"
fi || die 70 "cannot remove $1 $2"
echo done
