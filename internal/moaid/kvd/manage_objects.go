package kvd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd/store"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func (d *Daemon) trust(w http.ResponseWriter, r *http.Request, t *api.Trust) error {
	if err := decode(w, r, t); err != nil {
		return err
	}
	if err := named(r, &t.Name); err != nil {
		return err
	}
	if _, err := transport.ParseKey(t.PublicKey); err != nil {
		return bad("public_key", "%v", err)
	}
	switch {
	case t.Role != api.RolePeer && t.Role != api.RoleGateway:
		return bad("role", "role %q is neither peer nor gateway", t.Role)
	case t.Role == api.RolePeer && !validName(t.Node):
		return bad("node", "a peer's entry needs the name of its node, not %q", t.Node)
	}
	return d.change(func(s *store.State) error {
		if _, ok := s.Trust[t.Name]; !ok && len(s.Trust) >= maxTrust {
			return tooMany("trust entries", len(s.Trust))
		}
		for _, o := range s.Trust {
			if o.Name != t.Name && o.Role == api.RolePeer && t.Role == api.RolePeer && o.PublicKey == t.PublicKey && o.Node != t.Node {
				return conflict("public_key", "entry %q has this key for node %q: a key is one node's", o.Name, o.Node)
			}
		}
		s.Trust[t.Name] = *t
		return nil
	}, d.applyTrust)
}

func (d *Daemon) putLink(w http.ResponseWriter, r *http.Request) {
	var l api.Link
	err := decode(w, r, &l)
	if err == nil {
		err = named(r, &l.Name)
	}
	if err == nil {
		err = d.checkLink(&l)
	}
	if err == nil {
		err = d.change(func(s *store.State) error {
			for _, o := range s.Links {
				if o.Peer == l.Peer && o.Name != l.Name {
					return conflict("peer", "link %q leads to node %q already", o.Name, l.Peer)
				}
			}
			old, ok := s.Links[l.Name]
			if !ok && len(s.Links) >= maxLinks {
				return tooMany("links", len(s.Links))
			}
			if ok && old.Peer != l.Peer {
				return conflict("peer", "link %q leads to node %q; remove it first", l.Name, old.Peer)
			}
			s.Links[l.Name] = l
			return nil
		}, func(store.State) { //nolint:contextcheck // a link outlives the request
			d.owned(func() { d.links[l.Peer] = l })
			d.connect(l)
		})
	}
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, d.linkStatus(l))
}

func (d *Daemon) checkLink(l *api.Link) error {
	if _, err := transport.ParseKey(l.PeerKey); err != nil {
		return bad("peer_key", "%v", err)
	}
	if l.Transport == "" {
		l.Transport = "tcp"
	}
	switch {
	case !validName(l.Peer):
		return bad("peer", "peer %q is no node name", l.Peer)
	case l.Peer == d.cfg.Node:
		return bad("peer", "a node needs no link to itself")
	case l.Dial && len(l.Addresses) == 0:
		return bad("addresses", "the dialling end needs an address of the peer")
	case len(l.Addresses) > 16:
		return bad("addresses", "there are more than 16 addresses")
	case l.Transport != "tcp":
		return bad("transport", "transport %q is not known here, only tcp", l.Transport)
	case l.Encryption != api.EncryptionAEAD && l.Encryption != api.EncryptionNone:
		return bad("encryption", "encryption %q is neither aead nor none", l.Encryption)
	case l.Streams < 1 || l.Streams > wire.MaxStreams:
		return bad("streams", "streams %d is outside 1 to %d", l.Streams, wire.MaxStreams)
	}
	for _, a := range l.Addresses {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return bad("addresses", "%q is no host:port", a)
		}
	}
	return nil
}

// connect tells the transport of a link. Not on the owner: the transport waits
// for sessions to end, and they for the owner.
func (d *Daemon) connect(l api.Link) {
	key, err := transport.ParseKey(l.PeerKey)
	if err != nil {
		d.log.Error("the key of a link cannot be read", "link", l.Name, "error", err)
		return
	}
	d.mux.SetPeer(transport.PeerConfig{Link: l.Name, Node: l.Peer, Key: key, Addresses: l.Addresses, Dial: l.Dial, Encryption: l.Encryption, Streams: l.Streams})
}

