package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

func newPool(t *testing.T, o ssh.Options) *ssh.Pool {
	t.Helper()
	if o.BackoffBase == 0 {
		o.BackoffBase = time.Millisecond
	}
	p := ssh.NewPool(o)
	t.Cleanup(p.Close)
	return p
}

func conn(t *testing.T, tg ssh.Target) *ssh.Conn {
	t.Helper()
	c, err := newPool(t, ssh.Options{}).Conn(tg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// handler answers a few named commands.
func handler(r *sshtest.Request) int {
	switch r.Argv[0] {
	case "echo":
		_, _ = io.WriteString(r.Stdout, strings.Join(r.Argv[1:], " ")+"\n")
	case "cat":
		_, _ = io.Copy(r.Stdout, r.Stdin)
	case "fail":
		_, _ = io.WriteString(r.Stderr, "broken\n")
		return 3
	case "hang":
		_, _ = io.WriteString(r.Stdout, "begun\n")
		<-r.Killed
		return 143
	case "flood":
		for {
			select {
			case <-r.Killed:
				return 141
			default:
			}
			if _, err := r.Stdout.Write(bytes.Repeat([]byte("x"), 32<<10)); err != nil {
				return 141
			}
		}
	default:
		return sshtest.Unmatched
	}
	return 0
}

func TestRun(t *testing.T) {
	c := conn(t, sshtest.New(t, handler).Target())
	res, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"echo", "a  b", "$HOME;'"}})
	if err != nil || string(res.Stdout) != "a  b $HOME;'\n" || res.ExitCode != 0 {
		t.Errorf("echo: %q %d %v", res.Stdout, res.ExitCode, err)
	}
	res, err = c.Run(t.Context(), ssh.Cmd{Argv: []string{"fail"}})
	if err != nil || res.ExitCode != 3 || string(res.Stderr) != "broken\n" {
		t.Errorf("fail: %q %d %v", res.Stderr, res.ExitCode, err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16)
	res, err = c.Run(t.Context(), ssh.Cmd{Argv: []string{"cat"}, Stdin: bytes.NewReader(big)})
	if err != nil || !bytes.Equal(res.Stdout, big) {
		t.Errorf("cat: %d bytes, %v", len(res.Stdout), err)
	}
	// A command may leave its input unread.
	if res, err = c.Run(t.Context(), ssh.Cmd{Argv: []string{"fail"}, Stdin: bytes.NewReader(make([]byte, 4<<20))}); err != nil || res.ExitCode != 3 {
		t.Errorf("unread input: %d %v", res.ExitCode, err)
	}
}

func TestRunRefusesMisuse(t *testing.T) {
	c := conn(t, sshtest.New(t, handler).Target())
	for _, cmd := range []ssh.Cmd{{}, {Argv: []string{"a"}, Script: "b"}, {Argv: []string{"a"}, Args: []string{"b"}}, {Argv: []string{"a\x00"}}} {
		if _, err := c.Run(t.Context(), cmd); !errors.Is(err, ssh.ErrConfig) {
			t.Errorf("%+v: %v", cmd, err)
		}
	}
}

