// Package instance tells the instances of resources apart. Terraform tells a provider no addresses, and plans one instance
// twice to replace it; the private state that the first plan made comes with the second. So that is where an identity is kept.
//
// An apply plans every instance once more before it is made, with all values known. What two instances are found only then
// to have both is refused there, before the second is made.
package instance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// Private is a resource's private state, of the response of ModifyPlan.
type Private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

const key = "instance"

// Hold records at f what the instance with that private state is planned to have. The error is a *[fleet.HeldError] if
// another instance of this run has it.
func Hold(ctx context.Context, f *fleet.Fleet, p Private, holds []fleet.Hold) error {
	id, err := identity(ctx, p)
	if err != nil {
		return err
	}
	return f.Hold(id, holds)
}

// identity gives the instance's, which it makes if there is none.
func identity(ctx context.Context, p Private) (string, error) {
	b, diags := p.GetKey(ctx, key)
	if err := errorOf(diags); err != nil {
		return "", err
	}
	var id string
	if json.Unmarshal(b, &id) == nil && id != "" {
		return id, nil
	}
	id = rand.Text()
	b, err := json.Marshal(id)
	if err != nil {
		return "", fmt.Errorf("name the resource instance: %w", err)
	}
	return id, errorOf(p.SetKey(ctx, key, b))
}

func errorOf(diags diag.Diagnostics) error {
	var errs []error
	for _, d := range diags.Errors() {
		errs = append(errs, fmt.Errorf("private state: %s: %s", d.Summary(), d.Detail()))
	}
	return errors.Join(errs...)
}
