package noderef

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Attribute is a required node, given whole.
func Attribute(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: description,
		Attributes:          attributes(true),
		PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplaceIf(
			func(_ context.Context, req planmodifier.ObjectRequest, resp *objectplanmodifier.RequiresReplaceIfFuncResponse) {
				resp.RequiresReplace = identityDiffers(req.StateValue, req.PlanValue)
			}, replaceText, replaceText)},
	}
}

// ListAttribute is a required list of nodes, each given whole, that holds exactly n of them.
func ListAttribute(description string, n int) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Required:            true,
		MarkdownDescription: description,
		NestedObject:        schema.NestedAttributeObject{Attributes: attributes(false)},
		Validators:          []validator.List{listvalidator.SizeBetween(n, n), completeValidator{}},
		PlanModifiers: []planmodifier.List{listplanmodifier.RequiresReplaceIf(
			func(_ context.Context, req planmodifier.ListRequest, resp *listplanmodifier.RequiresReplaceIfFuncResponse) {
				resp.RequiresReplace = listIdentityDiffers(req.StateValue, req.PlanValue)
			}, replaceText, replaceText)},
	}
}

const replaceText = "Another machine (other `name` or `machine_id`) means replacement. Another address, port, host key, profile or fabric does not."

// attributes of a passed node. The framework looks for required attributes inside the elements of a list even while an element
// is unknown, as it always is during validation; so there they are optional, and completeValidator does it.
func attributes(required bool) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"name":       schema.StringAttribute{Required: required, Optional: !required, MarkdownDescription: "Name of the node. Part of its identity."},
		"machine_id": schema.StringAttribute{Required: required, Optional: !required, MarkdownDescription: "The machine's `/etc/machine-id`. Part of its identity."},
		"public_key": schema.StringAttribute{Optional: true, MarkdownDescription: "Public key of the node's daemon."},
		"vendor":     schema.StringAttribute{Optional: true, MarkdownDescription: "Vendor of the node's accelerators: `nvidia`, `amd` or `none`."},
		"ssh": schema.SingleNestedAttribute{
			Required: required, Optional: !required, MarkdownDescription: "Where the node is reached over SSH.",
			Attributes: map[string]schema.Attribute{
				"host":     schema.StringAttribute{Required: true, MarkdownDescription: "Name or address."},
				"port":     schema.Int64Attribute{Optional: true, Validators: []validator.Int64{int64validator.Between(1, 65535)}, MarkdownDescription: "Port. Default `22`."},
				"profile":  schema.StringAttribute{Required: true, MarkdownDescription: "Entry of the provider's `ssh_profiles`."},
				"host_key": schema.StringAttribute{Optional: true, MarkdownDescription: "Pinned SSH host key."},
			},
		},
		"fabric": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Where KV traffic goes. Default: the SSH host.",
			Attributes: map[string]schema.Attribute{
				"endpoints": schema.ListNestedAttribute{
					Required: true, MarkdownDescription: "One entry a rail.",
					NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
						"address":     schema.StringAttribute{Required: true, MarkdownDescription: "Address of this rail."},
						"port":        schema.Int64Attribute{Optional: true, Validators: []validator.Int64{int64validator.Between(1, 65535)}, MarkdownDescription: "Port of the daemon. Default `9610`."},
						"rdma_device": schema.StringAttribute{Optional: true, MarkdownDescription: "RDMA device of this rail."},
					}},
				},
			},
		},
	}
}

// Type is the type of a passed node.
func Type() types.ObjectType {
	m := map[string]attr.Type{}
	for name, a := range attributes(true) {
		m[name] = a.GetType()
	}
	return types.ObjectType{AttrTypes: m}
}

func sshType() types.ObjectType    { return Type().AttrTypes["ssh"].(types.ObjectType) }    //nolint:forcetypeassert // by construction
func fabricType() types.ObjectType { return Type().AttrTypes["fabric"].(types.ObjectType) } //nolint:forcetypeassert // by construction

// completeValidator wants every element of a list to be a node.
type completeValidator struct{}

// Description implements validator.List.
func (completeValidator) Description(context.Context) string { return "whole nodes" }

// MarkdownDescription implements validator.List.
func (v completeValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateList implements validator.List.
func (completeValidator) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	for i, e := range req.ConfigValue.Elements() {
		obj, ok := e.(types.Object)
		if !ok || obj.IsUnknown() {
			continue
		}
		for _, name := range []string{"name", "machine_id", "ssh"} {
			if v := obj.Attributes()[name]; v == nil || v.IsNull() {
				resp.Diagnostics.AddAttributeError(req.Path, "Not a node",
					fmt.Sprintf("Element %d has no %s. Give each node whole, as in [moai_node.a, moai_node.b].", i, name))
			}
		}
	}
}
