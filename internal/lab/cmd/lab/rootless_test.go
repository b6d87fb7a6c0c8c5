package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// mainVariable makes the test's program the lab program.
const mainVariable = "MOAI_LAB_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestLabRootless runs the lab program as an ordinary user: the hosts of tier NR boot, reboot, stop and vanish, and nothing
// of them is left. It runs where such a user calls it; root has tier N, and its tests.
func TestLabRootless(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: boots hosts")
	}
	for _, tier := range lab.Tiers() {
		if tier.Name != lab.TierNR {
			continue
		}
		if err := tier.Available(t.Context()); err != nil {
			t.Skip(err)
		}
	}
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(mainVariable, "1")
	dir := lab.DefaultDir() // images are shared
	const name = "nrtest"
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), bin, args...)
		cmd.Env = append(os.Environ(), "MOAI_LAB_DIR="+dir, "MOAI_LAB_NAME="+name, lab.TierVariable+"="+lab.TierNR)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		t.Logf("lab %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
		return string(out), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("lab %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	must("down") // of a run that was killed
	t.Cleanup(func() { _, _ = run("down") })
	must("up", "--hosts", "gateway,h100-0", "--disk", "256m", "--moaid-lab", "/bin/true") // no engine runs here
	if out := must("ssh", "h100-0", "hostname; systemctl is-system-running; sudo -n id -u"); out != "h100-0\nrunning\n0\n" {
		t.Errorf("the host says %q", out)
	}
	var env plan.Env
	if err := json.Unmarshal([]byte(must("env", "--json")), &env); err != nil || env.Tier != lab.TierNR {
		t.Fatalf("tier %q, %v", env.Tier, err)
	}
	// What leads to the hosts does so from outside and from inside.
	enter := append(append(append([]string{}, env.Enter...), env.Enter...), "ip", "-brief", "address")
	out, err := exec.CommandContext(t.Context(), enter[0], enter[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.77.0.1/24") {
		t.Errorf("%v: %v\n%s", enter, err, out)
	}
	must("reboot", "h100-0")
	must("freeze", "h100-0")
	if out := must("status"); !strings.Contains(lines(out, "h100-0"), "frozen") {
		t.Errorf("frozen: %s", out)
	}
	must("thaw", "h100-0")
	must("kill", "gateway")
	if out := must("status"); !strings.Contains(lines(out, "gateway"), "off") {
		t.Errorf("without power: %s", out)
	}
	must("start", "gateway")
	must("down")
	for _, left := range []string{filepath.Join(dir, "labs", name), filepath.Join(dir, "places", name)} {
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left: %s, %v", left, err)
		}
	}
	if _, err := run("env"); err == nil {
		t.Error("a lab that is down has no environment")
	}
}

// lines gives those lines of a text that start with a word.
func lines(text, word string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word) {
			b.WriteString(line)
		}
	}
	return b.String()
}
