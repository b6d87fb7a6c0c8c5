package transport

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func lastError(t *testing.T, n *node, parts ...string) {
	t.Helper()
	eventually(t, n.name+" says "+strings.Join(parts, " … "), func() bool {
		st := n.mux.Status("l")
		if st.Up {
			t.Fatalf("%s is up", n.name)
		}
		for _, p := range parts {
			if !strings.Contains(st.LastError, p) {
				return false
			}
		}
		return true
	})
}

func TestWrongKeyAtTheAcceptor(t *testing.T) {
	noLeaks(t)
	a, b := newNode(t, "a", nil), newNode(t, "b", nil)
	other, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	// a expects another key at b's address.
	a.pins.set(pin{other.Public(), api.RolePeer, "l", "b"})
	b.pins.set(pin{a.id.Public(), api.RolePeer, "l", "a"})
	a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: other.Public(), Addresses: []string{b.addr}, Dial: true, Streams: 1})
	lastError(t, a, "peer at "+b.addr+" presented key "+b.id.PublicString(), "expected "+other.PublicString())
	// The right key, which is pinned for another node or not at all.
	a.pins.set(pin{b.id.Public(), api.RolePeer, "l", "c"})
	a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{b.addr}, Dial: true, Streams: 1})
	lastError(t, a, "not trusted here as a peer for node b")
}

func TestWrongKeyAtTheDialler(t *testing.T) {
	noLeaks(t)
	a, b := newNode(t, "a", nil), newNode(t, "b", nil)
	other, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	a.pins.set(pin{b.id.Public(), api.RolePeer, "l", "b"})
	b.mux.SetPeer(PeerConfig{Link: "l", Node: "a", Key: other.Public(), Addresses: []string{a.addr}, Streams: 1})
	for _, pins := range [][]pin{
		{{other.Public(), api.RolePeer, "l", "a"}},
		{{a.id.Public(), api.RoleGateway, "g", ""}}, // the role counts
	} {
		b.pins.set(pins...)
		a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{b.addr}, Dial: true, Streams: 1})
		lastError(t, a, "refused our key", a.id.PublicString())
		lastError(t, b, "presented key "+a.id.PublicString(), "expected "+other.PublicString())
		a.mux.RemovePeer("b")
	}
	if b.mux.Counters().RefusedTLS == 0 {
		t.Error("not counted")
	}
	// Pinned, but another key than the link's.
	b.pins.set(pin{a.id.Public(), api.RolePeer, "l", "a"})
	a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{b.addr}, Dial: true, Streams: 1})
	lastError(t, a, "the peer ended the session", "(untrusted)")
}

func TestEncryptionMustAgree(t *testing.T) {
	noLeaks(t)
	for _, dialler := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		a, b := newNode(t, "a", nil), newNode(t, "b", nil)
		trust(a, b)
		acceptor := api.EncryptionNone
		if dialler == acceptor {
			acceptor = api.EncryptionAEAD
		}
		b.mux.SetPeer(PeerConfig{Link: "l", Node: "a", Key: a.id.Public(), Encryption: acceptor, Streams: 1})
		a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{b.addr}, Dial: true, Encryption: dialler, Streams: 1})
		for _, n := range []*node{a, b} {
			lastError(t, n, "(encryption)", string(acceptor)+" on node b", string(dialler)+" on node a")
		}
		if n := a.mux.Counters().SessionsUp + b.mux.Counters().SessionsUp; n != 0 {
			t.Errorf("%d sessions came up", n)
		}
	}
}

func TestHelloMustFit(t *testing.T) {
	noLeaks(t)
	// Both ends dial.
	a, b := newNode(t, "a", nil), newNode(t, "b", nil)
	trust(a, b)
	b.mux.SetPeer(PeerConfig{Link: "l", Node: "a", Key: a.id.Public(), Addresses: []string{a.addr}, Dial: true, Streams: 1})
	a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{b.addr}, Dial: true, Streams: 1})
	lastError(t, a, "both ends of the link", "dial")
	// The other end has no link.
	b.mux.RemovePeer("a")
	lastError(t, a, "node b has no link to node a", "(not_paired)")
	// The key is pinned for another node.
	b.pins.set(pin{a.id.Public(), api.RolePeer, "l", "z"})
	b.mux.SetPeer(PeerConfig{Link: "l", Node: "z", Key: a.id.Public(), Streams: 1})
	lastError(t, a, `calls itself node "a"`, `for node "z"`, "(untrusted)")
}

func TestRemovedPinClosesTheSession(t *testing.T) {
	noLeaks(t)
	a, b := pair(t, api.EncryptionAEAD, 2, nil)
	a.rec.await(t, "up")
	b.rec.await(t, "up")
	b.mux.PinsChanged() // nothing changed
	b.pins.set()
	b.mux.PinsChanged()
	if e := b.rec.await(t, "down"); !isEnd(e.err, wire.CodeUntrusted, false) {
		t.Error(e.err)
	}
	if e := a.rec.await(t, "down"); !isEnd(e.err, wire.CodeUntrusted, true) {
		t.Error(e.err)
	}
	lastError(t, a, "refused our key")
	// Pinned again: it comes back by itself.
	trust(a, b)
	a.rec.await(t, "up")
}
