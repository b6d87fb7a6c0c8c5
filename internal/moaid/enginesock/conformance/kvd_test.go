package conformance_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

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
	p.Engines(t, "prefill-0", "decode-0", o.Fingerprint, o.Fingerprint, o.Staging)
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

func TestGoClient(t *testing.T) { conformance.Run(t, harness, conformance.GoClient) }

func TestPythonClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil && os.Getenv("MOAI_REQUIRE") != "" {
		t.Fatal("there is no python3 here")
	}
	if err != nil {
		t.Skip("there is no python3 here")
	}
	conformance.Run(t, harness, conformance.PythonClient(t, python, "../python/moai_engine.py"))
}
