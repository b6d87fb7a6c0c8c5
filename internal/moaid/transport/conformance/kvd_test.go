package conformance_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func ok[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestDaemonTransfersConform(t *testing.T) {
	for _, c := range []struct {
		api  api.Encryption
		wire wire.Encryption
	}{{api.EncryptionAEAD, wire.EncryptionAEAD}, {api.EncryptionNone, wire.EncryptionNone}} {
		t.Run(string(c.api), func(t *testing.T) { conformance.RunTransfers(t, daemon(t, c.api, c.wire)) })
	}
}

func TestDaemonGatewayConforms(t *testing.T) {
	conformance.RunGateway(t, daemon(t, api.EncryptionAEAD, wire.EncryptionAEAD))
}

// daemon runs a KV daemon with what the suite needs.
func daemon(t *testing.T, enc api.Encryption, mode wire.Encryption) conformance.Target {
	t.Helper()
	dir := ok[string](t)(os.MkdirTemp("", "wire")) // short, for socket paths
	d := ok[*kvd.Daemon](t)(kvd.New(kvd.Options{Config: kvd.Config{Node: "server", Listen: []string{"127.0.0.1:0"}, StateDir: dir, RunDir: dir}}))
	ctx, cancel := context.WithCancel(context.Background())
	addrs, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- d.Run(ctx, func(a []net.Addr) { addrs <- a[0].String() }) }()
	c := client.New(func(ctx context.Context) (net.Conn, error) {
		var nd net.Dialer
		return nd.DialContext(ctx, "unix", filepath.Join(dir, kvd.ManageSocket))
	})
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	var addr string
	select {
	case addr = <-addrs:
	case err := <-done:
		t.Fatal(err)
	}
	id := ok[transport.Identity](t)(transport.NewIdentity())
	key := transport.KeyString(id.Public())
	ok[*api.Trust](t)(c.PutTrust(t.Context(), api.Trust{Name: "client", PublicKey: key, Role: api.RolePeer, Node: "client"}))
	ok[*api.LinkStatus](t)(c.PutLink(t.Context(), api.Link{Name: "client", Peer: "client", PeerKey: key, Addresses: []string{"127.0.0.1:9"}, Transport: "tcp", Encryption: enc, Streams: 1}))
	gateway := ok[transport.Identity](t)(transport.NewIdentity())
	ok[*api.Trust](t)(c.PutTrust(t.Context(), api.Trust{Name: "gateway", PublicKey: transport.KeyString(gateway.Public()), Role: api.RoleGateway}))
	fp := kvcache.Fingerprint{Version: kvcache.Version, Model: kvcache.Model{Config: "m", Weights: "m", Tokenizer: "m"}, Engine: kvcache.Engine{Family: "fake", Release: "1"},
		Storage: kvcache.Storage{DType: kvcache.BF16, Scales: kvcache.Scales{Kind: kvcache.ScaleNone}, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 16, KernelBlock: 16},
		Ranks:   kvcache.Ranks{Tensor: 1, Pipeline: 1},
		Groups:  []kvcache.Group{{Kind: kvcache.GroupFull, Heads: 8, KeyDim: 64, ValueDim: 64, Layers: []int{0, 1}}}}
	for _, name := range []string{"prefill", "decode"} {
		ok[*api.EngineStatus](t)(c.PutEngine(t.Context(), api.Engine{Name: name, UID: os.Getuid(), HTTPSocket: filepath.Join(dir, name), EngineRole: name,
			Fingerprint: fp, StagingBytes: 32 << 20, MaxInFlight: 1 << 20, OnTransferFailure: "recompute"}))
	}
	far := []api.PeerEngine{{Node: "client", Engine: "far"}}
	ok[*api.Pair](t)(c.PutPair(t.Context(), api.Pair{Name: "in", Prefill: far, Decode: []api.PeerEngine{{Node: "server", Engine: "decode"}}}))
	ok[*api.Pair](t)(c.PutPair(t.Context(), api.Pair{Name: "out", Prefill: []api.PeerEngine{{Node: "server", Engine: "prefill"}}, Decode: far}))
	st := ok[*api.Status](t)(c.Status(t.Context()))
	pub, err := transport.ParseKey(st.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Target{Addr: addr, Node: "server", Key: pub, Client: id.Key, ClientNode: "client", Encryption: mode, Gateway: gateway.Key,
		Engines: &conformance.Engines{Socket: filepath.Join(dir, kvd.EngineSocket), Prefill: "prefill", Decode: "decode", Far: "far", Fingerprint: fp, Tokens: 600}}
}
