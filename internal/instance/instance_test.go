package instance

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

type private map[string][]byte

func (p private) GetKey(_ context.Context, key string) ([]byte, diag.Diagnostics) { return p[key], nil }

func (p private) SetKey(_ context.Context, key string, value []byte) diag.Diagnostics {
	p[key] = value
	return nil
}

func TestHold(t *testing.T) {
	t.Parallel()
	f := fleet.New(t.Context(), fleet.Settings{Fleet: "prod"})
	t.Cleanup(f.Close)
	holds := []fleet.Hold{{Key: "engine x"}}
	a, b := private{}, private{key: []byte("not JSON")}
	for range 2 {
		if err := Hold(t.Context(), f, a, holds); err != nil {
			t.Fatal(err)
		}
	}
	if err := Hold(t.Context(), f, b, holds); !errors.As(err, new(*fleet.HeldError)) {
		t.Errorf("two instances have it: %v", err)
	}
	if err := Hold(t.Context(), f, a, nil); err != nil {
		t.Fatal(err)
	}
	if err := Hold(t.Context(), f, b, holds); err != nil {
		t.Errorf("what was given up is held: %v", err)
	}
}
