package node

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/timeout"
)

// When to look at a machine that has no state yet.
const (
	probeAuto  = "auto"
	probeNever = "never"
)

func resourceSchema(ctx context.Context) schema.Schema {
	attrs := map[string]schema.Attribute{
		"name": schema.StringAttribute{
			Required:            true,
			MarkdownDescription: "Name of the node in the fleet. Peers know its daemon by it. Another name is another node.",
			Validators:          []validator.String{stringvalidator.RegexMatches(fleet.NamePattern(), fleet.NameRule)},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"ssh":    sshAttribute(),
		"fabric": fabricAttribute(),
		"expect": expectAttribute(),
		"plan_probe": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(probeAuto),
			MarkdownDescription: "`auto`: a machine without state is looked at by the plan, reading only, for at most 10 seconds, so that the first plan already refuses what cannot work. " +
				"`never`: the first plan connects to nothing. Default `auto`.",
			Validators: []validator.String{stringvalidator.OneOf(probeAuto, probeNever)},
		},
		"timeouts": timeout.Attribute(ctx, timeouts.Opts{
			Create: true, Update: true, Delete: true, Read: true,
			CreateDescription: "Default `5m`.", UpdateDescription: "Default `5m`.", DeleteDescription: "Default `5m`.",
			ReadDescription: "Default `1m`. A machine that does not answer in time keeps its last known state, with a warning.",
		}),
	}
	for name, a := range computedAttributes() {
		attrs[name] = a
	}
	return schema.Schema{
		MarkdownDescription: "A machine of the fleet, reached over SSH, with the KV daemon `moaid kvd` on it: system users, one verified binary in `/opt/moai`, " +
			"a hardened systemd unit `moai-kvd.service`, and a key pair made on the machine, of which only the public half leaves it.\n\n" +
			"Pass it whole to other resources (`node = moai_node.x`).\n\n" +
			"A machine that cannot be reached keeps its state: only a machine that answers and provably holds nothing of the node any more removes it. " +
			"What somebody changed by hand is shown in the plan under `installed`, and healed by apply. Destroying leaves the machine as it was.",
		Attributes: attrs,
	}
}

func sshAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Required: true, MarkdownDescription: "Where the machine is reached over SSH. A change moves nothing and restarts nothing.",
		Attributes: map[string]schema.Attribute{
			"host": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name or address.", Validators: []validator.String{addressValidator{}},
			},
			"port": schema.Int64Attribute{
				Optional: true, Computed: true, Default: int64default.StaticInt64(fleet.DefaultSSHPort),
				MarkdownDescription: "Port. Default `22`.", Validators: []validator.Int64{int64validator.Between(1, 65535)},
			},
			"profile": schema.StringAttribute{
				Required: true, MarkdownDescription: "Entry of the provider's `ssh_profiles`.", Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"host_key": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The machine's SSH host key, `\"ssh-ed25519 AAAA…\"` or `\"SHA256:…\"`. Without it the key is looked up in the provider's `ssh.known_hosts`. " +
					"An unknown key is never accepted.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
		},
	}
}

func fabricAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: "Where KV traffic goes. Without it the daemon listens on every address, and peers use `ssh.host`.",
		Attributes: map[string]schema.Attribute{
			"endpoints": schema.ListNestedAttribute{
				Required: true, MarkdownDescription: "One entry a rail. The daemon listens on exactly these.",
				Validators: []validator.List{listvalidator.SizeAtLeast(1)},
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"address": schema.StringAttribute{
						Required: true, MarkdownDescription: "Address of this rail.", Validators: []validator.String{addressValidator{specific: true}},
					},
					"port": schema.Int64Attribute{
						Optional: true, Computed: true, Default: int64default.StaticInt64(fleet.DefaultFabricPort),
						MarkdownDescription: "Port of the daemon. Default `9610`.", Validators: []validator.Int64{int64validator.Between(1, 65535)},
					},
					"rdma_device": schema.StringAttribute{
						Optional: true, MarkdownDescription: "RDMA device of this rail, such as `mlx5_0`.", Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
					},
				}},
			},
		},
	}
}

func expectAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "What the machine has to be. A machine that is something else is refused, by the first plan if it may look. " +
			"The first plan without this block shows the block to paste.",
		Attributes: map[string]schema.Attribute{
			"vendor": schema.StringAttribute{
				Optional: true, MarkdownDescription: "`nvidia`, `amd` or `none`.",
				Validators: []validator.String{stringvalidator.OneOf(facts.VendorNVIDIA, facts.VendorAMD, facts.VendorNone)},
			},
			"gpu": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Model of all accelerators, such as `H100` or `MI300X`.", Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"gpu_count": schema.Int64Attribute{
				Optional: true, MarkdownDescription: "Number of accelerators.", Validators: []validator.Int64{int64validator.AtLeast(0)},
			},
		},
	}
}

func computedText(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Computed: true, MarkdownDescription: description, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

func computedNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Computed: true, MarkdownDescription: description, PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
	}
}

func computedAttributes() map[string]schema.Attribute {
	text := func(d string) schema.Attribute { return schema.StringAttribute{Computed: true, MarkdownDescription: d} }
	number := func(d string) schema.Attribute { return schema.Int64Attribute{Computed: true, MarkdownDescription: d} }
	return map[string]schema.Attribute{
		"id":             computedText("The node's name."),
		"machine_id":     computedText("The machine's `/etc/machine-id`: its identity."),
		"public_key":     computedText("Public half of the key that the daemon made on the machine, `ed25519:` and base64."),
		"vendor":         computedText("Vendor of the accelerators: `nvidia`, `amd`, `mixed` or `none`. Known at plan when `expect.vendor` states it."),
		"driver_version": computedText("Version of the accelerators' driver."),
		"os":             computedText("Operating system."),
		"kernel":         computedText("Kernel release."),
		"arch":           computedText("Architecture: `amd64` or `arm64`."),
		"cpus":           computedNumber("Number of logical CPUs."),
		"memory_bytes":   computedNumber("Main memory in bytes."),
		"moaid_version":  text("Version of the installed `moaid`: the first 12 digits of its content's SHA-256. The plan shows when it changes."),
		"ready":          schema.BoolAttribute{Computed: true, MarkdownDescription: "The last apply finished."},
		"accelerators": schema.ListNestedAttribute{
			Computed: true, MarkdownDescription: "The accelerators, by index.",
			PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"index":        number("As the vendor's tool counts."),
				"vendor":       text("`nvidia` or `amd`."),
				"model":        text("Model, such as `H100`."),
				"name":         text("As the vendor's tool says."),
				"pci_address":  text("PCI address."),
				"memory_bytes": number("Memory in bytes."),
				"uuid":         text("Unique id."),
			}},
		},
		"nics": schema.ListNestedAttribute{
			Computed: true, MarkdownDescription: "Network interfaces.",
			PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name":       text("Name."),
				"addresses":  schema.ListAttribute{ElementType: stringType, Computed: true, MarkdownDescription: "Addresses with prefix length."},
				"mtu":        number("MTU in bytes."),
				"speed_mbps": number("Speed in Mbit/s; 0 if unknown."),
			}},
		},
		"installed": schema.SingleNestedAttribute{
			Computed:            true,
			MarkdownDescription: "What became of what was installed. The plan asks for the healthy word in every part, so whatever differs shows as a change that apply makes.",
			Attributes: map[string]schema.Attribute{
				"moaid":   text("The binary: `ok`, `changed` or `missing`."),
				"unit":    text("The unit file: `ok`, `changed` or `missing`."),
				"config":  text("The daemon's configuration: `ok`, `changed` or `missing`."),
				"marker":  text("The ownership marker: `ok`, `pending` (a change was begun and not finished), `foreign` or `missing`."),
				"key":     text("The daemon's private key: `ok` or `missing`. A missing key is made anew, and peers are told."),
				"service": text("The service: `active`, `outdated` (runs with another binary or configuration than what is on disk), `unresponsive`, `missing`, or systemd's own word, such as `inactive` or `failed`."),
				"boot":    text("Start at boot: `enabled` or `disabled`."),
			},
		},
	}
}
