# Arguments: name, group, system (yes or no), home, supplementary groups by comma or "".
name=$1 group=$2 system=$3 home=$4 extra=$5
sys=
[ "$system" = yes ] && sys=--system
getent group "$group" >/dev/null
case $? in
0) ;;
2) guard; groupadd $sys -- "$group" || die 70 "cannot add group $group" ;;
*) die 74 "cannot ask for group $group" ;;
esac
shell=/usr/sbin/nologin
[ -x "$shell" ] || shell=/sbin/nologin
said=kept
getent passwd "$name" >/dev/null
case $? in
0) ;;
2)
	guard
	useradd $sys --gid "$group" --home-dir "$home" --no-create-home --shell "$shell" --comment 'moai' -- "$name" || die 70 "cannot add user $name"
	said=done
	;;
*) die 74 "cannot ask for user $name" ;;
esac
have=$(id -gn -- "$name") || die 74 "cannot ask for the group of $name"
[ "$have" = "$group" ] || die 65 "user $name exists with primary group $have, not $group"
IFS=,
for g in $extra; do
	getent group "$g" >/dev/null || continue
	case ",$(id -Gn -- "$name" | tr ' ' ,)," in
	*",$g,"*) ;;
	*) guard; usermod -a -G "$g" -- "$name" || die 70 "cannot add $name to $g"; said=done ;;
	esac
done
echo "$said"