func (d *Daemon) deleteLink(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	var peer string
	err := d.change(func(s *store.State) error {
		peer = s.Links[name].Peer
		delete(s.Links, name)
		return nil
	}, func(store.State) {
		if peer != "" {
			d.owned(func() { delete(d.links, peer) })
			d.mux.RemovePeer(peer)
		}
	})
	done(w, err)
}

func (d *Daemon) linkStatus(l api.Link) api.LinkStatus {
	s := d.mux.Status(l.Name)
	out := api.LinkStatus{Link: l, Up: s.Up, LastError: s.LastError, Address: s.Address, RTTMicros: s.RTT.Microseconds(), BytesSent: s.BytesSent, BytesReceived: s.BytesReceived}
	if !s.Since.IsZero() {
		out.SinceSeconds = now().Sub(s.Since).Seconds()
	}
	return out
}

func (d *Daemon) getLink(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	var st api.LinkStatus
	err := wait(r, func() (bool, error) {
		l, ok := d.store.Get().Links[name]
		if !ok {
			return false, &problem{http.StatusNotFound, api.Error{Code: "not_found", Message: fmt.Sprintf("there is no link %q", name)}}
		}
		st = d.linkStatus(l)
		return st.Up, nil
	})
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, st)
}

func (d *Daemon) pair(w http.ResponseWriter, r *http.Request, p *api.Pair) error {
	if err := decode(w, r, p); err != nil {
		return err
	}
	if err := named(r, &p.Name); err != nil {
		return err
	}
	for _, side := range []struct {
		attribute string
		list      []api.PeerEngine
	}{{"prefill", p.Prefill}, {"decode", p.Decode}} {
		if len(side.list) == 0 || len(side.list) > 256 {
			return bad(side.attribute, "%s needs 1 to 256 engines", side.attribute)
		}
		for _, e := range side.list {
			if !validName(e.Node) || !validName(e.Engine) {
				return bad(side.attribute, "%q names no engine of a node", peerName(e.Node, e.Engine))
			}
		}
	}
	return d.change(func(s *store.State) error {
		if _, ok := s.Pairs[p.Name]; !ok && len(s.Pairs) >= maxPairs {
			return tooMany("pairs", len(s.Pairs))
		}
		s.Pairs[p.Name] = *p
		return nil
	}, d.applyPairs)
}

func (d *Daemon) putEngine(w http.ResponseWriter, r *http.Request) {
	var e api.Engine
	err := decode(w, r, &e)
	if err == nil {
		err = named(r, &e.Name)
	}
	if err == nil {
		if attribute, cerr := checkEngine(e); cerr != nil {
			err = bad(attribute, "%v", cerr)
		}
	}
	if err == nil {
		err = d.change(func(s *store.State) error {
			if _, ok := s.Engines[e.Name]; !ok && len(s.Engines) >= maxEngines {
				return tooMany("engines", len(s.Engines))
			}
			s.Engines[e.Name] = e
			return nil
		}, func(store.State) { d.owned(func() { d.register(e) }) }) //nolint:contextcheck // an engine outlives the request
	}
	if err != nil {
		respond(w, err)
		return
	}
	d.answerEngine(r.Context(), w, e.Name)
}

// register makes an engine known, or follows a change. A change of what its
// sessions were admitted by, or told, closes them: they come back.
func (d *Daemon) register(reg api.Engine) {
	e := d.engines[reg.Name]
	if e != nil && reflect.DeepEqual(e.reg, reg) {
		return
	}
	draining := false
	if e != nil && (e.format.hash != reg.Fingerprint.Hash() || len(e.replicas) != replicas(reg)) {
		draining = e.draining
		d.dismiss(e, "the engine was registered anew with another fingerprint or data_size")
		e = nil
	}
	if e == nil {
		e = newEngine(reg)
		e.draining = draining
		d.engines[reg.Name] = e
		d.startProbe(e)
		d.changed()
		return
	}
	old := e.reg
	e.reg, e.refused = reg, refusal{}
	e.budget.SetLimit(ingestLimit(reg))
	if old.UID != reg.UID || old.Unit != reg.Unit || old.OnTransferFailure != reg.OnTransferFailure {
		for _, s := range e.sessions() {
			s.close()
		}
	}
	if old.HTTPSocket != reg.HTTPSocket {
		d.startProbe(e)
	}
	d.changed()
}

