package pdpair

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/pdpair/canary"
)

const rigStaging = 64 << 20

// realEngine is a reference engine behind a real daemon, and the reference to it
// as a pair has it.
func realEngine(t *testing.T, n *rig.Node, role engines.Role, change func(*refengine.Config)) engineref.Ref {
	t.Helper()
	c := refengine.Default()
	c.Name, c.Role, c.Model = string(role)+"-0", refengine.Role(role), "moai/seeded"
	c.Node, c.DaemonSocket, c.HTTPSocket = n.Name, n.EngineSocket(), n.HTTPSocket(c.Name)
	if change != nil {
		change(&c)
	}
	fp, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	n.Engine(t.Context(), t, c.Name, string(role), fp, rigStaging)
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

// TestCanaryOverRealEngines sends canaries through real daemons and engines: one
// that passes, and the ways of not using KV that must not.
func TestCanaryOverRealEngines(t *testing.T) {
	for _, c := range []struct {
		name    string
		prefill func(*refengine.Config)
		paired  bool
		want    canary.Outcome
		says    string
	}{
		{"KV crosses", nil, true, canary.Passed, ""},
		{"wrong weights on prefill", func(c *refengine.Config) { c.Seed = refmodel.DefaultSeed + 1000 }, true, canary.Wrong, "differs from that of the decode engine alone"},
		{"daemons that know no pair", nil, false, canary.Wrong, "refused (not_paired)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := rig.New(t, rig.Options{Log: slog.New(slog.DiscardHandler)})
			p, d := realEngine(t, nodes.A, engines.RolePrefill, c.prefill), realEngine(t, nodes.B, engines.RoleDecode, nil)
			if c.paired {
				pair := (pools{prefill: []engineref.Ref{p}, decode: []engineref.Ref{d}}).registration("main")
				for _, n := range []*rig.Node{nodes.A, nodes.B} {
					if _, err := n.Manage.PutPair(t.Context(), pair); err != nil {
						t.Fatal(err)
					}
				}
			}
			run, err := newCanary(crossing{prefill: p, decode: d}, nodes.A.Manage, nodes.B.Manage)
			if err != nil {
				t.Fatal(err)
			}
			v, err := run.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if v.Outcome != c.want || !strings.Contains(strings.Join(v.Reasons, " "), c.says) {
				t.Errorf("got %v %q, want %v with %q", v.Outcome, v.Reasons, c.want, c.says)
			}
		})
	}
}
