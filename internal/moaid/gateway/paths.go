package gateway

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// handler routes by path and method.
func (g *Gateway) handler() http.Handler {
	mux := http.NewServeMux()
	serve := func(method, path string, h http.HandlerFunc) {
		mux.HandleFunc(method+" "+path, h)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			g.refuse(w, failure{http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s, not %s", r.URL.Path, method, r.Method), kindRequest, "", "method_not_allowed"})
		})
	}
	serve(http.MethodPost, "/v1/completions", g.serveCompletion)
	serve(http.MethodPost, "/v1/chat/completions", g.serveCompletion)
	serve(http.MethodGet, "/v1/models", g.serveModels)
	serve(http.MethodGet, "/v1/models/{id...}", g.serveModel)
	for _, path := range []string{"/health", "/healthz", "/readyz"} {
		serve(http.MethodGet, path, g.serveHealth)
	}
	serve(http.MethodGet, "/metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.refuse(w, failure{http.StatusNotFound, r.Method + " " + r.URL.Path + " is not served by this router", kindRequest, "", "unknown_path"})
	})
	return mux
}

// refuse answers a request that is no completion.
func (g *Gateway) refuse(w http.ResponseWriter, f failure) {
	if err := writeJSON(w, f.status, f.body()); err != nil {
		g.log.Debug("an answer was not delivered", "err", err)
	}
}

// unknownModel is the failure of a request that names a model of nobody's.
func unknownModel(model string) *failure {
	return &failure{http.StatusNotFound, fmt.Sprintf("the model %q does not exist; GET /v1/models lists those that do", model), kindRequest, "model", "model_not_found"}
}
