package kvd

import (
	"maps"
	"net/http"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// gatewayHandler serves moai-http/1, to keys that are pinned as gateways.
func (d *Daemon) gatewayHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, r *http.Request) {
		var list []api.EngineSummary
		if err := d.own.call(r.Context(), func() {
			list = d.summaries()
		}); err != nil {
			respond(w, err)
			return
		}
		writeJSON(w, http.StatusOK, list)
	})
	mux.HandleFunc("/engines/{name}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		d.forwardTo(w, r, name, "/engines/"+name+"/")
	})
	mux.HandleFunc("DELETE /transfers/{id}", func(w http.ResponseWriter, r *http.Request) {
		d.cancelRequest(w, r, "the client has left")
	})
	return mux
}

// summaries is what gateways see of the engines.
func (d *Daemon) summaries() []api.EngineSummary {
	now, ending := d.own.now(), d.ending()
	peers := slices.AppendSeq([]string{}, maps.Keys(d.peers)) // empty is not the same as missing
	slices.Sort(peers)
	list := []api.EngineSummary{}
	for _, name := range slices.Sorted(maps.Keys(d.engines)) {
		e := d.engines[name]
		why := e.notReady()
		if ending {
			why = errStopping.Error()
		}
		list = append(list, api.EngineSummary{Name: name, EngineRole: e.reg.EngineRole, Ready: why == "", Reason: why, Draining: e.draining, Stopping: ending,
			Generation: e.generation(), Stats: e.load(now), Peers: peers})
	}
	return list
}
