# Arguments: user:NAME or group:NAME, any number. Says for each, in order, whether there is one.
for a; do
	db=passwd
	case $a in group:*) db=group ;; esac
	getent "$db" "${a#*:}" >/dev/null
	case $? in
	0) echo there ;;
	2) echo gone ;;
	*) die 74 "cannot ask for $a" ;;
	esac
done
