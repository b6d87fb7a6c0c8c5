package acctest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
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
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 2 || parts[0] != "v0" {
		refuse(w, http.StatusNotFound, api.CodeUnknownPath, "no such path")
		return
	}
	switch {
	case parts[1] == "status" && len(parts) == 2:
		answer(w, d.status())
	case parts[1] == "transfers" && len(parts) == 2:
		list := []api.Transfer{}
		if d.TransferList != nil {
			list = d.TransferList()
		}
		answer(w, list)
	case len(parts) >= 5 && parts[1] == "engines" && parts[3] == "http":
		d.forward(w, r, parts[2], "/"+strings.Join(parts[4:], "/"))
	case len(parts) == 4 && parts[1] == "engines" && parts[3] == "drain":
		d.drain(w, r, parts[2])
	case len(parts) == 5 && parts[1] == "links" && parts[3] == "probes":
		d.probe(w, r, parts[2])
	case len(parts) == 3:
		d.object(w, r, parts[1], parts[2])
	default:
		refuse(w, http.StatusNotFound, api.CodeUnknownPath, "no such path")
	}
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
	s := api.Status{PublicKey: d.PublicKey()}
	d.mu.Lock()
	s.Node, s.ContentSHA256, s.Listen = d.node, d.binary, d.listen
	var links []api.Link
	for _, l := range d.links {
		links = append(links, l)
	}
	for _, t := range d.trust {
		s.Trust = append(s.Trust, t)
	}
	for _, e := range d.engines {
		s.Engines = append(s.Engines, d.engineStatus(e))
	}
	for _, p := range d.pairs {
		s.Pairs = append(s.Pairs, p)
	}
	d.mu.Unlock()
	for _, l := range links {
		s.Links = append(s.Links, d.linkStatus(l))
	}
	return s
}

// engineStatus is called with the lock held.
func (d *Daemon) engineStatus(e api.Engine) api.EngineStatus {
	s := api.EngineStatus{Engine: e, Ready: true, Draining: d.drained[e.Name], StagingFree: e.StagingBytes, Generation: "1"}
	if d.EngineReady != nil {
		s.Ready, s.Reason = d.EngineReady(e)
	}
	return s
}

func (d *Daemon) object(w http.ResponseWriter, r *http.Request, kind, name string) {
	switch r.Method {
	case http.MethodDelete:
		d.mu.Lock()
		d.remove(kind, name)
		d.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = d.put(kind, name, body)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
	}
	d.get(w, kind, name)
}

func (d *Daemon) put(kind, name string, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch kind {
	case "trust":
		return store(d.trust, name, body)
	case "links":
		return store(d.links, name, body)
	case "engines":
		return store(d.engines, name, body)
	case "pairs":
		return store(d.pairs, name, body)
	}
	return nil
}

func store[T any](m map[string]T, name string, body []byte) error {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	m[name] = v
	return nil
}

func (d *Daemon) get(w http.ResponseWriter, kind, name string) {
	d.mu.Lock()
	trust, isTrust := d.trust[name]
	link, isLink := d.links[name]
	engine, isEngine := d.engines[name]
	pair, isPair := d.pairs[name]
	var es api.EngineStatus
	if isEngine {
		es = d.engineStatus(engine)
	}
	d.mu.Unlock()
	switch {
	case kind == "trust" && isTrust:
		answer(w, trust)
	case kind == "links" && isLink:
		answer(w, d.linkStatus(link))
	case kind == "engines" && isEngine:
		answer(w, es)
	case kind == "pairs" && isPair:
		answer(w, pair)
	default:
		refuse(w, http.StatusNotFound, api.CodeNotFound, "there is no "+name)
	}
}

func (d *Daemon) probe(w http.ResponseWriter, r *http.Request, link string) {
	var p api.Probe
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	d.mu.Lock()
	l, ok := d.links[link]
	d.probes++
	d.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, api.CodeNotFound, "there is no link "+link)
		return
	}
	s := d.linkStatus(l)
	answer(w, api.ProbeResult{OK: s.Up, Reason: s.LastError, Bytes: p.Bytes, Seconds: 0.01, Encryption: l.Encryption, Transport: l.Transport})
}

func (d *Daemon) drain(w http.ResponseWriter, r *http.Request, name string) {
	var b api.Drain
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	d.mu.Lock()
	d.drained[name] = b.Draining
	d.mu.Unlock()
	d.get(w, "engines", name)
}

func (d *Daemon) forward(w http.ResponseWriter, r *http.Request, name, path string) {
	d.mu.Lock()
	_, ok := d.engines[name]
	h := d.EngineHTTP
	d.mu.Unlock()
	if !ok || h == nil {
		refuse(w, http.StatusBadGateway, "engine_unreachable", "engine "+name+" does not answer")
		return
	}
	r2 := r.Clone(r.Context())
	r2.URL.Path = path
	r2.Header.Set("X-Test-Engine", name)
	h.ServeHTTP(w, r2)
}
