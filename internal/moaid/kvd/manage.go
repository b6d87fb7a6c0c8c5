package kvd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd/store"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// manageHandler serves the management API: what api.Routes lists, and nothing else.
func (d *Daemon) manageHandler() http.Handler {
	mux := http.NewServeMux()
	handlers := d.manageHandlers()
	for _, r := range api.Routes() {
		mux.Handle(r.Pattern(), handlers[r.Pattern()])
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		apiError(w, http.StatusNotFound, api.CodeUnknownPath, fmt.Sprintf("%s %s is not in version 1 of the management API", r.Method, r.URL.Path), "")
	})
	return mux
}

// manageHandlers has a handler for each of api.Routes, by its pattern.
func (d *Daemon) manageHandlers() map[string]http.Handler {
	const engineHTTP = "/v1/engines/{name}/http/"
	h := map[string]http.HandlerFunc{
		"GET /v1/status":                      d.getStatus,
		"GET /v1/trust/{name}":                d.getTrust,
		"PUT /v1/trust/{name}":                d.putTrust,
		"DELETE /v1/trust/{name}":             d.deleteTrust,
		"GET /v1/links/{name}":                d.getLink,
		"PUT /v1/links/{name}":                d.putLink,
		"DELETE /v1/links/{name}":             d.deleteLink,
		"PUT /v1/links/{name}/probes/{probe}": d.putProbe,
		"GET /v1/engines/{name}":              d.getEngine,
		"PUT /v1/engines/{name}":              d.putEngine,
		"DELETE /v1/engines/{name}":           d.deleteEngine,
		"PUT /v1/engines/{name}/drain":        d.putDrain,
		engineHTTP + "{path...}": func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("name")
			d.forwardTo(w, r, name, strings.Replace(engineHTTP, "{name}", name, 1))
		},
		"GET /v1/pairs/{name}":      d.getPair,
		"PUT /v1/pairs/{name}":      d.putPair,
		"DELETE /v1/pairs/{name}":   d.deletePair,
		"GET /v1/transfers":         d.getTransfers,
		"DELETE /v1/transfers/{id}": d.deleteTransfer,
		"GET /metrics":              promhttp.HandlerFor(d.metrics.reg, promhttp.HandlerOpts{}).ServeHTTP,
	}
	out := map[string]http.Handler{}
	for pattern, f := range h {
		out[pattern] = f
	}
	return out
}

// notFound answers a GET of what is not there.
func notFound(w http.ResponseWriter, kind, name string) {
	apiError(w, http.StatusNotFound, "not_found", fmt.Sprintf("there is no %s %q", kind, name), "")
}

// problem is an error with the answer that it deserves.
type problem struct {
	status int
	body   api.Error
}

func (p *problem) Error() string { return p.body.Error() }

func bad(attribute, format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, api.Error{Code: "bad_request", Message: fmt.Sprintf(format, args...), Attribute: attribute}}
}

func conflict(attribute, format string, args ...any) *problem {
	return &problem{http.StatusConflict, api.Error{Code: "conflict", Message: fmt.Sprintf(format, args...), Attribute: attribute}}
}

func tooMany(kind string, n int) *problem {
	return &problem{http.StatusConflict, api.Error{Code: "too_many", Message: fmt.Sprintf("there are %d %s already", n, kind)}}
}

func respond(w http.ResponseWriter, err error) {
	var p *problem
	if errors.As(err, &p) {
		writeError(w, p.status, &p.body)
		return
	}
	if errors.Is(err, errStopping) || errors.Is(err, context.Canceled) {
		apiError(w, http.StatusServiceUnavailable, "stopping", err.Error(), "")
		return
	}
	apiError(w, http.StatusInternalServerError, "internal", err.Error(), "")
}

// decode reads a JSON body strictly, and checks the name in the path.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	if name := r.PathValue("name"); !validName(name) {
		return bad("name", "%q is no name: 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit", name)
	}
	body := http.MaxBytesReader(w, r.Body, maxManageBody)
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return &problem{http.StatusRequestEntityTooLarge, api.Error{Code: "too_large", Message: "the body is longer than 1 MiB"}}
		}
		return bad("", "the body: %v", err)
	}
	if dec.More() {
		return bad("", "there is data after the JSON object")
	}
	_, err := io.Copy(io.Discard, body)
	if err != nil {
		return bad("", "the body: %v", err)
	}
	return nil
}

// named refuses a body whose name is not the path's.
func named(r *http.Request, name *string) error {
	if *name == "" {
		*name = r.PathValue("name")
	}
	if *name != r.PathValue("name") {
		return bad("name", "the body says %q, the path %q", *name, r.PathValue("name"))
	}
	return nil
}

