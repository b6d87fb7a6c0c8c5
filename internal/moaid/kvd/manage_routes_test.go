package kvd

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// What the API lists is served, and nothing else is.
func TestRoutesAreTheAPIs(t *testing.T) {
	n := newNode(t, "p", nil)
	handlers := n.d.manageHandlers()
	for _, r := range api.Routes() {
		if handlers[r.Pattern()] == nil {
			t.Errorf("%s has no handler", r.Pattern())
		}
		delete(handlers, r.Pattern())
	}
	for pattern := range handlers {
		t.Errorf("%s is not in the API", pattern)
	}
}