func (d *Daemon) startProbe(e *engine) {
	if e.stopProbe != nil {
		e.stopProbe()
	}
	e.http, e.stopProbe = "", nil
	if socket := e.reg.HTTPSocket; socket != "" {
		e.http = "not asked yet"
		ctx, cancel := context.WithCancel(d.ctx)
		e.stopProbe = cancel
		d.background(func() { d.probeHTTP(ctx, e, socket) })
	}
}

// dismiss ends an engine here: its transfers, its sessions and, when the last
// page is free, its arenas.
func (d *Daemon) dismiss(e *engine, why string) {
	d.endEngine(e, why)
	for _, s := range e.sessions() {
		s.close()
	}
	if e.stopProbe != nil {
		e.stopProbe()
	}
	for _, a := range e.arenas() {
		a.Retire()
	}
	e.gone = true
	for _, r := range e.replicas {
		r.sched = nil
		clear(r.workers)
	}
	delete(d.engines, e.reg.Name)
	delete(d.ready, e.reg.Name)
}

func (d *Daemon) deleteEngine(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	err := d.change(func(s *store.State) error {
		delete(s.Engines, name)
		delete(s.Draining, name)
		return nil
	}, func(store.State) {
		d.owned(func() {
			if e := d.engines[name]; e != nil {
				d.dismiss(e, "the engine was removed")
				d.changed()
			}
		})
	})
	done(w, err)
}

func (d *Daemon) putDrain(w http.ResponseWriter, r *http.Request) {
	var v api.Drain
	if err := decode(w, r, &v); err != nil {
		respond(w, err)
		return
	}
	name := r.PathValue("name")
	err := d.change(func(s *store.State) error {
		if _, ok := s.Engines[name]; !ok {
			return &problem{http.StatusNotFound, api.Error{Code: "not_found", Message: fmt.Sprintf("there is no engine %q", name)}}
		}
		delete(s.Draining, name)
		if v.Draining {
			s.Draining[name] = true
		}
		return nil
	}, func(store.State) {
		d.owned(func() {
			if e := d.engines[name]; e != nil {
				e.draining = v.Draining
			}
		})
	})
	if err != nil {
		respond(w, err)
		return
	}
	d.answerEngine(r.Context(), w, name)
}

func (d *Daemon) engineStatus(ctx context.Context, name string) (api.EngineStatus, error) {
	var st api.EngineStatus
	found := false
	err := d.own.call(ctx, func() {
		if e := d.engines[name]; e != nil {
			found, st = true, e.status(d.own.now(), d.compatibilityOf(e))
		}
	})
	if err == nil && !found {
		err = &problem{http.StatusNotFound, api.Error{Code: "not_found", Message: fmt.Sprintf("there is no engine %q", name)}}
	}
	return st, err
}

func (d *Daemon) answerEngine(ctx context.Context, w http.ResponseWriter, name string) {
	st, err := d.engineStatus(ctx, name)
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, st)
}

func (d *Daemon) getEngine(w http.ResponseWriter, r *http.Request) {
	var st api.EngineStatus
	ctx, name := r.Context(), r.PathValue("name")
	err := wait(r, func() (bool, error) {
		var err error
		st, err = d.engineStatus(ctx, name)
		return st.Ready, err
	})
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, st)
}

// fingerprintDifference names the attributes that differ.
func fingerprintDifference(registered, reported kvcache.Fingerprint) string {
	var parts []string
	for _, d := range kvcache.Differences(registered, reported) {
		parts = append(parts, fmt.Sprintf("%s is registered as %s and reported as %s", d.Attribute, cmp.Or(d.A, "nothing"), cmp.Or(d.B, "nothing")))
	}
	return clip(strings.Join(parts, ", "))
}