// change stores a change and then applies it.
func (d *Daemon) change(edit func(*store.State) error, apply func(store.State)) error {
	return d.store.Update(edit, apply)
}

// owned runs f on the owner. The daemon's own lifetime bounds it: a stored
// change must be applied also when the client left.
func (d *Daemon) owned(f func()) {
	if err := d.own.call(d.ctx, f); err != nil {
		d.log.Debug("a change is applied at the next start", "reason", err)
	}
}

func (d *Daemon) putTrust(w http.ResponseWriter, r *http.Request) {
	var t api.Trust
	if err := d.trust(w, r, &t); err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, t)
}

func (d *Daemon) deleteTrust(w http.ResponseWriter, r *http.Request) {
	err := d.change(func(s *store.State) error { delete(s.Trust, r.PathValue("name")); return nil }, d.applyTrust)
	done(w, err)
}

func (d *Daemon) applyTrust(s store.State) {
	d.setPins(s)
	d.mux.PinsChanged()
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		respond(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *Daemon) getTrust(w http.ResponseWriter, r *http.Request) {
	if t, ok := d.store.Get().Trust[r.PathValue("name")]; ok {
		writeJSON(w, http.StatusOK, t)
		return
	}
	notFound(w, "trust entry", r.PathValue("name"))
}

func (d *Daemon) getPair(w http.ResponseWriter, r *http.Request) {
	if p, ok := d.store.Get().Pairs[r.PathValue("name")]; ok {
		writeJSON(w, http.StatusOK, p)
		return
	}
	notFound(w, "pair", r.PathValue("name"))
}

func (d *Daemon) deletePair(w http.ResponseWriter, r *http.Request) {
	err := d.change(func(s *store.State) error { delete(s.Pairs, r.PathValue("name")); return nil }, d.applyPairs)
	done(w, err)
}

func (d *Daemon) applyPairs(s store.State) {
	d.owned(func() {
		d.pairs = s.Pairs
		d.compat = compatCache{}
		d.recheck()
	})
}

func (d *Daemon) putPair(w http.ResponseWriter, r *http.Request) {
	var p api.Pair
	if err := d.pair(w, r, &p); err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, p)
}

func (d *Daemon) getTransfers(w http.ResponseWriter, r *http.Request) {
	list := []api.Transfer{}
	if err := d.own.call(r.Context(), func() { list = d.transfers() }); err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, list)
}

func (d *Daemon) deleteTransfer(w http.ResponseWriter, r *http.Request) {
	d.cancelRequest(w, r, "cancelled by management")
}

func (d *Daemon) cancelRequest(w http.ResponseWriter, r *http.Request, why string) {
	id, err := wire.ParseID(r.PathValue("id"))
	if err != nil {
		apiError(w, http.StatusBadRequest, "bad_request", err.Error(), "id")
		return
	}
	d.forwards.cancel(id.String())
	d.owned(func() { d.cancel(id, why) })
	w.WriteHeader(http.StatusNoContent)
}

func (d *Daemon) putProbe(w http.ResponseWriter, r *http.Request) {
	var p api.Probe
	if err := decode(w, r, &p); err != nil {
		respond(w, err)
		return
	}
	l, ok := d.store.Get().Links[r.PathValue("name")]
	switch {
	case !ok:
		notFound(w, "link", r.PathValue("name"))
		return
	case p.Bytes < 1 || p.Bytes > wire.MaxProbe:
		respond(w, bad("bytes", "bytes %d is outside 1 to %d", p.Bytes, wire.MaxProbe))
		return
	}
	res, err := d.mux.Probe(r.Context(), l.Peer, p.Bytes)
	if err != nil {
		// A link that cannot be probed is an answer, not a failed request.
		res = api.ProbeResult{Reason: err.Error(), Bytes: p.Bytes, Encryption: l.Encryption, Transport: l.Transport}
	}
	writeJSON(w, http.StatusOK, res)
}

// wait asks state until it is good or the time of ?wait= is over.
func wait(r *http.Request, good func() (bool, error)) error {
	limit := time.Duration(0)
	if v := r.URL.Query().Get("wait"); v != "" {
		var err error
		if limit, err = time.ParseDuration(v); err != nil || limit < 0 || limit > 10*time.Minute {
			return bad("wait", "wait=%q is no duration from 0 to 10m", v)
		}
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for {
		ok, err := good()
		if ok || err != nil || limit == 0 {
			return err
		}
		select {
		case <-every.C:
		case <-deadline.C:
			limit = 0
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}
