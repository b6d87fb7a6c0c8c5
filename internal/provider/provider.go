// Package provider is the Terraform provider itself: its schema, its configuration and the list of what it offers. It
// talks to no host.
package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/moai-dev/terraform-provider-moai/internal/engine"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/kvlink"
	"github.com/moai-dev/terraform-provider-moai/internal/node"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
	"github.com/moai-dev/terraform-provider-moai/internal/pdpair"
	"github.com/moai-dev/terraform-provider-moai/internal/router"
)

// Address is the provider's name in the registry.
const Address = "registry.terraform.io/moai-dev/moai"

// TypeName begins the name of every resource.
const TypeName = "moai"

// Provider implements the provider.
type Provider struct {
	version string
	payload *payload.Source
}

var _ provider.Provider = (*Provider)(nil)

// Option changes a provider; tests use it.
type Option func(*Provider)

// WithPayload makes the provider install other binaries than those embedded.
func WithPayload(p *payload.Source) Option { return func(pr *Provider) { pr.payload = p } }

// New returns a function that makes a provider of that version.
func New(version string, opts ...Option) func() provider.Provider {
	return func() provider.Provider {
		p := &Provider{version: version, payload: payload.Embedded}
		for _, o := range opts {
			o(p)
		}
		return p
	}
}

// Metadata implements provider.Provider.
func (p *Provider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = TypeName
	resp.Version = p.version
}

// Schema implements provider.Provider.
func (p *Provider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = providerSchema()
}

// Configure implements provider.Provider. It dials nothing, and values that are not known yet are an error only for
// the resource that needs them.
func (p *Provider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	settings, diags := m.settings(ctx, environment)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	f := fleet.New(ctx, settings)
	resp.ResourceData = f
	resp.DataSourceData = f
	resp.EphemeralResourceData = f
	resp.ActionData = f
	resp.ListResourceData = f
}

// Resources implements provider.Provider.
func (p *Provider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		node.NewResource(p.payload),
		kvlink.NewResource,
		engine.NewResource,
		pdpair.NewResource,
		router.NewResource,
	}
}

// DataSources implements provider.Provider.
func (p *Provider) DataSources(context.Context) []func() datasource.DataSource { return nil }
