package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// failure is an answer of our own, in the shape that OpenAI's clients expect.
type failure struct {
	status  int
	message string
	kind    string // "type" on the wire
	param   string // "" is null
	code    string
}

// Kinds of failures.
const (
	kindRequest  = "invalid_request_error"
	kindUpstream = "upstream_error"
	kindRouter   = "router_error"
)

// body is the JSON of the failure.
func (f *failure) body() []byte {
	var param any
	if f.param != "" {
		param = f.param
	}
	b, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": f.message, "type": f.kind, "param": param, "code": f.code,
	}})
	if err != nil { // strings always encode
		panic(err)
	}
	return b
}

// writeJSON answers with a body that is whole.
func writeJSON(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}
