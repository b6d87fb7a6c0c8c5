package acctest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// ServeHTTP is the management API. A connection from before the daemon was stopped is told so.
func (d *Daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	running := d.running
	if running && r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/http/") {
		d.writes = append(d.writes, r.Method+" "+r.URL.Path)
	}
	d.mu.Unlock()
	if !running {
		refuse(w, http.StatusServiceUnavailable, "stopping", "the daemon is stopping")
		return
	}
	d.mux.ServeHTTP(w, r)
}

// routes are the paths of the API. What GET is asked to wait for is answered as it is: nothing here comes by itself.
func (d *Daemon) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, d.status()) })
	mux.HandleFunc("GET /v1/transfers", func(w http.ResponseWriter, _ *http.Request) {
		list := []api.Transfer{}
		if d.TransferList != nil {
			list = append(list, d.TransferList()...)
		}
		answer(w, list)
	})
	mux.HandleFunc("DELETE /v1/transfers/{id}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := wire.ParseID(r.PathValue("id")); err != nil {
			bad("id", "%v", err).write(w)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE moai_up gauge\nmoai_up 1\n") // the client sees a cut answer
	})
	mux.HandleFunc("/v1/engines/{name}/http/{path...}", d.forward)
	mux.HandleFunc("PUT /v1/engines/{name}/drain", d.drain)
	mux.HandleFunc("PUT /v1/links/{name}/probes/{probe}", d.probe)
	d.objects(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, api.CodeUnknownPath, r.Method+" "+r.URL.Path+" is not in version 1 of the management API")
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client sees a cut answer
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ErrorBody{Error: api.Error{Code: code, Message: message}}) // as above
}

func (d *Daemon) status() api.Status {
	s := api.Status{PublicKey: d.PublicKey(), Transfers: map[string]int{},
		Trust: []api.Trust{}, Links: []api.LinkStatus{}, Engines: []api.EngineStatus{}, Pairs: []api.Pair{}}
	d.mu.Lock()
	s.Node, s.ContentSHA256, s.Listen, s.Instance = d.node, d.binary, d.listen, d.instance
	links := sorted(d.links)
	s.Trust, s.Pairs = append(s.Trust, sorted(d.trust)...), append(s.Pairs, sorted(d.pairs)...)
	for _, e := range sorted(d.engines) {
		s.Engines = append(s.Engines, d.engineStatus(e))
	}
	d.mu.Unlock()
	for _, l := range links {
		s.Links = append(s.Links, d.linkStatus(l))
	}
	return s
}

// sorted are the objects in the order of their names.
func sorted[T any](m map[string]T) []T {
	var out []T
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// engineStatus is called with the lock held.
func (d *Daemon) engineStatus(e api.Engine) api.EngineStatus {
	s := api.EngineStatus{Engine: e, Ready: true, Draining: d.drained[e.Name], StagingFree: e.StagingBytes, Generation: "1"}
	if d.EngineReady != nil {
		s.Ready, s.Reason = d.EngineReady(e)
	}
	if d.EngineRefused != nil && !s.Ready {
		s.Refused = d.EngineRefused(e)
	}
	return s
}

func (d *Daemon) probe(w http.ResponseWriter, r *http.Request) {
	var p api.Probe
	if err := decode(w, r, &p); err != nil {
		err.write(w)
		return
	}
	d.mu.Lock()
	l, ok := d.links[r.PathValue("name")]
	d.probes++
	d.mu.Unlock()
	switch {
	case !ok:
		absent("link", r.PathValue("name")).write(w)
	case p.Bytes < 1 || p.Bytes > wire.MaxProbe:
		bad("bytes", "bytes %d is outside 1 to %d", p.Bytes, wire.MaxProbe).write(w)
	default:
		s := d.linkStatus(l)
		answer(w, api.ProbeResult{OK: s.Up, Reason: s.LastError, Bytes: p.Bytes, Seconds: 0.01, Encryption: l.Encryption, Transport: l.Transport})
	}
}

func (d *Daemon) drain(w http.ResponseWriter, r *http.Request) {
	var b api.Drain
	if err := decode(w, r, &b); err != nil {
		err.write(w)
		return
	}
	name := r.PathValue("name")
	d.mu.Lock()
	e, ok := d.engines[name]
	var s api.EngineStatus
	if ok {
		d.drained[name] = b.Draining
		s = d.engineStatus(e)
	}
	d.mu.Unlock()
	if !ok {
		absent("engine", name).write(w)
		return
	}
	answer(w, s)
}

func (d *Daemon) forward(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	d.mu.Lock()
	_, ok := d.engines[name]
	h := d.EngineHTTP
	d.mu.Unlock()
	switch {
	case !ok:
		absent("engine", name).write(w)
	case h == nil:
		refuse(w, http.StatusBadGateway, "engine_unreachable", "engine "+name+" does not answer")
	default:
		r2 := r.Clone(r.Context())
		r2.URL.Path = "/" + r.PathValue("path")
		r2.Header.Set("X-Test-Engine", name)
		h.ServeHTTP(w, r2)
	}
}
