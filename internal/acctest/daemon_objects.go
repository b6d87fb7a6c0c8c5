package acctest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// maxBody bounds a request, in bytes.
const maxBody = 1 << 20

// problem is a refusal.
type problem struct {
	status int
	api.Error
}

func bad(attribute, format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, api.Error{Code: "bad_request", Message: fmt.Sprintf(format, args...), Attribute: attribute}}
}

func conflict(attribute, format string, args ...any) *problem {
	return &problem{http.StatusConflict, api.Error{Code: "conflict", Message: fmt.Sprintf(format, args...), Attribute: attribute}}
}

func absent(kind, name string) *problem {
	return &problem{http.StatusNotFound, api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no %s %q", kind, name)}}
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(api.ErrorBody{Error: p.Error}) // the client sees a cut answer
}

// decode reads a body strictly, and checks the name in the path.
func decode(w http.ResponseWriter, r *http.Request, into any) *problem {
	if name := r.PathValue("name"); !fleet.ValidName(name) {
		return bad("name", "%q is no name", name)
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return &problem{http.StatusRequestEntityTooLarge, api.Error{Code: "too_large", Message: "the body is longer than 1 MiB"}}
		}
		return bad("", "the body: %v", err)
	}
	if dec.More() {
		return bad("", "there is data after the JSON object")
	}
	return nil
}

// kind is what the API does with one kind of object.
type kind[T any] struct {
	path, word string
	all        func() map[string]T    // with the lock held
	name       func(*T) *string       // the field
	check      func(v *T) *problem    // with the lock held
	show       func(v T) (answer any) // without it
}

// objects adds the paths of all kinds.
func (d *Daemon) objects(mux *http.ServeMux) {
	serve(d, mux, kind[api.Trust]{
		path: "trust", word: "trust entry", all: func() map[string]api.Trust { return d.trust },
		name: func(t *api.Trust) *string { return &t.Name }, check: d.checkTrust, show: func(t api.Trust) any { return t },
	})
	serve(d, mux, kind[api.Link]{
		path: "links", word: "link", all: func() map[string]api.Link { return d.links },
		name: func(l *api.Link) *string { return &l.Name }, check: d.checkLink, show: func(l api.Link) any { return d.linkStatus(l) },
	})
	serve(d, mux, kind[api.Engine]{
		path: "engines", word: "engine", all: func() map[string]api.Engine { return d.engines },
		name: func(e *api.Engine) *string { return &e.Name }, check: checkEngine, show: func(e api.Engine) any {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.engineStatus(e)
		},
	})
	serve(d, mux, kind[api.Pair]{
		path: "pairs", word: "pair", all: func() map[string]api.Pair { return d.pairs },
		name: func(p *api.Pair) *string { return &p.Name }, check: checkPair, show: func(p api.Pair) any { return p },
	})
}

func serve[T any](d *Daemon, mux *http.ServeMux, k kind[T]) {
	at := " /v1/" + k.path + "/{name}"
	mux.HandleFunc("GET"+at, func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		v, ok := k.all()[r.PathValue("name")]
		d.mu.Unlock()
		if !ok {
			absent(k.word, r.PathValue("name")).write(w)
			return
		}
		answer(w, k.show(v))
	})
	mux.HandleFunc("DELETE"+at, func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.remove(k.path, r.PathValue("name"))
		d.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("PUT"+at, func(w http.ResponseWriter, r *http.Request) {
		var v T
		p := decode(w, r, &v)
		if p == nil {
			p = put(d, k, r.PathValue("name"), &v)
		}
		if p != nil {
			p.write(w)
			return
		}
		answer(w, k.show(v))
	})
}

// put stores an object; one without a name gets that of its path.
func put[T any](d *Daemon, k kind[T], name string, v *T) *problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	field := k.name(v)
	if *field == "" {
		*field = name
	}
	if *field != name {
		return bad("name", "the body says %q, the path %q", *field, name)
	}
	if p := k.check(v); p != nil {
		return p
	}
	k.all()[name] = *v
	return nil
}

