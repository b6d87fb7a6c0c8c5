package conformance_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// harness brings up pairs of moaid's own daemon.
func harness(t testing.TB, o conformance.Options) conformance.Pair {
	opts := rig.Options{}
	if o.Fast {
		opts.Timeouts = transfer.Timeouts{
			Reserve: time.Second, Offer: time.Second, Claim: time.Second, Progress: time.Second,
			Load: time.Second, Return: time.Second, Absent: time.Second, Grace: time.Second, Retain: time.Minute,
		}
	}
	p := rig.New(t, opts)
	register(t, p.A, "prefill-0", "prefill", o)
	register(t, p.B, "decode-0", "decode", o)
	pair := api.Pair{Name: "pair", Prefill: []api.PeerEngine{{Node: p.A.Name, Engine: "prefill-0"}}, Decode: []api.PeerEngine{{Node: p.B.Name, Engine: "decode-0"}}}
	for _, n := range []*rig.Node{p.A, p.B} {
		if _, err := n.Manage.PutPair(t.Context(), pair); err != nil {
			t.Fatal(err)
		}
	}
	side := func(n, peer *rig.Node, engine string) conformance.Side {
		return conformance.Side{Node: n.Name, Engine: engine, Socket: n.EngineSocket(), Restart: func() {
			n.Stop()
			n.Start()
			for _, x := range []*rig.Node{n, peer} {
				x.WaitLink(t)
			}
		}}
	}
	return conformance.Pair{Prefill: side(p.A, p.B, "prefill-0"), Decode: side(p.B, p.A, "decode-0")}
}

// register puts an engine whose processes are this test's.
func register(t testing.TB, n *rig.Node, name, role string, o conformance.Options) {
	t.Helper()
	e := api.Engine{Name: name, UID: os.Getuid(), HTTPSocket: n.HTTPSocket(name), EngineRole: role, Fingerprint: o.Fingerprint, DataSize: o.Replicas, StagingBytes: o.Staging, OnTransferFailure: "recompute"}
	if _, err := n.Manage.PutEngine(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func TestGoClient(t *testing.T) {
	conformance.Run(t, harness, func(testing.TB) conformance.Factory { return conformance.GoClient })
}

// python finds the interpreter.
func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	switch {
	case err != nil && os.Getenv("MOAI_REQUIRE") != "":
		t.Fatal("there is no python3 here")
	case err != nil:
		t.Skip("there is no python3 here")
	}
	return path
}

const script = "../python/moai_engine.py"

// All sessions of a format are threads of one Python process.
func TestPythonClient(t *testing.T) {
	interpreter := python(t)
	conformance.Run(t, harness, func(t testing.TB) conformance.Factory { return conformance.PythonClient(t, interpreter, script) })
}

// A scheduler and two workers on both sides are six Python processes, as those
// of an engine with two ranks are three.
func TestPythonProcesses(t *testing.T) {
	conformance.RunFormat(t, harness, conformance.PythonProcesses(t, 6, python(t), script), conformance.FormatNamed(t, "TP2"))
}

func TestPythonExamples(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), python(t), "-B", "-m", "doctest", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
