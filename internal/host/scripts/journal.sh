# Arguments: unit, number of lines.
exec journalctl -u "$1" -n "$2" --no-pager -o short-iso -q
