package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Terraform runs the CLI on a configuration. It must run where the hosts'
// addresses mean something: inside the lab's network namespace.
type Terraform struct {
	CLI    CLI
	WS     Workspace
	Dir    string    // of the configuration; empty: the workspace's
	Prefix []string  // of the argv, to get into the namespace from outside
	Out    io.Writer // what the CLI prints, condensed; nil: nowhere
}

func (t Terraform) dir() string { return cmp.Or(t.Dir, t.WS.Config()) }

func (t Terraform) argv(args ...string) []string {
	return append(append(slices.Clone(t.Prefix), t.CLI.Path), args...)
}

// run keeps everything that the CLI printed in a log beside the configuration.
func (t Terraform) run(ctx context.Context, args ...string) (string, error) {
	log, err := os.OpenFile(t.WS.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	var out io.Writer = log
	if t.Out != nil {
		out = condense(t.Out, log)
	}
	text, err := command{dir: t.dir(), env: CLIEnv(t.WS.CLIConfig()), stdout: out, argv: t.argv(args...)}.run(ctx)
	return text, errors.Join(err, log.Close())
}

// Init installs the provider from the mirror. A lock of an earlier run names an
// earlier build under the same version, so it goes first.
func (t Terraform) Init(ctx context.Context) error {
	if err := os.Remove(filepath.Join(t.dir(), ".terraform.lock.hcl")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := t.run(ctx, "init", "-input=false", "-no-color")
	return err
}

// Plan reports whether anything would change.
func (t Terraform) Plan(ctx context.Context, args ...string) (changes bool, output string, err error) {
	output, err = t.run(ctx, append([]string{"plan", "-input=false", "-no-color", "-detailed-exitcode"}, args...)...)
	var exit *exitError
	if errors.As(err, &exit) && exit.status == 2 {
		return true, output, nil
	}
	return false, output, err
}

// Apply plans and applies.
func (t Terraform) Apply(ctx context.Context) (string, error) {
	return t.run(ctx, "apply", "-input=false", "-no-color", "-auto-approve")
}

// Destroy removes everything.
func (t Terraform) Destroy(ctx context.Context) (string, error) {
	return t.run(ctx, "destroy", "-input=false", "-no-color", "-auto-approve")
}

// Outputs reads the outputs' values.
func (t Terraform) Outputs(ctx context.Context) (map[string]json.RawMessage, error) {
	out, err := command{dir: t.dir(), env: CLIEnv(t.WS.CLIConfig()), argv: t.argv("output", "-json", "-no-color")}.run(ctx)
	if err != nil {
		return nil, err
	}
	var raw map[string]struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal([]byte(out), &raw); err != nil {
		return nil, err
	}
	vals := make(map[string]json.RawMessage, len(raw))
	for name, o := range raw {
		vals[name] = o.Value
	}
	return vals, nil
}