func isKey(s string) bool {
	text, ok := strings.CutPrefix(s, "ed25519:")
	b, err := base64.StdEncoding.DecodeString(text)
	return ok && err == nil && len(b) == ed25519.PublicKeySize
}

func (d *Daemon) checkTrust(t *api.Trust) *problem {
	switch {
	case !isKey(t.PublicKey):
		return bad("public_key", "%q is no public key", t.PublicKey)
	case t.Role != api.RolePeer && t.Role != api.RoleGateway:
		return bad("role", "role %q is neither peer nor gateway", t.Role)
	case t.Role == api.RolePeer && !fleet.ValidName(t.Node):
		return bad("node", "a peer's entry needs the name of its node, not %q", t.Node)
	}
	for _, o := range d.trust {
		if o.Name != t.Name && o.Role == api.RolePeer && t.Role == api.RolePeer && o.PublicKey == t.PublicKey && o.Node != t.Node {
			return conflict("public_key", "entry %q has this key for node %q", o.Name, o.Node)
		}
	}
	return nil
}

func (d *Daemon) checkLink(l *api.Link) *problem {
	if l.Transport == "" {
		l.Transport = "tcp"
	}
	switch {
	case !isKey(l.PeerKey):
		return bad("peer_key", "%q is no public key", l.PeerKey)
	case !fleet.ValidName(l.Peer) || l.Peer == d.node:
		return bad("peer", "peer %q is no other node", l.Peer)
	case l.Dial && len(l.Addresses) == 0 || len(l.Addresses) > 16:
		return bad("addresses", "there are %d addresses", len(l.Addresses))
	case l.Transport != "tcp":
		return bad("transport", "transport %q is not known", l.Transport)
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
	for _, o := range d.links {
		if (o.Name == l.Name) != (o.Peer == l.Peer) {
			return conflict("peer", "link %q leads to node %q", o.Name, o.Peer)
		}
	}
	return nil
}

func checkEngine(e *api.Engine) *problem {
	if err := e.Fingerprint.Validate(); err != nil {
		return bad("fingerprint", "fingerprint: %v", err)
	}
	switch {
	case !slices.Contains([]string{"prefill", "decode", "both"}, e.EngineRole):
		return bad("role", "role %q is none of prefill, decode, both", e.EngineRole)
	case e.StagingBytes < 1 || e.StagingBytes > 1<<50:
		return bad("staging_bytes", "staging_bytes is %d", e.StagingBytes)
	case e.DataSize < 0 || e.DataSize > enginesock.MaxReplicas:
		return bad("data_size", "data_size %d is outside 0 to %d", e.DataSize, enginesock.MaxReplicas)
	case e.MaxInFlight < 0:
		return bad("max_in_flight", "max_in_flight %d is negative", e.MaxInFlight)
	case e.HTTPSocket != "" && (e.HTTPSocket[0] != '/' || len(e.HTTPSocket) > 107):
		return bad("http_socket", "http_socket %q is no absolute path of at most 107 bytes", e.HTTPSocket)
	case e.UID < 0 || e.UID > 1<<32-2:
		return bad("uid", "uid %d is none", e.UID)
	case len(e.Unit) > 255:
		return bad("unit", "unit is longer than 255 bytes")
	case !slices.Contains([]string{"", "recompute", "fail"}, e.OnTransferFailure):
		return bad("on_transfer_failure", "on_transfer_failure %q is neither recompute nor fail", e.OnTransferFailure)
	}
	return nil
}

func checkPair(p *api.Pair) *problem {
	for side, list := range map[string][]api.PeerEngine{"prefill": p.Prefill, "decode": p.Decode} {
		if len(list) == 0 || len(list) > 256 {
			return bad(side, "%s needs 1 to 256 engines", side)
		}
		for _, e := range list {
			if !fleet.ValidName(e.Node) || !fleet.ValidName(e.Engine) {
				return bad(side, "%s/%s names no engine of a node", e.Node, e.Engine)
			}
		}
	}
	return nil
}
