package gateway

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

// Health is the answer to GET /health.
type Health struct {
	// Status is "ok" if every model is served by prefill and decode, "degraded"
	// if something is served, "down" if nothing is, "stopping" at shutdown.
	Status string        `json:"status"`
	Router string        `json:"router"`
	Models []ModelHealth `json:"models"`
}

// ModelHealth says how requests for a model would be served now.
type ModelHealth struct {
	Model  string       `json:"model"`
	Route  string       `json:"route"`            // pd | decode-only | none
	Reason string       `json:"reason,omitempty"` // why it is not pd
	Pairs  []PairHealth `json:"pairs"`
}

// PairHealth is a pair's engines.
type PairHealth struct {
	Name    string         `json:"name"`
	Prefill []EngineHealth `json:"prefill"`
	Decode  []EngineHealth `json:"decode"`
}

// EngineHealth is an engine as the router sees it.
type EngineHealth struct {
	Node        string `json:"node"`
	Engine      string `json:"engine"`
	State       string `json:"state"` // unknown | down | absent | not_ready | draining | ready | circuit_open
	Reason      string `json:"reason,omitempty"`
	Outstanding int    `json:"outstanding"`
	Waiting     int    `json:"waiting"`
}

// health gives the picture at now.
func (f *fleet) health(now time.Time) (status string, models []ModelHealth) {
	f.mu.Lock()
	defer f.mu.Unlock()
	full, some := true, false
	for _, name := range f.models {
		m := ModelHealth{Model: name, Route: routePD}
		c := route.Choose(now, f.pools[name], true, nil)
		switch {
		case c.Decode == nil:
			m.Route, m.Reason = routeNone, "no decode engine is ready"
		case c.Prefill == nil:
			m.Route, m.Reason = routeDecodeOnly, c.Reason
		}
		full = full && m.Route == routePD
		some = some || m.Route != routeNone
		for _, p := range f.pools[name] {
			m.Pairs = append(m.Pairs, PairHealth{Name: p.Name, Prefill: engineHealth(now, p.Prefill), Decode: engineHealth(now, p.Decode)})
		}
		models = append(models, m)
	}
	switch {
	case full:
		return "ok", models
	case some:
		return "degraded", models
	}
	return "down", models
}

func engineHealth(now time.Time, es []*route.Engine) []EngineHealth {
	out := make([]EngineHealth, 0, len(es))
	for _, e := range es {
		s, reason := e.State()
		h := EngineHealth{Node: e.Node, Engine: e.Engine, State: s.String(), Reason: reason, Outstanding: e.Outstanding, Waiting: e.Waiting}
		if s == route.Ready && e.Tripped(now) {
			h.State, h.Reason = "circuit_open", "requests to it failed several times in a row"
		}
		out = append(out, h)
	}
	return out
}

// serveHealth answers 200 if at least one request could be served.
func (g *Gateway) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := Health{Router: g.cfg.Name}
	h.Status, h.Models = g.fleet.health(time.Now())
	status := http.StatusOK
	if g.stopping.Load() {
		h.Status = "stopping"
	}
	if h.Status == "down" || h.Status == "stopping" {
		status = http.StatusServiceUnavailable
	}
	g.reply(w, status, h)
}

// modelCard is a model as OpenAI's API shows it.
type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (g *Gateway) card(model string) modelCard {
	return modelCard{model, "model", g.started.Unix(), "moai"}
}

// serveModel shows one model.
func (g *Gateway) serveModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if g.fleet.pools[id] == nil {
		g.refuse(w, *unknownModel(id))
		return
	}
	g.reply(w, http.StatusOK, g.card(id))
}

// serveModels lists what clients may write as "model".
func (g *Gateway) serveModels(w http.ResponseWriter, _ *http.Request) {
	list := struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{Object: "list", Data: []modelCard{}}
	for _, m := range g.fleet.models {
		list.Data = append(list.Data, g.card(m))
	}
	g.reply(w, http.StatusOK, list)
}

// reply writes v as JSON.
func (g *Gateway) reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = writeJSON(w, status, b)
	}
	if err != nil {
		g.log.Debug("an answer was not delivered", "err", err)
	}
}
