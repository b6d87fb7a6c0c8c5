# Arguments: verb, unit (or - for daemon-reload).
verb=$1 unit=$2
guard
said=
case $verb in
daemon-reload) said=$(systemctl daemon-reload 2>&1) ;;
enable-now) said=$(systemctl enable --now -- "$unit" 2>&1) ;;
disable-now) said=$(systemctl disable --now -- "$unit" 2>&1) ;;
enable | disable | start | restart | stop | reset-failed) said=$(systemctl "$verb" -- "$unit" 2>&1) ;;
*) die 64 "unknown verb $verb" ;;
esac
rc=$?
[ "$rc" -eq 0 ] && { echo done; exit 0; }
case $verb in
stop | disable | disable-now | reset-failed)
	# A unit that systemd does not know is stopped and disabled. Anything else, also no answer, is a failure.
	state=$(systemctl show -p LoadState -- "$unit" 2>/dev/null) || state=
	[ "$state" = LoadState=not-found ] && { echo gone; exit 0; }
	# systemd forgets an idle unit, and with it that the unit ever failed: then there is nothing to reset.
	if [ "$verb" = reset-failed ]; then
		state=$(systemctl show -p ActiveState -- "$unit" 2>/dev/null) || state=
		[ "$state" = ActiveState=inactive ] && { echo gone; exit 0; }
	fi
	;;
esac
# The program's own words are the cause; systemctl's only say that there is one.
case $verb in
start | restart | enable-now) journal "$unit" 15 cat >&2 2>/dev/null ;;
esac
printf '%s\n' "$said" >&2
exit 70
