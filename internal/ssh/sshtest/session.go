package sshtest

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	xssh "golang.org/x/crypto/ssh"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// channel serves one channel: a session, or a bastion's way on to another loopback server.
func (s *Server) channel(conn *xssh.ServerConn, raw net.Conn, open xssh.NewChannel) {
	f := s.faults()
	switch {
	case open.ChannelType() == "direct-tcpip":
		s.forward(open)
	case open.ChannelType() != "session":
		_ = open.Reject(xssh.UnknownChannelType, "only sessions")
	case f.RefuseSessions:
		_ = open.Reject(xssh.Prohibited, "open failed")
	case f.StallSessions:
		_ = conn.Wait()
	default:
		ch, reqs, err := open.Accept()
		if err != nil {
			return
		}
		s.session(conn.User(), raw, ch, reqs)
	}
}

func (s *Server) session(user string, raw net.Conn, ch xssh.Channel, reqs <-chan *xssh.Request) {
	defer func() { _ = ch.Close() }()
	killed := make(chan struct{})
	kill := sync.OnceFunc(func() { close(killed) })
	var wg sync.WaitGroup
	defer wg.Wait()
	for r := range reqs {
		switch r.Type {
		case "exec":
			var p struct{ Command string }
			if err := xssh.Unmarshal(r.Payload, &p); err != nil {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			wg.Go(func() { s.exec(user, raw, ch, p.Command, killed) })
		case "signal":
			var p struct{ Signal string }
			_ = xssh.Unmarshal(r.Payload, &p)
			s.mu.Lock()
			s.signals = append(s.signals, p.Signal)
			s.mu.Unlock()
			kill()
		default:
			// Also "env": nothing of the client's environment is wanted on a host.
			if r.WantReply {
				_ = r.Reply(false, nil)
			}
		}
	}
	kill()
}

func (s *Server) exec(user string, raw net.Conn, ch xssh.Channel, line string, killed <-chan struct{}) {
	s.mu.Lock()
	s.commands = append(s.commands, line)
	f := s.fault
	reply, fixed := s.replies[line]
	s.mu.Unlock()
	if f.DropBefore {
		_ = raw.Close()
		return
	}
	argv, err := ssh.Split(line)
	if err != nil {
		argv = nil
	}
	code := Unmatched
	switch {
	case fixed:
		_, _ = io.WriteString(ch, reply.Stdout)
		_, _ = io.WriteString(ch.Stderr(), reply.Stderr)
		code = reply.Exit
	case s.handler != nil:
		code = s.handler(&Request{User: user, Line: line, Argv: argv, Stdin: ch, Stdout: ch, Stderr: ch.Stderr(), Killed: killed, channel: ch})
	}
	if code == Unmatched {
		s.t.Errorf("sshtest: no answer for command %.300q", line)
		_, _ = io.WriteString(ch.Stderr(), "sshtest: no such command\n")
		code = 127
	}
	switch {
	case f.DropCommand:
		_ = raw.Close()
		return
	case !f.NoExit:
		_, _ = ch.SendRequest("exit-status", false, xssh.Marshal(struct{ Code uint32 }{uint32(code)}))
	}
	_ = ch.Close()
}

func (s *Server) forward(open xssh.NewChannel) {
	var p struct {
		Host     string
		Port     uint32
		FromHost string
		FromPort uint32
	}
	if err := xssh.Unmarshal(open.ExtraData(), &p); err != nil || !strings.HasPrefix(p.Host, "127.") {
		_ = open.Reject(xssh.Prohibited, "only loopback")
		return
	}
	out, err := net.Dial("tcp", net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))) //nolint:noctx // ends with the server
	if err != nil {
		_ = open.Reject(xssh.ConnectionFailed, err.Error())
		return
	}
	s.mu.Lock()
	s.conns[out] = true
	s.mu.Unlock()
	defer s.forget(out)
	ch, reqs, err := open.Accept()
	if err != nil {
		return
	}
	go xssh.DiscardRequests(reqs)
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
