package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// The demo's three hosts.
const (
	GatewayHost = "gateway"
	PrefillHost = "h100-0"
	DecodeHost  = "mi300x-0"
)

// Hosts in the order in which they are shown.
var Hosts = []string{GatewayHost, PrefillHost, DecodeHost}

// Lab drives the lab program.
type Lab struct {
	WS  Workspace
	Out io.Writer
}

// run runs the lab program on this run's lab.
func (l Lab) run(ctx context.Context, out io.Writer, args ...string) (string, error) {
	env := append(os.Environ(), "MOAI_LAB_NAME="+l.WS.labName())
	return command{dir: l.WS.Repo, env: env, stdout: out, argv: append([]string{l.WS.Bin("lab")}, args...)}.run(ctx)
}

// Do runs a command of the lab program: freeze HOST, partition HOST HOST, …
func (l Lab) Do(ctx context.Context, args ...string) error {
	_, err := l.run(ctx, l.Out, args...)
	return err
}

// Up boots the hosts; hosts that run stay.
func (l Lab) Up(ctx context.Context) error {
	return l.Do(ctx, "up", "--moaid-lab", l.WS.Bin("moaid-lab"))
}

// Down ends the lab.
func (l Lab) Down(ctx context.Context) error {
	return l.Do(ctx, "down")
}

// Env tells addresses, users and keys.
func (l Lab) Env(ctx context.Context) (plan.Env, error) {
	out, err := l.run(ctx, nil, "env", "--json")
	if err != nil {
		return plan.Env{}, err
	}
	var e plan.Env
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return plan.Env{}, fmt.Errorf("lab env: %w", err)
	}
	for _, h := range Hosts {
		if _, ok := e.Hosts[h]; !ok {
			return plan.Env{}, fmt.Errorf("the lab has no host %s", h)
		}
	}
	return e, nil
}

// Snapshot writes what a host consists of: files, processes, units, users.
func (l Lab) Snapshot(ctx context.Context, host, file string) error {
	out, err := l.run(ctx, nil, "snapshot", host)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(out), 0o600)
}

// Diff compares two snapshots and prints the differences; any is an error.
func (l Lab) Diff(ctx context.Context, before, after string) error {
	return l.Do(ctx, "diff", before, after)
}

// IsUp reports whether the lab has hosts.
func (l Lab) IsUp(ctx context.Context) bool {
	_, err := l.run(ctx, nil, "env", "--json")
	return err == nil
}

// inside gives the argv that runs a command where the hosts' addresses mean something.
func inside(e plan.Env, argv ...string) []string { return slices.Concat(e.Enter, argv) }

// ssh runs a command on a host over SSH, as its own user.
func ssh(ctx context.Context, e plan.Env, host string, stdin io.Reader, words ...string) (string, error) {
	return command{stdin: stdin, argv: sshArgv(e, host, words...)}.run(ctx)
}

// sshArgv enters the lab's network always: outside it the hosts' addresses
// belong to somebody else.
func sshArgv(e plan.Env, host string, words ...string) []string {
	return inside(e, append([]string{"ssh", "-F", e.SSHConfig, host, "--"}, words...)...)
}
