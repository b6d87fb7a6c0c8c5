package provider

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Environment variables that stand in for attributes which are not set.
const (
	envKnownHosts     = "MOAI_SSH_KNOWN_HOSTS"
	envConnectTimeout = "MOAI_SSH_CONNECT_TIMEOUT"
	envPrivateKey     = "MOAI_SSH_PRIVATE_KEY"
)

// environment looks a variable up; tests use another function.
func environment(name string) string { return os.Getenv(name) }

// model is the provider block. Everything in it may be unknown, so nothing is decoded into plain Go at once.
type model struct {
	Fleet       types.String `tfsdk:"fleet"`
	SSH         types.Object `tfsdk:"ssh"`
	SSHProfiles types.Map    `tfsdk:"ssh_profiles"`
}

// settings maps the block to plain Go. What is unknown is named in Unknown, for the resource that needs it to say.
func (m model) settings(_ context.Context, env func(string) string) (fleet.Settings, diag.Diagnostics) {
	var diags diag.Diagnostics
	s := fleet.Settings{Profiles: map[string]fleet.Profile{}, KnownHosts: env(envKnownHosts)}
	u := unknowns{into: &s.Unknown}
	s.Fleet = u.text("fleet", m.Fleet)
	timeout := env(envConnectTimeout)
	at := path.Root("ssh").AtName("connect_timeout")
	if m.SSH.IsUnknown() {
		s.Unknown = append(s.Unknown, "ssh.known_hosts")
	} else if !m.SSH.IsNull() {
		a := m.SSH.Attributes()
		if v := u.text("ssh.known_hosts", a["known_hosts"]); v != "" {
			s.KnownHosts = v
		}
		if v := u.text("", a["connect_timeout"]); v != "" {
			timeout = v
		}
	}
	if timeout != "" {
		d, err := parseDuration(timeout)
		if err != nil {
			diags.Append(diagnose.AtError(at, "Invalid duration", fmt.Sprintf("connect_timeout (or %s): %s.", envConnectTimeout, err)))
		}
		s.ConnectTimeout = d
	}
	if m.SSHProfiles.IsUnknown() {
		s.Unknown = append(s.Unknown, "ssh_profiles")
		return s, diags
	}
	for name, v := range m.SSHProfiles.Elements() {
		s.Profiles[name] = profile(v, env)
	}
	return s, diags
}

func profile(v attr.Value, env func(string) string) fleet.Profile {
	var p fleet.Profile
	obj, ok := v.(types.Object)
	if !ok || obj.IsUnknown() {
		p.Unknown = []string{"the whole profile"}
		return p
	}
	a := obj.Attributes()
	u := unknowns{into: &p.Unknown}
	p.User = u.text("user", a["user"])
	p.PrivateKey = ssh.Secret(u.text("private_key", a["private_key"]))
	if p.PrivateKey == "" && len(p.Unknown) == 0 {
		p.PrivateKey = ssh.Secret(env(envPrivateKey))
	}
	if b, ok := a["become"].(types.Object); ok && !b.IsNull() {
		if b.IsUnknown() {
			p.Unknown = append(p.Unknown, "become")
		} else {
			p.Become.Method = u.text("become.method", b.Attributes()["method"])
			// A password read from a file ends with a line break that is not part of it.
			p.Become.Password = ssh.Secret(strings.TrimRight(u.text("become.password", b.Attributes()["password"]), "\r\n"))
		}
	}
	list, ok := a["bastions"].(types.List)
	if !ok || list.IsNull() {
		return p
	}
	if list.IsUnknown() {
		p.Unknown = append(p.Unknown, "bastions")
		return p
	}
	for i, e := range list.Elements() {
		p.Bastions = append(p.Bastions, bastion(fmt.Sprintf("bastions[%d]", i), e, u))
	}
	return p
}

func bastion(name string, v attr.Value, u unknowns) ssh.Hop {
	obj, ok := v.(types.Object)
	if !ok || obj.IsUnknown() || obj.IsNull() {
		*u.into = append(*u.into, name)
		return ssh.Hop{}
	}
	a := obj.Attributes()
	h := ssh.Hop{
		Host:       u.text(name+".host", a["host"]),
		User:       u.text(name+".user", a["user"]),
		PrivateKey: ssh.Secret(u.text(name+".private_key", a["private_key"])),
		HostKey:    u.text(name+".host_key", a["host_key"]),
	}
	if n, ok := a["port"].(types.Int64); ok {
		if n.IsUnknown() {
			*u.into = append(*u.into, name+".port")
		}
		h.Port = int(n.ValueInt64())
	}
	return h
}

// unknowns reads values and collects the names of those that are not known yet.
type unknowns struct{ into *[]string }

// text is "" for null and unknown. An empty name means that it does not matter when the value is unknown.
func (u unknowns) text(name string, v attr.Value) string {
	s, ok := v.(types.String)
	if !ok {
		return ""
	}
	if s.IsUnknown() && name != "" {
		*u.into = append(*u.into, name)
	}
	return s.ValueString()
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration such as \"10s\" or \"1m30s\"", s)
	case d <= 0:
		return 0, fmt.Errorf("%q is not positive", s)
	}
	return d, nil
}

// durationValidator accepts positive Go durations.
type durationValidator struct{}

// Description implements validator.String.
func (durationValidator) Description(context.Context) string { return "a duration such as \"10s\"" }

// MarkdownDescription implements validator.String.
func (v durationValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements validator.String.
func (durationValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, err := parseDuration(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid duration", err.Error()+"."))
	}
}
