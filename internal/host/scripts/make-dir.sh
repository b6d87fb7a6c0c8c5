# Arguments: path, mode, owner, group.
guard
mkdir -p -- "$1" && chown -- "$3:$4" "$1" && chmod -- "$2" "$1" && echo done
