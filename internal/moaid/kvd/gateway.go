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
		list := []api.EngineSummary{}
		if err := d.own.call(r.Context(), func() {
			for _, name := range slices.Sorted(maps.Keys(d.engines)) {
				e := d.engines[name]
				list = append(list, api.EngineSummary{Name: name, EngineRole: e.reg.EngineRole, Ready: e.notReady() == "", Reason: e.notReady(), Draining: e.draining, Generation: e.generation, Stats: e.stats})
			}
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
