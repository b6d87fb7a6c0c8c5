# Arguments: path, mode, owner, group.
guard
chown -- "$3:$4" "$1" && chmod -- "$2" "$1" && echo done
