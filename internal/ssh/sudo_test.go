package ssh_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

// machine is a machine with a program that says its arguments and its input.
func machine(t *testing.T, set func(m *sshtest.Machine)) *sshtest.Server {
	t.Helper()
	m := sshtest.NewMachine(t)
	m.SetProgram("show", func(args []string, stdin io.Reader) (string, string, int) {
		b, err := io.ReadAll(stdin)
		if err != nil {
			return "", err.Error(), 1
		}
		return strings.Join(args, ",") + "|" + string(b), "", 0
	})
	m.SetFile("/opt/moai/bin/moaid", sshtest.Entry{Mode: 0o755})
	if set != nil {
		set(m)
	}
	return m.Serve()
}

func TestSudo(t *testing.T) {
	tests := []struct {
		name   string
		user   string
		become ssh.Become
		set    func(m *sshtest.Machine)
		want   string // of the error; "" means success
	}{
		{"root needs none", "root", ssh.Become{}, func(m *sshtest.Machine) { m.NoSudo = true }, ""},
		{"root with none", "root", ssh.Become{Method: ssh.BecomeNone}, nil, ""},
		{"free", "ubuntu", ssh.Become{}, nil, ""},
		{"free, password given all the same", "ubuntu", ssh.Become{Method: ssh.BecomeSudo, Password: "hunter22"}, nil, ""},
		{"asks", "ops", ssh.Become{Method: ssh.BecomeSudo, Password: "hunter22"}, func(m *sshtest.Machine) { m.SudoPassword = "hunter22" }, ""},
		{"asks, nothing given", "ops", ssh.Become{}, func(m *sshtest.Machine) { m.SudoPassword = "hunter22" }, "become.password"},
		{"wrong password", "ops", ssh.Become{Password: "wrong-one"}, func(m *sshtest.Machine) { m.SudoPassword = "hunter22" }, "did not accept become.password"},
		{"none", "ops", ssh.Become{Method: ssh.BecomeNone}, nil, `become.method is "none"`},
		{"not in sudoers", "ops", ssh.Become{}, func(m *sshtest.Machine) { m.NoSudo = true }, "not in the sudoers file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := machine(t, tt.set)
			g := s.Target()
			g.User, g.Become = tt.user, tt.become
			c := conn(t, g)
			for range 2 {
				res, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"show", "a b"}, Sudo: true, Stdin: strings.NewReader("input\n")})
				switch {
				case tt.want == "" && (err != nil || string(res.Stdout) != "a b|input\n" || len(res.Stderr) != 0):
					t.Fatalf("%q %q %v", res.Stdout, res.Stderr, err)
				case tt.want != "" && (!errors.Is(err, ssh.ErrSudo) || !strings.Contains(err.Error(), tt.want)):
					t.Fatalf("got %v, want %q", err, tt.want)
				}
			}
			probes := 0
			for _, line := range s.Commands() {
				if strings.Contains(line, "hunter22") || strings.Contains(line, "wrong-one") {
					t.Errorf("the password is in a command line: %s", line)
				}
				if strings.Contains(line, "# moai:become") {
					probes++
				}
			}
			if tt.want == "" && probes != 1 {
				t.Errorf("%d probes, want one a connection", probes)
			}
		})
	}
}

func TestDialCommandHTTP(t *testing.T) {
	for _, password := range []string{"", "hunter22"} {
		s := machine(t, func(m *sshtest.Machine) {
			m.SudoPassword = password
			m.Management = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(b))
			})
		})
		g := s.Target()
		g.User, g.Become.Password = "ops", ssh.Secret(password)
		c := conn(t, g)
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.DialCommand(ctx, []string{"/opt/moai/bin/moaid", "dial"}, true)
		}}
		client := &http.Client{Transport: tr}
		for range 3 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://moaid/v1/x", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || string(b) != "PUT /v1/x body" {
				t.Fatalf("%q %v", b, err)
			}
		}
		tr.CloseIdleConnections()
	}
}

// A password of two lines would answer sudo with the first and hand the second to the command as its input.
func TestPasswordOfTwoLinesIsRefused(t *testing.T) {
	s := machine(t, nil)
	for _, pw := range []ssh.Secret{"secret\n", "sec\nret", "secret\r\n", "sec\x00ret"} {
		target := s.Target()
		target.Become = ssh.Become{Method: ssh.BecomeSudo, Password: pw}
		err := target.Validate()
		if !errors.Is(err, ssh.ErrConfig) || !strings.Contains(err.Error(), "one line") || strings.Contains(err.Error(), "sec") {
			t.Errorf("Validate() of %q = %v", pw.Reveal(), err)
		}
	}
}

func TestDialCommandSaysWhyItEnded(t *testing.T) {
	s := machine(t, nil)
	nc, err := conn(t, s.Target()).DialCommand(t.Context(), []string{"/opt/moai/bin/moaid", "dial"}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_, err = nc.Read(make([]byte, 1))
	if err == nil || !strings.Contains(err.Error(), "manage.sock") || !errors.Is(err, ssh.ErrCommand) || errors.Is(err, ssh.ErrDropped) {
		t.Errorf("got %v", err)
	}
}

func TestDialCommandDeadline(t *testing.T) {
	s := sshtest.New(t, handler)
	c := conn(t, s.Target())
	var opened []net.Conn
	for range 3 {
		nc, err := c.DialCommand(t.Context(), []string{"cat"}, false)
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, nc)
	}
	nc := opened[0]
	if err := nc.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := nc.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(nc, b); err != nil || string(b) != "ping" {
		t.Errorf("%q %v", b, err)
	}
	// Three streams are the most, and do not keep commands from running.
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.DialCommand(short, []string{"cat"}, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fourth stream: %v", err)
	}
	if _, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"echo"}}); err != nil {
		t.Errorf("command beside streams: %v", err)
	}
	for _, nc := range opened {
		if err := nc.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := c.DialCommand(t.Context(), []string{"cat"}, false)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
