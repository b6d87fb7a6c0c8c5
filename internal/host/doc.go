// Package host does the few things to a machine that the provider needs, over one [ssh.Conn] and as root: look, put and
// remove files, users, units, a lock, markers.
//
// Each verb is one fixed POSIX shell script (scripts/*.sh) in one session; what varies are its arguments and its
// input, so no string of a configuration ever becomes shell text. The first line of a script as sent is
// "# moai:<verb>", which names it in process lists and lets a test machine recognise it.
//
// A verb that asks tells "not there" (os.ErrNotExist, or Gone) from "could not ask" (any other error): only the
// first is proof of absence.
package host