func TestOneConnection(t *testing.T) {
	s := sshtest.New(t, handler)
	p := newPool(t, ssh.Options{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := p.Conn(s.Target())
			if err == nil {
				_, err = c.Run(context.Background(), ssh.Cmd{Argv: []string{"echo", "x"}})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.Accepted(); n != 1 {
		t.Errorf("%d connections for one target, want 1", n)
	}
	named := s.Target()
	named.Name = "other"
	a, _ := p.Conn(s.Target())
	b, _ := p.Conn(named)
	if a != b {
		t.Error("a name made a second connection")
	}
}

// TestClasses: each fault gives its class, names the target and the step, and says what to do.
func TestClasses(t *testing.T) {
	tests := []struct {
		name      string
		fault     sshtest.Fault
		change    func(*ssh.Target)
		class     error
		step      ssh.Step
		retryable bool
		holds     []string
	}{
		{"wrong pin", sshtest.Fault{}, func(g *ssh.Target) {
			g.HostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"
		},
			ssh.ErrHostKey, ssh.StepHandshake, false, []string{"expected ssh-ed25519 SHA256:", "presented ssh-ed25519 SHA256:", "ssh.host_key"}},
		{"no pin", sshtest.Fault{}, func(g *ssh.Target) { g.HostKey = "" },
			ssh.ErrHostKey, ssh.StepHandshake, false, []string{"not known", "SHA256:", "host_key = \"ssh-ed25519 AAAA"}},
		{"pin of another type", sshtest.Fault{}, func(g *ssh.Target) {
			g.HostKey = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg="
		}, ssh.ErrHostKey, ssh.StepHandshake, false, []string{"ssh-keyscan"}},
		{"key refused", sshtest.Fault{RefuseAuth: true}, nil, ssh.ErrAuth, ssh.StepAuthenticate, false, []string{"authorized_keys"}},
		{"silent", sshtest.Fault{Silent: true}, func(g *ssh.Target) { g.ConnectTimeout = 50 * time.Millisecond },
			ssh.ErrTimeout, ssh.StepHandshake, true, []string{"50ms"}},
		{"closes", sshtest.Fault{CloseConns: 100}, nil, ssh.ErrUnreachable, ssh.StepHandshake, true, []string{"MaxStartups"}},
		{"no sessions", sshtest.Fault{RefuseSessions: true}, nil, ssh.ErrUnreachable, ssh.StepSession, true, []string{"MaxSessions"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := sshtest.New(t, handler)
			s.Set(tt.fault)
			g := s.Target()
			if tt.change != nil {
				tt.change(&g)
			}
			_, err := conn(t, g).Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}})
			var e *ssh.Error
			if !errors.As(err, &e) || !errors.Is(err, tt.class) || e.Step != tt.step {
				t.Fatalf("got %v, want class %v at step %s", err, tt.class, tt.step)
			}
			if ssh.Retryable(err) != tt.retryable {
				t.Errorf("Retryable = %v", !tt.retryable)
			}
			for _, w := range append(tt.holds, "root@"+s.Addr(), string(tt.step)) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

func TestHostKeyIsNotRetried(t *testing.T) {
	s := sshtest.New(t, handler)
	g := s.Target()
	s.RotateHostKey()
	if _, err := conn(t, g).Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}}); !errors.Is(err, ssh.ErrHostKey) {
		t.Fatal(err)
	}
	if n := s.Accepted(); n != 1 {
		t.Errorf("%d connections after a wrong host key, want 1", n)
	}
}

func TestRefusedPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := sshtest.New(t, handler)
	g := s.Target()
	g.Port = ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	_, err = conn(t, g).Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}})
	if !errors.Is(err, ssh.ErrUnreachable) || !ssh.Retryable(err) || !strings.Contains(err.Error(), "no SSH server listens") {
		t.Errorf("got %v", err)
	}
}

