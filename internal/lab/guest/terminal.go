package guest

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal of a session.
type terminal struct {
	master, slave *os.File
}

// terminal opens one as the client wants it.
func (s *session) terminal(payload []byte) error {
	var p struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	if err := ssh.Unmarshal(payload, &p); err != nil {
		return err
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return err
	}
	s.tty, s.term = &terminal{master, slave}, p.Term
	s.tty.resize(p.Columns, p.Rows)
	return nil
}

func (t *terminal) resize(columns, rows uint32) {
	size := &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}
	_ = unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, size) // a wrong size is no reason to end a session
}

// attach gives the terminal to a command that is about to start. What it returns is called when the command has ended.
func (t *terminal) attach(cmd *exec.Cmd, ch ssh.Channel) (func(), error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.slave, t.slave, t.slave
	cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 0
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(ch, t.master) // ends with an error when no process has the terminal any more
	}()
	go func() { _, _ = io.Copy(t.master, ch) }()
	return func() {
		_ = t.slave.Close()
		<-copied
		_ = t.master.Close()
	}, nil
}
