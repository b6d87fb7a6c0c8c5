package rig

import (
	"context"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
)

// Enroll registers an engine as it is configured, with its staging memory in bytes.
// Pairs are made apart from that, with [Pair.Allow].
func (n *Node) Enroll(t testing.TB, role string, cfg refengine.Config, staging int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fp, err := cfg.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	n.put(ctx, t, api.Engine{Name: cfg.Name, EngineRole: role, Fingerprint: fp, DataSize: cfg.DataParallel, StagingBytes: staging})
}

// Withdraw removes an engine from its node's daemon.
func (n *Node) Withdraw(t testing.TB, engine string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := n.Manage.DeleteEngine(ctx, engine); err != nil {
		t.Fatal(err)
	}
}

// Allow makes or changes a pair of engines on both nodes: those of prefill are on A,
// those of decode on B. Of pair the lists are filled in.
func (p *Pair) Allow(t testing.TB, pair api.Pair, prefill, decode []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, e := range prefill {
		pair.Prefill = append(pair.Prefill, api.PeerEngine{Node: p.A.Name, Engine: e})
	}
	for _, e := range decode {
		pair.Decode = append(pair.Decode, api.PeerEngine{Node: p.B.Name, Engine: e})
	}
	p.pair(ctx, t, pair)
}