// TestSetUpIsRetried: connections closed before the handshake, as MaxStartups does, are tried again.
func TestSetUpIsRetried(t *testing.T) {
	s := sshtest.New(t, handler)
	s.Set(sshtest.Fault{CloseConns: 2})
	if _, err := conn(t, s.Target()).Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}}); err != nil {
		t.Fatal(err)
	}
	if n := s.Accepted(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

func TestDialEndsWithContext(t *testing.T) {
	s := sshtest.New(t, handler)
	s.Set(sshtest.Fault{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	c := conn(t, s.Target())
	done := make(chan error, 1)
	go func() { done <- c.Connect(ctx) }()
	waitFor(t, func() bool { return s.Accepted() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || ssh.Retryable(err) {
		t.Errorf("got %v", err)
	}
}

// TestWaiterOutlivesDialer: a caller that waits for another's set-up is not harmed when that one is cancelled.
func TestWaiterOutlivesDialer(t *testing.T) {
	s := sshtest.New(t, handler)
	s.Set(sshtest.Fault{Silent: true})
	c := conn(t, s.Target())
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.Connect(ctx) }()
	waitFor(t, func() bool { return s.Accepted() == 1 })
	go func() { second <- c.Connect(t.Context()) }()
	s.Set(sshtest.Fault{})
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("second: %v", err)
	}
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("condition never came true")
		}
	}
}

func TestDroppedIsNeverSuccess(t *testing.T) {
	for name, f := range map[string]sshtest.Fault{
		"connection cut after the command": {DropCommand: true}, "cut before": {DropBefore: true}, "no exit status": {NoExit: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := sshtest.New(t, handler)
			s.Set(f)
			_, err := conn(t, s.Target()).Run(t.Context(), ssh.Cmd{Argv: []string{"echo", "x"}})
			if !errors.Is(err, ssh.ErrDropped) || ssh.Retryable(err) {
				t.Errorf("got %v", err)
			}
			if n := len(s.Commands()); n != 1 {
				t.Errorf("command was sent %d times", n)
			}
		})
	}
}

func TestRedialAfterDrop(t *testing.T) {
	s := sshtest.New(t, handler)
	c := conn(t, s.Target())
	for range 3 {
		if _, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}}); err != nil {
			t.Fatal(err)
		}
		s.DropAll()
	}
	if n := s.Accepted(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

func TestCancelKillsTheCommand(t *testing.T) {
	s := sshtest.New(t, handler)
	ctx, cancel := context.WithCancel(t.Context())
	c := conn(t, s.Target())
	type outcome struct {
		res ssh.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		res, err := c.Run(ctx, ssh.Cmd{Argv: []string{"hang"}})
		done <- outcome{res, err}
	}()
	waitFor(t, func() bool { return len(s.Commands()) == 1 })
	cancel()
	o := <-done
	if !errors.Is(o.err, context.Canceled) {
		t.Errorf("got %v", o.err)
	}
	waitFor(t, func() bool { return len(s.Signals()) == 1 && s.Signals()[0] == "TERM" })
	if _, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}}); err != nil || s.Accepted() != 1 {
		t.Errorf("the connection did not survive: %v", err)
	}
}

func TestOutputLimit(t *testing.T) {
	s := sshtest.New(t, handler)
	c, err := newPool(t, ssh.Options{OutputLimit: 100 << 10}).Conn(s.Target())
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"flood"}})
	if !errors.Is(err, ssh.ErrOutput) || len(res.Stdout) != 100<<10 {
		t.Errorf("%d bytes, %v", len(res.Stdout), err)
	}
}

func TestSilentConnectionEnds(t *testing.T) {
	s := sshtest.New(t, handler)
	c, err := newPool(t, ssh.Options{KeepaliveInterval: 5 * time.Millisecond, KeepaliveMisses: 2}).Conn(s.Target())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Set(sshtest.Fault{Mute: true})
	if _, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"hang"}}); !errors.Is(err, ssh.ErrDropped) {
		t.Errorf("got %v", err)
	}
}

func TestSessionsStayBelowSshdsLimit(t *testing.T) {
	var mu sync.Mutex
	open, most := 0, 0
	release := make(chan struct{})
	s := sshtest.New(t, func(*sshtest.Request) int {
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		<-release
		mu.Lock()
		open--
		mu.Unlock()
		return 0
	})
	c := conn(t, s.Target())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.Run(context.Background(), ssh.Cmd{Argv: []string{"x"}}); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool { return len(s.Commands()) >= 5 })
	close(release)
	wg.Wait()
	if most > 8 {
		t.Errorf("%d sessions at once", most)
	}
}

func TestClosedPool(t *testing.T) {
	s := sshtest.New(t, handler)
	p := ssh.NewPool(ssh.Options{})
	c, err := p.Get(t.Context(), s.Target())
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}}); !errors.Is(err, ssh.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := p.Conn(s.Target()); !errors.Is(err, ssh.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
