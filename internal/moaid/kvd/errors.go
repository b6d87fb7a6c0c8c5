package kvd

import (
	"encoding/json"
	"net/http"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

func apiError(w http.ResponseWriter, status int, code, message, attribute string) {
	writeError(w, status, &api.Error{Code: code, Message: message, Attribute: attribute})
}

func writeError(w http.ResponseWriter, status int, e *api.Error) {
	writeJSON(w, status, api.ErrorBody{Error: *e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that left is no event
}
