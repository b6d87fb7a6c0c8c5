package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// decode reads a body. Errors are faults, in the client's terms.
func decode(raw []byte) (*body, error) {
	b := new(body)
	err := json.Unmarshal(raw, b)
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return b, nil
	case errors.As(err, &wrong) && wrong.Field != "":
		param, _, _ := strings.Cut(wrong.Field, ".")
		return nil, &fault{fmt.Sprintf("%s must be %s.", wrong.Field, kindName(wrong.Type)), param}
	case errors.As(err, &wrong):
		return nil, &fault{"The body must be an object.", ""}
	case errors.As(err, &syntax):
		return nil, &fault{fmt.Sprintf("The body is no valid JSON: %v at byte %d.", syntax, syntax.Offset), ""}
	}
	return nil, &fault{fmt.Sprintf("The body is no valid JSON: %v.", err), ""}
}

// kindName is what JSON calls what a Go type is made of.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Float64:
		return "a number"
	default:
		return "an integer"
	}
}
