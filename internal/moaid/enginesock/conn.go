package enginesock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Conn carries packets, and at most one descriptor with each, over a
// SOCK_SEQPACKET socket. One goroutine may read while others write.
type Conn struct {
	uc  *net.UnixConn
	buf []byte // of Read: one byte longer than a packet, to see that one is too long
	oob []byte
}

// Dial connects to a daemon's socket.
func Dial(ctx context.Context, path string) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("engine socket: %w", err)
	}
	return NewConn(c.(*net.UnixConn)), nil
}

// Listen makes a daemon's socket. The caller removes an old file first, and sets
// the mode.
func Listen(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("engine socket: %w", err)
	}
	return l, nil
}

// NewConn wraps a connected unixpacket socket.
func NewConn(uc *net.UnixConn) *Conn {
	return &Conn{uc: uc, buf: make([]byte, MaxPacket+1), oob: make([]byte, unix.CmsgSpace(8*4))}
}

// Socket is the connection underneath.
func (c *Conn) Socket() *net.UnixConn { return c.uc }

// Close ends the connection; a Read that waits returns net.ErrClosed.
func (c *Conn) Close() error { return c.uc.Close() }

// SetReadDeadline bounds the next reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.uc.SetReadDeadline(t) }

// SetWriteDeadline bounds the next writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.uc.SetWriteDeadline(t) }

// Write sends one packet; file travels with it if it is not nil, and stays the
// caller's.
func (c *Conn) Write(b []byte, file *os.File) error {
	if len(b) > MaxPacket {
		return fmt.Errorf("packet of %d bytes is longer than %d: %w", len(b), MaxPacket, ErrMalformed)
	}
	var oob []byte
	if file != nil {
		rc, err := file.SyscallConn()
		if err != nil {
			return fmt.Errorf("send descriptor: %w", err)
		}
		var werr error
		// The descriptor is valid only inside Control, so the packet is sent there.
		err = rc.Control(func(fd uintptr) {
			oob = unix.UnixRights(int(fd))
			_, _, werr = c.uc.WriteMsgUnix(b, oob, nil)
		})
		if err = errors.Join(err, werr); err != nil {
			return fmt.Errorf("send descriptor: %w", err)
		}
		return nil
	}
	if _, _, err := c.uc.WriteMsgUnix(b, nil, nil); err != nil {
		return fmt.Errorf("engine socket: %w", err)
	}
	return nil
}

// Read receives one packet and its descriptor, if it has one; the caller closes
// it. The bytes are valid until the next Read. The error is io.EOF at the end,
// wraps ErrMalformed for a packet that is too long or carries several
// descriptors, and is the socket's otherwise.
func (c *Conn) Read() ([]byte, *os.File, error) {
	n, oobn, flags, _, err := c.uc.ReadMsgUnix(c.buf, c.oob)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil, io.EOF
		}
		return nil, nil, fmt.Errorf("engine socket: %w", err)
	}
	file, err := descriptor(c.oob[:oobn])
	if err == nil && (n > MaxPacket || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0) {
		err = fmt.Errorf("packet is longer than %d bytes: %w", MaxPacket, ErrMalformed)
	}
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, nil, err
	}
	return c.buf[:n], file, nil
}

func descriptor(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w: %w", err, ErrMalformed)
	}
	var fds []int
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	if len(fds) == 1 {
		return os.NewFile(uintptr(fds[0]), "engine-socket-descriptor"), nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if len(fds) > 1 {
		return nil, fmt.Errorf("%d descriptors on one packet: %w", len(fds), ErrMalformed)
	}
	return nil, nil
}

// PeerCred is who is at the other end of a unix socket, as the kernel saw it at
// connect.
type PeerCred struct {
	PID int
	UID int
	GID int
}

// Peer reads the other end's credentials.
func (c *Conn) Peer() (PeerCred, error) {
	rc, err := c.uc.SyscallConn()
	if err != nil {
		return PeerCred{}, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var gerr error
	err = rc.Control(func(fd uintptr) {
		cred, gerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, gerr); err != nil {
		return PeerCred{}, fmt.Errorf("peer credentials: %w", err)
	}
	return PeerCred{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}, nil
}
