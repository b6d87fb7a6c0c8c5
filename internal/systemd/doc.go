// Package systemd renders units, names and command lines with systemd's own escaping, and reads what systemctl show
// prints. It is pure: no process, no file.
package systemd
