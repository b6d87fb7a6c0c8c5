package pdpair

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/worker"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/pdpair/canary"
)

// The ranks of engines with several are processes of this program.
func TestMain(m *testing.M) {
	worker.ServeIfAsked()
	os.Exit(m.Run())
}

const rigStaging = 256 << 20

// realEngine is a reference engine behind a real daemon, and the reference to it
// as a pair has it. The daemon is told the fingerprint of the plan, so that an
// engine that has another one never gets ready.
func realEngine(t *testing.T, n *rig.Node, role engines.Role, s engines.Spec, seed uint64) engineref.Ref {
	t.Helper()
	k, err := engines.Lookup("reference")
	if err != nil {
		t.Fatal(err)
	}
	s.Name, s.Kind, s.Role, s.Model.ID = string(role)+"-0", "reference", role, "moai/seeded"
	s = k.Defaults(s)
	fp, err := k.Fingerprint(s)
	if err != nil {
		t.Fatal(err)
	}
	c := refengine.Default()
	c.Name, c.Role, c.Model, c.Seed = s.Name, refengine.Role(role), s.Model.ID, seed
	c.Node, c.DaemonSocket, c.HTTPSocket = n.Name, n.EngineSocket(), n.HTTPSocket(c.Name)
	st := fp.Storage
	c.Format = refmodel.Format{DType: st.DType, Scales: st.Scales.Kind, Order: st.Order, Packing: st.Packing, BlockSize: st.BlockSize, KernelBlock: st.KernelBlock, Padding: st.Padding, Tensor: fp.Ranks.Tensor}
	c.DataParallel, c.Blocks = s.Parallel.Data, 4096/st.BlockSize
	if _, err := n.Manage.PutEngine(t.Context(), api.Engine{
		Name: c.Name, UID: os.Getuid(), HTTPSocket: c.HTTPSocket, EngineRole: string(role), Fingerprint: fp, DataSize: s.Parallel.Data,
		StagingBytes: rigStaging, OnTransferFailure: "recompute",
	}); err != nil {
		t.Fatal(err)
	}
	e, err := refengine.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", c.HTTPSocket)
	if err != nil {
		t.Fatal(err)
	}
	rig.NewGroup(t).Go(func(ctx context.Context) {
		if err := e.Serve(ctx, l, 0); err != nil {
			t.Errorf("engine %s: %v", c.Name, err)
		}
	})
	rig.Eventually(t, 30*time.Second, func() error {
		st, err := n.Manage.GetEngine(t.Context(), c.Name, time.Second)
		if err == nil && !st.Ready {
			err = errors.New(st.Reason)
		}
		return err
	})
	b, err := json.Marshal(fp)
	if err != nil {
		t.Fatal(err)
	}
	return engineref.Ref{
		Name: c.Name, Kind: "reference", Role: role, Connector: engines.ConnectorMoai, Model: c.Model, Fingerprint: string(b), Known: true,
		Node: noderef.Ref{Coordinates: fleet.Coordinates{Name: n.Name}},
	}
}

// TestCanaryOverRealEngines sends canaries through real daemons and engines: those
// that pass, between equal and unlike caches, and the ways of not using KV that must not.
func TestCanaryOverRealEngines(t *testing.T) {
	fp8 := engines.Spec{KVCache: engines.KVCache{DType: "fp8"}}
	lossy := kvcompat.Options{AllowLossy: true}
	for _, c := range []struct {
		name            string
		prefill, decode engines.Spec
		options         kvcompat.Options
		seed            uint64
		daemons         func(*api.Pair) // changes what they are told
		class           kvcompat.Class
		want            canary.Outcome
		says, notes     string
	}{
		{name: "KV crosses", want: canary.Passed, class: kvcompat.Exact},
		{name: "across vendors", prefill: engines.Spec{Preset: "h100"}, decode: engines.Spec{Preset: "mi300x"}, want: canary.Passed, class: kvcompat.Exact},
		{
			name: "over other ranks", prefill: engines.Spec{Preset: "h100", Parallel: engines.Parallel{Tensor: 2}},
			decode: engines.Spec{Preset: "mi300x", Parallel: engines.Parallel{Data: 2}}, want: canary.Passed, class: kvcompat.Exact,
		},
		{name: "values change", decode: fp8, options: lossy, want: canary.Passed, class: kvcompat.Lossy, notes: "rounded (storage.dtype bf16 → fp8_e4m3fn"},
		{
			name: "daemons that allow no change", decode: fp8, options: lossy, daemons: func(p *api.Pair) { p.Options = kvcompat.Options{} },
			want: canary.Wrong, class: kvcompat.Lossy, says: "refused (incompatible)",
		},
		{name: "wrong weights on prefill", seed: refmodel.DefaultSeed + 1000, want: canary.Wrong, class: kvcompat.Exact, says: "differs from that of the decode engine alone"},
		{name: "daemons that know no pair", daemons: func(p *api.Pair) { p.Prefill[0].Engine = "other" }, want: canary.Wrong, class: kvcompat.Exact, says: "refused (not_paired)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := rig.New(t, rig.Options{Log: slog.New(slog.DiscardHandler)})
			if c.seed == 0 {
				c.seed = refmodel.DefaultSeed
			}
			p := pools{options: c.options, optionsKnown: true, linksKnown: false}
			p.prefill = []engineref.Ref{realEngine(t, nodes.A, engines.RolePrefill, c.prefill, c.seed)}
			p.decode = []engineref.Ref{realEngine(t, nodes.B, engines.RoleDecode, c.decode, refmodel.DefaultSeed)}
			cs, ok := p.crossings()
			if !ok || cs[0].verdict.Class != c.class {
				t.Fatalf("planned %+v, want %s", cs, c.class)
			}
			pair := p.registration("main")
			if c.daemons != nil {
				c.daemons(&pair)
			}
			for _, n := range []*rig.Node{nodes.A, nodes.B} {
				if _, err := n.Manage.PutPair(t.Context(), pair); err != nil {
					t.Fatal(err)
				}
			}
			run, err := newCanary(cs[0], nodes.A.Manage, nodes.B.Manage)
			if err != nil {
				t.Fatal(err)
			}
			v, err := run.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if v.Outcome != c.want || !strings.Contains(strings.Join(v.Reasons, " "), c.says) || !strings.Contains(strings.Join(v.Notes, " "), c.notes) {
				t.Errorf("got %v %q %q, want %v with %q %q", v.Outcome, v.Reasons, v.Notes, c.want, c.says, c.notes)
			}
			t.Logf("%v %q", v.Outcome, v.Notes)
		})
	}
}
