package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// Error is a refusal by the daemon.
type Error struct {
	Method string
	Path   string // without query
	Status int    // HTTP status, 4xx or 5xx
	API    api.Error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %d: %s", e.Method, e.Path, e.Status, e.API.Error())
}

// Unwrap gives the daemon's own error, for errors.As with *api.Error.
func (e *Error) Unwrap() error { return &e.API }

// UnexpectedError is an answer that the management API does not give: something
// else than a KV daemon is at the other end, or one of another version.
type UnexpectedError struct {
	Method string
	Path   string
	Status int
	Body   string // its beginning, printable
}

func (e *UnexpectedError) Error() string {
	return fmt.Sprintf("%s %s: the answer with status %d is not one of the management API (is this a moaid kvd of this version?): %q",
		e.Method, e.Path, e.Status, e.Body)
}

// IsNotFound reports whether err proves that no object has the name: the daemon
// said so itself, of the object and not of the path.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound && e.API.Code != api.CodeUnknownPath
}

// refusal turns an answer with an error status into an error. body may be cut.
func refusal(method, path string, status int, body []byte) error {
	var b api.ErrorBody
	if err := json.Unmarshal(body, &b); err == nil && b.Error.Code != "" {
		return &Error{Method: method, Path: path, Status: status, API: b.Error}
	}
	return &UnexpectedError{Method: method, Path: path, Status: status, Body: excerpt(body)}
}

// excerpt gives the beginning of a body for an error message.
func excerpt(body []byte) string {
	const most = 200
	if len(body) > most {
		body = body[:most]
	}
	return strings.ToValidUTF8(string(body), "?")
}
