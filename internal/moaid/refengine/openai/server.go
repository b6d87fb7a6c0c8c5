package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// maxBody bounds a request's body in bytes.
const maxBody = 8 << 20

// Engine is what the server needs of an engine.
type Engine interface {
	Fits(prompt, maxTokens int) error
	Submit(*sched.Request) error
	Abort(*sched.Request)
	// Health is nil when the engine is ready.
	Health() error
}

// Server answers HTTP requests.
type Server struct {
	engine Engine
	model  string
	maxLen int
	reg    *prometheus.Registry
	log    *slog.Logger
	newID  func() string
}

// New makes a server of an engine that runs model with maxLen positions.
func New(engine Engine, model string, maxLen int, reg *prometheus.Registry, log *slog.Logger, newID func() string) *Server {
	return &Server{engine: engine, model: model, maxLen: maxLen, reg: reg, log: log, newID: newID}
}

// Handler serves all endpoints.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) })
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /health", s.health)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "invalid_request_error", fmt.Sprintf("There is no %s %s here.", r.Method, r.URL.Path), "")
	})
	return mux
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []map[string]any{
		{"id": s.model, "object": "model", "created": 0, "owned_by": "moai", "max_model_len": s.maxLen},
	}})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if err := s.engine.Health(); err != nil {
		writeError(w, http.StatusServiceUnavailable, "unavailable", err.Error(), "")
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// complete answers a completion of either kind.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	var b body
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			writeError(w, http.StatusRequestEntityTooLarge, "invalid_request_error", fmt.Sprintf("The body is longer than %d bytes.", maxBody), "")
		}
		return
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", fmt.Sprintf("The body is not a valid request: %v.", err), "")
		return
	}
	j, err := b.job(chat, s.model)
	if err == nil {
		if ferr := s.engine.Fits(len(j.prompt), j.params.MaxTokens); ferr != nil {
			err = &fault{fmt.Sprintf("This request does not fit: %v.", ferr), "max_tokens"}
		}
	}
	var f *fault
	if errors.As(err, &f) {
		status := http.StatusBadRequest
		if f.param == "model" {
			status = http.StatusNotFound
		}
		writeError(w, status, "invalid_request_error", f.message, f.param)
		return
	}
	req := sched.NewRequest(s.newID(), j.prompt, j.params)
	if err := s.engine.Submit(req); err != nil {
		writeError(w, http.StatusServiceUnavailable, "unavailable", err.Error(), "")
		return
	}
	defer s.engine.Abort(req) // of a request that has ended, nothing
	a := &answer{req: req, body: &b, chat: chat, model: s.model, created: time.Now().Unix(), text: text{stops: j.stops}}
	if b.Stream {
		a.stream(w, r)
		return
	}
	a.whole(w, r)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have gone
}

func errorBody(kind, text, param string, status int) map[string]any {
	e := map[string]any{"message": text, "type": kind, "param": nil, "code": status}
	if param != "" {
		e["param"] = param
	}
	return map[string]any{"error": e}
}

func writeError(w http.ResponseWriter, status int, kind, text, param string) {
	writeJSON(w, status, errorBody(kind, text, param, status))
}
