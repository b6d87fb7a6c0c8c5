# Arguments: unit, number of lines.
journal "$1" "$2" short-iso
