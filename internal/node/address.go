package node

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)

// checkAddress says what is wrong with a name or an address without port; empty means nothing. specific refuses addresses
// that stand for all of a machine's, at which no peer can find it.
func checkAddress(s string, specific bool) string {
	ip, err := netip.ParseAddr(s)
	switch {
	case err == nil && specific && ip.IsUnspecified():
		return fmt.Sprintf("%q stands for every address, but peers have to connect to one: give that one, or leave fabric out", s)
	case err == nil || hostName.MatchString(s):
		return ""
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return fmt.Sprintf("%q holds a port: give it as port", s)
	}
	return fmt.Sprintf("%q is neither an address nor a host name; a port goes into port, and an IPv6 address has no brackets", s)
}

// addressValidator accepts names and addresses without port.
type addressValidator struct{ specific bool }

// Description implements validator.String.
func (addressValidator) Description(context.Context) string { return "a host name or an address" }

// MarkdownDescription implements validator.String.
func (v addressValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements validator.String.
func (v addressValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if fault := checkAddress(req.ConfigValue.ValueString(), v.specific); fault != "" {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid address", fault+"."))
	}
}
