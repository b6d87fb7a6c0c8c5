package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
)

// manage opens the management API of a host's daemon as an operator would from
// a shell: ssh HOST sudo moaid dial.
func manage(e plan.Env, host string) *client.Client {
	return client.New(func(ctx context.Context) (net.Conn, error) {
		return dialCommand(ctx, sshArgv(e, host, "sudo", "-n", "/opt/moai/bin/moaid", "dial")...)
	})
}

// processConn is a net.Conn over a process's stdin and stdout. Deadlines are
// not supported: the demo bounds its requests by contexts, and closing the
// connection ends the process.
type processConn struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	once sync.Once
	err  error
}

func dialCommand(ctx context.Context, argv ...string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The connection outlives the dialling context, so the process must too.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	return &processConn{cmd: cmd, in: in, out: out}, nil
}

func (c *processConn) Read(b []byte) (int, error)  { return c.out.Read(b) }
func (c *processConn) Write(b []byte) (int, error) { return c.in.Write(b) }

// Close ends the process and waits for it.
func (c *processConn) Close() error {
	c.once.Do(func() {
		c.err = c.in.Close()
		if err := c.cmd.Process.Kill(); err != nil {
			c.err = errors.Join(c.err, err)
		}
		var exit *exec.ExitError
		if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
			c.err = errors.Join(c.err, err)
		}
	})
	return c.err
}

type commandAddr struct{}

func (commandAddr) Network() string { return "command" }
func (commandAddr) String() string  { return "moaid dial" }

func (c *processConn) LocalAddr() net.Addr              { return commandAddr{} }
func (c *processConn) RemoteAddr() net.Addr             { return commandAddr{} }
func (c *processConn) SetDeadline(time.Time) error      { return nil }
func (c *processConn) SetReadDeadline(time.Time) error  { return nil }
func (c *processConn) SetWriteDeadline(time.Time) error { return nil }
