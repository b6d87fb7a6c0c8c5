package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

const (
	loginTimeout = 5 * time.Second // one attempt: connect, handshake, command
	consoleTail  = 1500            // bytes of console in an error
)

// Ready waits until the host's user can log in and use sudo and systemd has finished its boot, and returns what systemd then
// says of itself: "running", or "degraded" with the failed units. The error of a host that dies or stays silent
// until ctx ends carries the end of its console.
func (m *Machine) Ready(ctx context.Context) (string, error) {
	var last error
	for {
		if !m.Group.populated() {
			return "", fmt.Errorf("host %s died while booting; its console ends:\n%s", m.Host.Name, m.consoleEnd())
		}
		attempt, cancel := context.WithTimeout(ctx, loginTimeout)
		_, last = m.Login(attempt, "sudo -n true")
		cancel()
		if last == nil {
			break
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("host %s does not answer (%w); last attempt: %w; its console ends:\n%s",
				m.Host.Name, ctx.Err(), last, m.consoleEnd())
		case <-time.After(3 * poll):
		}
	}
	out, err := m.Login(ctx, "systemctl is-system-running --wait || systemctl --failed --plain --no-legend")
	if err != nil {
		return "", fmt.Errorf("host %s answers but does not finish its boot: %w; its console ends:\n%s", m.Host.Name, err, m.consoleEnd())
	}
	return strings.TrimSpace(out), nil
}

// Reboot reboots the host from inside, as its user, and waits until it is up again.
func (m *Machine) Reboot(ctx context.Context) (string, error) {
	before, err := m.Leader()
	if err != nil {
		return "", err
	}
	// The connection may end before the command does.
	if _, err := m.Login(ctx, "sudo -n systemctl reboot"); err != nil && !lost(err) {
		return "", fmt.Errorf("host %s: reboot: %w", m.Host.Name, err)
	}
	for {
		if now, err := m.Leader(); err == nil && now != before {
			return m.Ready(ctx)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("host %s does not reboot: %w; its console ends:\n%s", m.Host.Name, ctx.Err(), m.consoleEnd())
		case <-time.After(poll):
		}
	}
}

// lost reports whether a command was cut off by the end of its connection.
func lost(err error) bool {
	var missing *ssh.ExitMissingError
	var exit *ssh.ExitError
	return errors.As(err, &missing) || (errors.As(err, &exit) && exit.Signal() != "")
}

// Login runs a command on the host as its user, over SSH from inside the lab, and returns its standard output.
func (m *Machine) Login(ctx context.Context, command string) (string, error) {
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.Keys.HostKey))
	if err != nil {
		return "", fmt.Errorf("host key: %w", err)
	}
	address := net.JoinHostPort(m.Host.Address(plan.Mgmt).String(), strconv.Itoa(m.Host.SSHPort()))
	conn, err := network.Dial(ctx, m.Plan.Namespace(), address)
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	transport, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              m.Host.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(m.Keys.User)},
		HostKeyCallback:   ssh.FixedHostKey(want),
		HostKeyAlgorithms: []string{want.Type()},
	})
	if err != nil {
		_ = conn.Close()
		return "", fmt.Errorf("log in as %s: %w", m.Host.User, err)
	}
	client := ssh.NewClient(transport, channels, requests)
	defer func() { _ = client.Close() }()
	session, err := client.NewSession()
	if err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	var out, errs bytes.Buffer
	session.Stdout, session.Stderr = &out, &errs
	if err := session.Run(command); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", command, err, program.Tail(errs.String(), 400))
	}
	return out.String(), nil
}

func (m *Machine) consoleEnd() string {
	text, err := os.ReadFile(m.Console())
	if err != nil {
		return err.Error()
	}
	return program.Tail(string(text), consoleTail)
}
