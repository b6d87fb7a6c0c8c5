// Package sdnotify tells systemd how a service of Type=notify is doing. Outside
// systemd, where NOTIFY_SOCKET is not set, every call does nothing.
//
// The first character '@' of the address means an abstract socket. Sockets of
// other families (vsock) are refused.
package sdnotify

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// EnvSocket is the environment variable that systemd sets for services that
// notify.
const EnvSocket = "NOTIFY_SOCKET"

// States that systemd knows. See sd_notify(3).
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Watchdog = "WATCHDOG=1"
)

// Status makes a STATUS line, the one-line summary that `systemctl status`
// shows. Newlines become spaces.
func Status(format string, args ...any) string {
	return "STATUS=" + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
}

// Notifier sends to one socket. The zero value sends nothing.
type Notifier struct {
	addr *net.UnixAddr
}

// New gives a notifier for the socket at path, or one that sends nothing if path
// is empty. An address that is no unix socket is an error.
func New(path string) (*Notifier, error) {
	switch {
	case path == "":
		return &Notifier{}, nil
	case path[0] != '/' && path[0] != '@':
		return nil, fmt.Errorf("%s=%q is neither a path nor an abstract socket", EnvSocket, path)
	}
	return &Notifier{addr: &net.UnixAddr{Name: path, Net: "unixgram"}}, nil
}

// FromEnv gives the notifier for this process.
func FromEnv() (*Notifier, error) { return New(os.Getenv(EnvSocket)) }

// Enabled reports whether somebody listens.
func (n *Notifier) Enabled() bool { return n != nil && n.addr != nil }

// Send sends the states in one message, a state a line.
func (n *Notifier) Send(states ...string) error {
	if !n.Enabled() || len(states) == 0 {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	_, werr := conn.Write([]byte(strings.Join(states, "\n")))
	if err := errors.Join(werr, conn.Close()); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// WatchdogInterval is how often Watchdog must be sent: half of WatchdogSec, or 0
// if the unit has none or it is meant for another process.
func WatchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}
