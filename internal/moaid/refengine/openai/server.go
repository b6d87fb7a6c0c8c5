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
	// Replicas is the number of data-parallel replicas.
	Replicas() int
	Submit(*sched.Request) error
	// Abort must follow every Submit that gave no error.
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
	serve := func(method, path string, h http.HandlerFunc) {
		mux.HandleFunc(method+" "+path, h)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			writeError(w, http.StatusMethodNotAllowed, kindRequest, fmt.Sprintf("%s takes %s, not %s.", r.URL.Path, method, r.Method), "", "method_not_allowed")
		})
	}
	serve(http.MethodPost, "/v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) })
	serve(http.MethodPost, "/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) })
	serve(http.MethodGet, "/v1/models", s.models)
	serve(http.MethodGet, "/v1/models/{id...}", s.oneModel)
	serve(http.MethodGet, "/health", s.health)
	serve(http.MethodGet, "/metrics", promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{}).ServeHTTP)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, kindRequest, fmt.Sprintf("There is no %s %s here.", r.Method, r.URL.Path), "", "unknown_path")
	})
	return mux
}

func (s *Server) card() map[string]any {
	return map[string]any{"id": s.model, "object": "model", "created": 0, "owned_by": "moai", "max_model_len": s.maxLen}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []map[string]any{s.card()}})
}

func (s *Server) oneModel(w http.ResponseWriter, r *http.Request) {
	if id := r.PathValue("id"); id != s.model {
		f := unknownModel(id, s.model)
		writeError(w, http.StatusNotFound, kindRequest, f.message, f.param, codeModel)
		return
	}
	writeJSON(w, http.StatusOK, s.card())
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if err := s.engine.Health(); err != nil {
		writeError(w, http.StatusServiceUnavailable, "unavailable", err.Error(), "", "not_ready")
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// complete answers a completion of either kind.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	const tooLong = "The body is longer than %d bytes."
	if r.ContentLength > maxBody {
		writeError(w, http.StatusRequestEntityTooLarge, kindRequest, fmt.Sprintf(tooLong, maxBody), "", "body_too_large")
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			writeError(w, http.StatusRequestEntityTooLarge, kindRequest, fmt.Sprintf(tooLong, maxBody), "", "body_too_large")
		}
		return
	}
	b, err := decode(raw)
	var j job
	if err == nil {
		j, err = b.job(chat, s.model)
	}
	if err == nil {
		j.params.Replica, err = replica(r.Header, s.engine.Replicas())
	}
	code := ""
	if err == nil {
		err, code = s.fits(j, chat), "context_length_exceeded"
	}
	var f *fault
	if errors.As(err, &f) {
		status := http.StatusBadRequest
		if f.param == "model" && b != nil {
			status, code = http.StatusNotFound, codeModel
		}
		writeError(w, status, kindRequest, f.message, f.param, code)
		return
	}
	req := sched.NewRequest(s.newID(), j.prompt, j.params)
	if err := s.engine.Submit(req); err != nil {
		writeError(w, http.StatusServiceUnavailable, "unavailable", err.Error(), "", "stopping")
		return
	}
	defer s.engine.Abort(req) // of a request that has ended, nothing
	a := &answer{req: req, body: b, chat: chat, model: s.model, created: time.Now().Unix(), text: text{stops: j.stops}}
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

// fits says why a request can never run here.
func (s *Server) fits(j job, chat bool) error {
	n, param := len(j.prompt), "prompt"
	if chat {
		param = "messages"
	}
	if n >= s.maxLen {
		return &fault{fmt.Sprintf("The prompt is too long for the model's context: it has %d tokens, and the context has %d for prompt and answer together. max_tokens is %d.",
			n, s.maxLen, j.params.MaxTokens), param}
	}
	if err := s.engine.Fits(n, 1); err != nil {
		return &fault{fmt.Sprintf("The prompt is too long for this engine: its %d tokens need more KV blocks than there are.", n), param}
	}
	if err := s.engine.Fits(n, j.params.MaxTokens); err != nil {
		return &fault{fmt.Sprintf("This request does not fit: %v.", err), "max_tokens"}
	}
	return nil
}

const (
	kindRequest = "invalid_request_error"
	kindServer  = "server_error"
	codeModel   = "model_not_found"
)

// errorBody is an error as OpenAI shapes it: an empty param or code is null.
func errorBody(kind, text, param, code string) map[string]any {
	e := map[string]any{"message": text, "type": kind, "param": nil, "code": nil}
	if param != "" {
		e["param"] = param
	}
	if code != "" {
		e["code"] = code
	}
	return map[string]any{"error": e}
}

func writeError(w http.ResponseWriter, status int, kind, text, param, code string) {
	writeJSON(w, status, errorBody(kind, text, param, code))
}
