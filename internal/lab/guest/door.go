package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// door is a host's SSH server. Keys are read from the host's own files at every connection, as sshd reads them.
type door struct {
	h *server
}

const (
	hostKeyFile  = "/etc/ssh/ssh_host_ed25519_key"
	handshake    = 20 * time.Second
	execGrace    = time.Second // for output that children of a command hold open
	maxPublicKey = 64 << 10
)

func newDoor(h *server) (*door, error) {
	d := &door{h: h}
	_, err := d.config()
	return d, err
}

func (d *door) config() (*ssh.ServerConfig, error) {
	text, err := os.ReadFile(hostKeyFile)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", hostKeyFile, err)
	}
	c := &ssh.ServerConfig{PublicKeyCallback: d.mayLogIn, ServerVersion: "SSH-2.0-moai-lab"}
	c.AddHostKey(key)
	return c, nil
}

// mayLogIn accepts a key that the user's own file lists. Root does not log in.
func (d *door) mayLogIn(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	db, err := readAccounts()
	if err != nil {
		return nil, err
	}
	u, ok := db.User(c.User())
	if !ok || u.Name == "root" {
		return nil, errors.New("this user may not log in")
	}
	rest, err := os.ReadFile(filepath.Join(u.Home, ".ssh/authorized_keys"))
	if err != nil || len(rest) > maxPublicKey {
		return nil, errors.New("this user has no keys")
	}
	for len(rest) > 0 {
		var known ssh.PublicKey
		if known, _, _, rest, err = ssh.ParseAuthorizedKey(rest); err != nil {
			break
		}
		if bytes.Equal(known.Marshal(), key.Marshal()) {
			return &ssh.Permissions{}, nil
		}
	}
	return nil, errors.New("this key may not log in")
}

func (d *door) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go d.serve(conn)
	}
}

func (d *door) serve(raw net.Conn) {
	defer func() { _ = raw.Close() }()
	c, err := d.config()
	if err != nil {
		return
	}
	if err := raw.SetDeadline(time.Now().Add(handshake)); err != nil {
		return
	}
	conn, channels, requests, err := ssh.NewServerConn(raw, c)
	if err != nil {
		return
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for open := range channels {
		switch open.ChannelType() {
		case "session":
			go d.session(conn, open)
		case "direct-tcpip":
			go forward(open)
		default:
			_ = open.Reject(ssh.UnknownChannelType, "sessions and direct-tcpip only")
		}
	}
}

// session is one command or shell.
type session struct {
	h    *server
	conn *ssh.ServerConn
	ch   ssh.Channel
	tty  *terminal // nil without one
	term string

	mu  sync.Mutex
	cmd *exec.Cmd
}

func (d *door) session(conn *ssh.ServerConn, open ssh.NewChannel) {
	ch, requests, err := open.Accept()
	if err != nil {
		return
	}
	s := &session{h: d.h, conn: conn, ch: ch}
	started := false
	for r := range requests {
		ok := false
		switch r.Type {
		case "exec", "shell":
			var p struct{ Command string }
			if r.Type == "shell" || ssh.Unmarshal(r.Payload, &p) == nil {
				ok = !started
			}
			if ok {
				started = true
				_ = r.Reply(true, nil)
				go s.run(p.Command)
				continue
			}
		case "pty-req":
			ok = s.terminal(r.Payload) == nil
		case "window-change":
			var p struct{ Columns, Rows, Width, Height uint32 }
			if s.tty != nil && ssh.Unmarshal(r.Payload, &p) == nil {
				s.tty.resize(p.Columns, p.Rows)
				ok = true
			}
		case "signal":
			var p struct{ Signal string }
			if ssh.Unmarshal(r.Payload, &p) == nil {
				s.signal(unix.SignalNum("SIG" + p.Signal))
				ok = true
			}
		}
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
	}
	s.signal(syscall.SIGHUP) // the client is gone
}

// signal reaches everything that the command started.
func (s *session) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil && s.cmd.Process != nil && sig != 0 {
		_ = syscall.Kill(-s.cmd.Process.Pid, sig) // it may have ended
	}
}

// run runs a command line, or a shell if it is empty, and ends the channel with its status.
func (s *session) run(line string) {
	defer func() { _ = s.ch.Close() }()
	status, err := s.command(line)
	if err != nil {
		_, _ = fmt.Fprintln(s.ch.Stderr(), err)
		status = 126
	}
	_ = s.ch.CloseWrite()
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
}

func (s *session) command(line string) (int, error) {
	db, err := readAccounts()
	if err != nil {
		return 0, err
	}
	u, ok := db.User(s.conn.User())
	if !ok {
		return 0, errors.New("this user is gone")
	}
	argv := []string{"/bin/sh", "-c", line}
	if line == "" {
		argv = []string{"/bin/sh", "-l"}
	}
	local, remote := s.conn.LocalAddr().String(), s.conn.RemoteAddr().String()
	client := strings.NewReplacer(":", " ").Replace(remote + " " + local)
	gate, pass, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	status, said, err := os.Pipe()
	if err != nil {
		return 0, errors.Join(err, gate.Close(), pass.Close())
	}
	defer func() { _, _ = status.Close(), gate.Close() }()
	cmd := exec.CommandContext(context.Background(), Program, append([]string{strconv.Itoa(0o22), u.Home}, argv...)...)
	cmd.Args[0] = execName
	cmd.Env = []string{"PATH=" + defaultPath, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, "SHELL=/bin/sh", "LANG=C.UTF-8", "SSH_CONNECTION=" + client}
	cmd.ExtraFiles = []*os.File{gate, said}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = execGrace
	_, _ = pass.Write([]byte{1})
	_ = pass.Close()
	done := func() {}
	if s.tty != nil {
		cmd.Env = append(cmd.Env, "TERM="+s.term)
		if done, err = s.tty.attach(cmd, s.ch); err != nil {
			_ = said.Close()
			return 0, err
		}
	} else {
		cmd.Stdout, cmd.Stderr = s.ch, s.ch.Stderr()
		in, err := cmd.StdinPipe()
		if err != nil {
			_ = said.Close()
			return 0, err
		}
		go func() {
			_, _ = io.Copy(in, s.ch)
			_ = in.Close()
		}()
	}
	s.mu.Lock()
	err = cmd.Start()
	s.cmd = cmd
	s.mu.Unlock()
	_ = said.Close()
	if err != nil {
		return 0, err
	}
	err = cmd.Wait()
	done()
	s.mu.Lock()
	s.cmd = nil
	s.mu.Unlock()
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return 128 + int(ws.Signal()), nil
	case ok:
		return ws.ExitStatus(), nil
	}
	return 126, err
}

// forward is a bastion's way on, to what the lab's network has.
func forward(open ssh.NewChannel) {
	var p struct {
		Host     string
		Port     uint32
		FromHost string
		FromPort uint32
	}
	if err := ssh.Unmarshal(open.ExtraData(), &p); err != nil {
		_ = open.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	dialer := net.Dialer{Timeout: handshake}
	out, err := dialer.DialContext(context.Background(), "tcp", net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))))
	if err != nil {
		_ = open.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer func() { _ = out.Close() }()
	ch, requests, err := open.Accept()
	if err != nil {
		return
	}
	defer func() { _ = ch.Close() }()
	go ssh.DiscardRequests(requests)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(out, ch)
		_ = out.Close()
	})
	wg.Go(func() {
		_, _ = io.Copy(ch, out)
		_ = ch.Close()
	})
	wg.Wait()
}
