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

// openAIError gives an engine's error answer in OpenAI's shape, whose code is a
// string or null. Engines write the HTTP status there, and older ones have no
// "error" around it. What is neither stays as it is.
func openAIError(answer []byte) []byte {
	var all, e map[string]json.RawMessage
	if json.Unmarshal(answer, &all) != nil {
		return answer
	}
	switch inner, ok := all["error"]; {
	case ok:
		if json.Unmarshal(inner, &e) != nil {
			return answer
		}
	case string(all["object"]) == `"error"` && all["message"] != nil:
		e = all
		delete(e, "object")
	default:
		return answer
	}
	code := e["code"]
	if all["error"] != nil && (code == nil || code[0] == '"' || string(code) == "null") {
		return answer
	}
	if code != nil && code[0] != '"' {
		e["code"] = json.RawMessage("null")
	}
	inner, err := json.Marshal(e)
	if err != nil {
		return answer
	}
	outer := map[string]json.RawMessage{}
	if all["error"] != nil {
		outer = all
	}
	outer["error"] = inner
	if shaped, err := json.Marshal(outer); err == nil {
		return shaped
	}
	return answer
}
