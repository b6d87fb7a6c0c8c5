package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

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

func (l Lab) argv(args ...string) []string { return append([]string{l.WS.Bin("lab")}, args...) }

// Up boots the hosts; hosts that run stay.
func (l Lab) Up(ctx context.Context) error {
	_, err := command{dir: l.WS.Repo, stdout: l.Out, argv: l.argv("up", "--moaid-lab", l.WS.Bin("moaid-lab"))}.run(ctx)
	return err
}

// Down ends the lab.
func (l Lab) Down(ctx context.Context) error {
	_, err := command{dir: l.WS.Repo, stdout: l.Out, argv: l.argv("down")}.run(ctx)
	return err
}

// Env tells addresses, users and keys.
func (l Lab) Env(ctx context.Context) (plan.Env, error) {
	out, err := command{dir: l.WS.Repo, argv: l.argv("env", "--json")}.run(ctx)
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
	out, err := command{dir: l.WS.Repo, argv: l.argv("snapshot", host)}.run(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(out), 0o600)
}

// Diff compares two snapshots; an error names every difference.
func (l Lab) Diff(ctx context.Context, before, after string) error {
	_, err := command{dir: l.WS.Repo, argv: l.argv("diff", before, after)}.run(ctx)
	return err
}

// inside gives the argv that runs a command in the lab's network namespace, and
// in nothing else of it: ip netns exec would hide the machine's cgroups.
func inside(e plan.Env, argv ...string) []string {
	return append([]string{"nsenter", "--net=/run/netns/" + e.Namespace, "--"}, argv...)
}

// ssh runs a command on a host over SSH, as its own user.
func ssh(ctx context.Context, e plan.Env, host string, stdin io.Reader, words ...string) (string, error) {
	return command{stdin: stdin, argv: append([]string{"ssh", "-F", e.SSHConfig, host, "--"}, words...)}.run(ctx)
}
