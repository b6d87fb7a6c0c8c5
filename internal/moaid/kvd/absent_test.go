package kvd

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// wireBetween passes connections on, until it is cut: then nothing crosses it,
// nothing is closed, and nobody is told, as when a cable is pulled.
type wireBetween struct {
	addr string
	cut  atomic.Bool
}

func newWire(t *testing.T, to string) *wireBetween {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wireBetween{addr: l.Addr().String()}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); _ = l.Close(); all.Wait() })
	carry := func(to, from net.Conn) {
		defer context.AfterFunc(ctx, func() { _ = from.Close() })()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			for w.cut.Load() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				_, _ = to.Close(), from.Close()
				return
			}
		}
	}
	all.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			if err != nil {
				_ = a.Close()
				continue
			}
			all.Go(func() { carry(a, b) })
			all.Go(func() { carry(b, a) })
		}
	})
	return w
}

// A peer that goes silent is noticed by the silence alone, requests that need KV
// from there fail soon, and gateways can see it before they send any.
func TestPeerGoesSilent(t *testing.T) {
	const silence, grace = 600 * time.Millisecond, 200 * time.Millisecond
	change := func(o *Options) {
		o.Timeouts.Absent, o.Timeouts.Grace = grace, 50*time.Millisecond
		o.Timing.Idle, o.Timing.Ping, o.Timing.Linger = silence, silence/3, 50*time.Millisecond
	}
	p, d := newNode(t, "p", change), newNode(t, "d", change)
	between := newWire(t, d.addr)
	direct := d.addr
	d.addr = between.addr
	link(t, p, d, api.EncryptionAEAD)
	d.addr = direct
	p.engine("prefill", "prefill", testFingerprint())
	de := d.engine("decode", "decode", testFingerprint())
	pair(t, p, d)
	hc, key := gatewayClient(t, d)
	must[*api.Trust](t, "trust")(d.c.PutTrust(t.Context(), api.Trust{Name: "router", PublicKey: key, Role: api.RoleGateway}))
	peers := func() []string {
		_, _, body, err := ask(t, hc, "GET", "https://"+d.addr+"/engines", nil)
		var list []api.EngineSummary
		if err == nil {
			err = json.Unmarshal([]byte(body), &list)
		}
		if err != nil || len(list) != 1 || list[0].Peers == nil {
			t.Fatalf("%s: %v", body, err)
		}
		return list[0].Peers
	}
	if got := peers(); !slices.Equal(got, []string{"p"}) {
		t.Fatalf("sessions with %v", got)
	}

	between.cut.Store(true)
	began := time.Now()
	// While the loss is not known, and after.
	for range 2 {
		_, h, _, err := ask(t, hc, "POST", "https://"+d.addr+"/engines/decode/x", held(newID()))
		if err != nil || h.Get(headerVerdict) != "failed; code="+string(enginesock.FailPeerGone) {
			t.Fatalf("%v %v", h, err)
		}
	}
	// Both, and much room for a busy machine; the protocol's own times would be a minute.
	if took := time.Since(began); took > patience {
		t.Errorf("two requests were held for %v", took)
	}
	if got := peers(); len(got) != 0 {
		t.Errorf("sessions with %v", got)
	}
	// An engine's own claim, which no request announced.
	id := newID()
	de.claim(id, 50, tokenHash(50, "a"), 0)
	if v := de.verdict(id); v.Code != enginesock.FailPeerGone {
		t.Errorf("%+v", v)
	}
	between.cut.Store(false)
	eventually(t, "the session is back", func() bool { return slices.Equal(peers(), []string{"p"}) })
}

// What an engine said long ago is nothing that requests should be sent by.
func TestOldStatsAreNotShown(t *testing.T) {
	r := &replica{stats: &api.EngineStats{Waiting: 1}, statsAt: 1}
	e := &engine{replicas: []*replica{r}}
	if e.load(transfer.Instant(1).Add(statsLife)) == nil || e.load(transfer.Instant(2).Add(statsLife)) != nil {
		t.Error("load feedback is not forgotten after its time")
	}
}
