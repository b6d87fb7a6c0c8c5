package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// TestMain lets a lab start its own processes from this program.
func TestMain(m *testing.M) {
	lab.Main(os.Args)
	os.Exit(m.Run())
}

// labRun is the lab acceptance test's own lab, state and programs.
type labRun struct {
	d   Demo
	env plan.Env
	tf  Terraform
}

// newLabRun builds everything and boots the hosts, or skips with the reason.
func newLabRun(t *testing.T) *labRun {
	t.Helper()
	if testing.Short() {
		t.Skip("boots hosts; not with -short")
	}
	ctx := t.Context()
	ws, err := FindWorkspace()
	if err != nil {
		t.Fatal(err)
	}
	if ws.Name == defaultName { // a name that was asked for lets two runs be up at once
		ws.Name = "labtest"
	}
	cli, err := Require(ctx, ws, FindCLI)
	if err != nil && os.Getenv("MOAI_REQUIRE") != "" {
		t.Fatalf("MOAI_REQUIRE is set, and this cannot run: %v", err)
	}
	if err != nil {
		t.Skipf("needs a lab and a CLI: %v", err)
	}
	r := &labRun{d: Demo{WS: ws, CLI: cli, N: Narrator{Out: logTo(t), Start: time.Now()}}}
	if err := ws.Build(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := (command{dir: ws.Repo, argv: []string{"go", "build", "-o", ws.Bin("demo"), "./internal/demo/cmd/demo"}}).run(ctx); err != nil {
		t.Fatal(err)
	}
	lab := Lab{WS: ws}
	if err := lab.Down(ctx); err != nil { // of a run that was killed
		t.Fatal(err)
	}
	if err := os.RemoveAll(ws.path()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	if err := r.d.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if r.env, err = lab.Env(ctx); err != nil {
		t.Fatal(err)
	}
	r.tf = Terraform{CLI: cli, WS: ws, Prefix: inside(r.env), Out: logTo(t)}
	return r
}

// logTo logs whole lines.
func logTo(t *testing.T) io.Writer {
	return &lines{line: func(text string) error {
		t.Log(text)
		return nil
	}}
}

// demo runs the demo program on this run.
func (r *labRun) demo(ctx context.Context, t *testing.T, word string) string {
	t.Helper()
	out, err := command{
		dir: r.d.WS.Repo, env: append(os.Environ(), NameVariable+"="+r.d.WS.Name), stdout: logTo(t), argv: []string{r.d.WS.Bin("demo"), word},
	}.run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLab is the main job on real systemd and sshd, from an apply that is killed
// to hosts that are as they were.
func TestLab(t *testing.T) {
	r := newLabRun(t)
	ctx := t.Context()
	if err := r.d.WS.CopyExample(); err != nil {
		t.Fatal(err)
	}
	if err := r.d.WS.WriteVariables(r.env); err != nil {
		t.Fatal(err)
	}
	t.Run("host operations", r.hostOperations)
	t.Run("refused at plan", r.refusedAtPlan)

	if err := r.tf.Init(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("faulty hosts", r.faultyHosts)
	t.Run("pools", r.pools)
	for _, kind := range []string{"moai_node", "moai_kv_link", "moai_engine", "moai_pd_pair", "moai_router"} {
		t.Run("an apply that is killed while it creates "+kind, func(t *testing.T) { r.killedApply(t, kind) })
	}
	t.Run("main job", func(t *testing.T) {
		out := strings.TrimSpace(r.demo(ctx, t, "up"))
		var report Report
		if err := json.Unmarshal([]byte(out[strings.LastIndexByte(out, '\n')+1:]), &report); err != nil {
			t.Fatalf("the last line is no report: %v", err)
		}
		if !report.OK() {
			t.Errorf("report: %+v", report)
		}
	})
	t.Run("an engine that dies at start", r.dyingEngine)
	t.Run("a host that does not answer", r.frozenHost)
	t.Run("destroy leaves the hosts as they were", func(t *testing.T) { r.demo(ctx, t, "down") })
}

// hostOperations runs the tests of internal/host against the lab's real sshd,
// systemd, sudo and account tools.
func (r *labRun) hostOperations(t *testing.T) {
	env := append(os.Environ(), "MOAI_LAB_HOSTS="+strings.Join(Hosts, " "), lab.TierVariable+"="+r.env.Tier)
	for _, h := range r.env.Hosts {
		prefix := "MOAI_LAB_" + strings.ToUpper(strings.ReplaceAll(h.Name, "-", "_"))
		env = append(env, prefix+"_ADDRESS="+h.Address, prefix+"_PORT="+strconv.Itoa(h.Port), prefix+"_USER="+h.User,
			prefix+"_PRIVATE_KEY_FILE="+h.PrivateKeyFile, prefix+"_HOST_KEY="+h.HostKey)
	}
	argv := inside(r.env, "go", "test", "-count=1", "-v", "-run", "^TestLab", "./internal/host")
	out, err := command{dir: r.d.WS.Repo, env: env, argv: argv}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ran := out
	if r.env.Tier == lab.TierG {
		ran = strings.ReplaceAll(out, "--- SKIP: TestLabSudoPassword", "") // there is no PAM there
	}
	if strings.Contains(ran, "--- SKIP: TestLab") || !strings.Contains(ran, "--- PASS: TestLab") {
		t.Errorf("the tests did not run against the lab:\n%s", out)
	}
}

// killedApply ends CLI and provider with SIGKILL while a resource of a kind is
// created. The state may then know less than the hosts have; the next apply must
// end right.
func (r *labRun) killedApply(t *testing.T, kind string) {
	argv := r.tf.argv("apply", "-input=false", "-no-color", "-auto-approve")
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = r.tf.dir(), CLIEnv(r.d.WS.CLIConfig())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if !killed && strings.HasPrefix(lines.Text(), kind+".") && strings.Contains(lines.Text(), ": Creating...") {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed = true
		}
	}
	if err := cmd.Wait(); err == nil || !killed {
		t.Fatalf("the apply was not killed while it created a %s (killed %v, ended %v)", kind, killed, err)
	}
}

// variant copies the configuration without its state and edits it.
func (r *labRun) variant(t *testing.T, vars func(map[string]any), edit func(string) string) Terraform {
	t.Helper()
	tf := r.tf
	tf.Dir = t.TempDir()
	tf.Out = nil
	files, err := filepath.Glob(filepath.Join(r.d.WS.Config(), "*.tf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if filepath.Base(f) == "main.tf" && edit != nil {
			if text = edit(text); text == string(b) {
				t.Fatal("the edit changed nothing")
			}
		}
		if err := os.WriteFile(filepath.Join(tf.Dir, filepath.Base(f)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(r.d.WS.Config(), "terraform.tfvars.json"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := json.Unmarshal(b, &values); err != nil {
		t.Fatal(err)
	}
	if vars != nil {
		vars(values)
	}
	if b, err = json.Marshal(values); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tf.Dir, "terraform.tfvars.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tf.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tf
}

// refusedAtPlan tries the likeliest mistakes against real sshd: each is an error
// of the first plan that says what is wrong, where.
func (r *labRun) refusedAtPlan(t *testing.T) {
	host := func(values map[string]any, name string) map[string]any { return values[name].(map[string]any) }
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for name, c := range map[string]struct {
		vars func(map[string]any)
		edit func(string) string
		want []string
	}{
		"unknown host": {
			vars: func(v map[string]any) { host(v, "prefill_host")["address"] = "no-such-host.invalid" },
			want: []string{"no-such-host.invalid", "resolve", "moai_node.h100"},
		},
		"closed port": {
			vars: func(v map[string]any) { host(v, "prefill_host")["port"] = 2222 },
			want: []string{"2222", "refused", "moai_node.h100"},
		},
		"wrong host key": {
			vars: func(v map[string]any) { host(v, "prefill_host")["host_key"] = r.env.Hosts[DecodeHost].HostKey },
			want: []string{"SHA256:", "moai_node.h100", "host_key"},
		},
		"wrong credentials": {
			vars: func(v map[string]any) { v["nvidia_private_key"] = v["amd_private_key"] },
			want: []string{"nvidia", "ubuntu", "moai_node.h100"},
		},
		"wrong count": {edit: replace("gpu_count = 8", "gpu_count = 4"), want: []string{"gpu_count", "8", "4", "moai_node.h100"}},
		"wrong vendor": {
			edit: replace(`expect = { vendor = "nvidia", gpu = "H100", gpu_count = 8 }`, `expect = { vendor = "amd" }`),
			want: []string{"vendor", "nvidia", "moai_node.h100"},
		},
		"incompatible KV": {
			vars: func(v map[string]any) { v["model"] = "moai/seeded" },
			edit: func(s string) string {
				i := strings.LastIndex(s, "{ id = var.model }")
				return s[:i] + `{ id = "moai/seeded-wide" }` + s[i+len("{ id = var.model }"):]
			},
			want: []string{"groups", "32", "64", "moai_pd_pair.main"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, err := r.variant(t, c.vars, c.edit).Plan(t.Context())
			if err == nil {
				t.Fatalf("the plan was accepted:\n%s", out)
			}
			said := errorsOf(err)
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in the errors:\n%s", want, said)
				}
			}
			if strings.Contains(out+err.Error(), "PRIVATE KEY") {
				t.Error("a private key is in the output")
			}
		})
	}
}

// errorsOf gives what the CLI reported from its first error on, the lines that it
// wrapped joined.
func errorsOf(err error) string {
	s := err.Error()
	var exit *exitError
	if errors.As(err, &exit) {
		s = exit.output
	}
	if i := strings.Index(s, "Error: "); i >= 0 {
		s = s[i:]
	}
	return strings.Join(strings.Fields(s), " ")
}

// dyingEngine adds an engine whose program ends at once: the error has its last
// words, and removing it from the configuration leaves nothing of it.
func (r *labRun) dyingEngine(t *testing.T) {
	ctx := t.Context()
	program := "/usr/local/bin/dying-engine"
	script := "printf '#!/bin/sh\\necho the model has no weights >&2\\nexit 1\\n' >" + program + " && chmod 755 " + program
	if _, err := ssh(ctx, r.env, PrefillHost, strings.NewReader(script), "sudo", "-n", "sh", "-s"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := ssh(ctx, r.env, PrefillHost, nil, "sudo", "-n", "rm", program); err != nil {
			t.Error(err)
		}
	}()
	extra := filepath.Join(r.d.WS.Config(), "dying.tf")
	text := `resource "moai_engine" "dying" {
  name    = "dying-0"
  node    = moai_node.h100
  kind    = "reference"
  role    = "prefill"
  model   = { id = var.model }
  runtime = { kind = "existing", path = "` + program + `" }
}
`
	if err := os.WriteFile(extra, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := r.tf.Apply(ctx)
	if err == nil {
		t.Error("the apply succeeded")
	} else if said := errorsOf(err); !strings.Contains(said, "the model has no weights") || !strings.Contains(said, "moai_engine.dying") {
		t.Errorf("the error does not have the engine's last words: %s", said)
	}
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tf.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	if out, err := ssh(ctx, r.env, PrefillHost, nil, "systemctl", "list-unit-files", "--no-legend", "'moai-engine-dying*'"); err == nil && strings.TrimSpace(out) != "" {
		t.Errorf("something of it is left: %s", out)
	}
}

// frozenHost stops every process of the decode host: it is unreachable, not gone.
func (r *labRun) frozenHost(t *testing.T) {
	ctx := t.Context()
	lab := Lab{WS: r.d.WS, Out: io.Discard}
	if err := lab.Do(ctx, "freeze", DecodeHost); err != nil {
		t.Fatal(err)
	}
	_, out, planErr := r.tf.Plan(ctx)
	if err := lab.Do(ctx, "thaw", DecodeHost); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "will be created") || strings.Contains(out, "must be replaced") {
		t.Errorf("a host that does not answer was taken for gone:\n%s", out)
	}
	said := out
	if planErr != nil {
		said = errorsOf(planErr)
	}
	if i := strings.Index(said, "Warning: "); planErr == nil && i >= 0 {
		said = said[i:]
	} else if planErr == nil {
		t.Errorf("the plan neither warned nor failed:\n%s", said)
	}
	if said = strings.Join(strings.Fields(said), " "); !strings.Contains(said, "Node: mi300x-0") {
		t.Errorf("nothing tells that mi300x-0 did not answer: %s", said)
	}
	changes, out, err := r.tf.Plan(ctx)
	if err != nil || changes {
		t.Errorf("after the thaw the plan is not empty: %v\n%s", err, out)
	}
}
