package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Demo runs the main job.
type Demo struct {
	WS  Workspace
	CLI CLI
	N   Narrator
}

// Prepare builds everything, boots the lab and, before anything is installed,
// writes down what each host consists of.
func (d Demo) Prepare(ctx context.Context) error {
	d.N.Step("Build moaid (linux/amd64, linux/arm64), the provider that carries it, and the lab")
	if err := d.WS.Build(ctx); err != nil {
		return err
	}
	d.N.Say("provider installed in a filesystem mirror as %s/%s %s", providerNamespace, providerType, providerVersion)

	d.N.Step("Boot three hosts: %s, %s, %s", GatewayHost, PrefillHost, DecodeHost)
	lab := Lab{WS: d.WS, Out: d.N.Out}
	wasUp := lab.IsUp(ctx)
	if err := lab.Up(ctx); err != nil {
		return err
	}
	if d.applied() && wasUp {
		d.N.Say("there is a Terraform state of an earlier run: going on from it")
		return nil
	}
	// A state without its hosts describes machines that are gone.
	if err := os.RemoveAll(d.WS.Config()); err != nil {
		return err
	}
	for _, h := range Hosts {
		if err := lab.Snapshot(ctx, h, d.snapshot(h)); err != nil {
			return err
		}
	}
	d.N.Say("wrote down what each host consists of, to compare at the end")
	return nil
}

func (d Demo) snapshot(host string) string { return filepath.Join(d.WS.Snapshots(), host+".json") }

// applied reports whether a run before this one left a state.
func (d Demo) applied() bool {
	_, err := os.Stat(filepath.Join(d.WS.Config(), "terraform.tfstate"))
	return err == nil
}

// Down destroys what was applied, compares each host with how it was, and ends
// the lab, even if something before failed.
func (d Demo) Down(ctx context.Context) error {
	if err := d.WS.BuildLab(ctx); err != nil {
		return err
	}
	lab := Lab{WS: d.WS, Out: d.N.Out}
	var errs []error
	switch {
	case !lab.IsUp(ctx):
		d.N.Say("the lab is not up: its hosts, and what was installed on them, are gone")
	case !d.applied():
		d.N.Say("there is no Terraform state: nothing to destroy")
	default:
		errs = append(errs, d.destroyAndCompare(ctx, lab))
	}
	d.N.Step("End the lab")
	errs = append(errs, lab.Down(ctx))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(d.WS.path())
}

func (d Demo) destroyAndCompare(ctx context.Context, lab Lab) error {
	d.N.Step("%s destroy", d.CLI.Path)
	if err := d.inNamespace(ctx, "destroy"); err != nil {
		return err
	}
	d.N.Step("Compare each host with how it was: files, processes, units, users")
	var errs []error
	for _, h := range Hosts {
		after := filepath.Join(d.WS.path("after"), h+".json")
		if err := lab.Snapshot(ctx, h, after); err != nil {
			errs = append(errs, err)
			continue
		}
		// What a host changes by being used (logs, login records) is tolerated: bin/lab diff --all lists it with the reasons.
		if err := lab.Diff(ctx, d.snapshot(h), after); err != nil {
			errs = append(errs, fmt.Errorf("%s is not as it was, see above", h))
			continue
		}
		d.N.Say("%s is as it was", h)
	}
	return errors.Join(errs...)
}

// StartVariable carries the demo's start into the namespace.
const StartVariable = "MOAI_DEMO_START"

// Up prepares everything and runs the rest inside the lab's network namespace,
// where the hosts' addresses mean something.
func (d Demo) Up(ctx context.Context) error {
	d.N.Say("using %s %s", d.CLI.Path, d.CLI.Version)
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	if err := d.WS.RememberCLI(d.CLI); err != nil {
		return err
	}
	return d.inNamespace(ctx, "drive")
}

func (d Demo) inNamespace(ctx context.Context, word string) error {
	env, err := Lab{WS: d.WS}.Env(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := inside(env, self, word)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = d.WS.Repo
	cmd.Env = append(os.Environ(), StartVariable+"="+d.N.Start.Format(time.RFC3339Nano))
	cmd.Stdout, cmd.Stderr = d.N.Out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute // the CLI ends its own steps on an interrupt
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the part inside the lab's network namespace failed: %w", err)
	}
	return nil
}

// Destroy runs inside the namespace.
func (d Demo) Destroy(ctx context.Context) error {
	_, err := Terraform{CLI: d.CLI, WS: d.WS, Out: d.N.Out}.Destroy(ctx)
	return err
}

// Close says how to look around and prints the report as the last line.
func (d Demo) Close(r Report, ok bool) error {
	if ok {
		d.N.Step("Everything is up. Look around:")
		d.N.print(`
    bin/lab ssh %[2]s                      a shell on the decode host (try: systemctl status 'moai-*')
    bin/lab ssh %[2]s sudo journalctl -u moai-kvd
    bin/lab exec curl -s %[1]s/models
    less build/%[3]s/cli.log                   everything that the CLI said, plans in full
    export TF_CLI_CONFIG_FILE=%[4]s
    bin/lab exec %[5]s -chdir=build/%[3]s/quickstart plan
    make demo-down                            destroy, compare the hosts with how they were

`, r.Endpoint, DecodeHost, d.WS.Name, d.WS.CLIConfig(), d.CLI.Path)
	}
	return d.N.JSON(r)
}
