package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

func providerSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Runs prefill on accelerators of one vendor and decode on those of another, on hosts reached over SSH. " +
			"Nothing is dialled until a resource needs a host.",
		Attributes: map[string]schema.Attribute{
			"fleet": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Ownership domain. Everything installed on a host carries it, and nothing that carries another one is touched. " +
					"A host belongs to one fleet.",
				Validators: []validator.String{stringvalidator.RegexMatches(fleet.NamePattern(), fleet.NameRule)},
			},
			"ssh": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "What all hosts share.",
				Attributes: map[string]schema.Attribute{
					"known_hosts": schema.StringAttribute{
						Optional: true,
						MarkdownDescription: "Text in `known_hosts` format (content, not a path); hashed names, `@cert-authority` and `@revoked` are understood. " +
							"A node's own `ssh.host_key` wins. Falls back to the environment variable `MOAI_SSH_KNOWN_HOSTS`.",
					},
					"connect_timeout": schema.StringAttribute{
						Optional: true,
						MarkdownDescription: "Time to set up one hop: resolving, connecting, handshake and login, such as `\"10s\"`. Default `" +
							ssh.DefaultConnectTimeout.String() + "`. Falls back to `MOAI_SSH_CONNECT_TIMEOUT`.",
						Validators: []validator.String{durationValidator{}},
					},
				},
			},
			"ssh_profiles": schema.MapNestedAttribute{
				Optional: true,
				MarkdownDescription: "Ways to log in, by name. Nodes name one in `ssh.profile`. Secrets live here only, because reading and deleting a resource " +
					"sees no configuration of the resource; they never reach the state.",
				NestedObject: schema.NestedAttributeObject{Attributes: profileAttributes()},
			},
		},
	}
}

func profileAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"user": schema.StringAttribute{
			Required: true, MarkdownDescription: "User to log in as.",
			Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"private_key": schema.StringAttribute{
			Optional: true, Sensitive: true,
			MarkdownDescription: "Private key without passphrase, PEM or OpenSSH format (content, not a path). Falls back to `MOAI_SSH_PRIVATE_KEY`.",
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"bastions": schema.ListNestedAttribute{
			Optional: true, MarkdownDescription: "Hosts to pass on the way, in order.",
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"host": schema.StringAttribute{Required: true, MarkdownDescription: "Name or address."},
				"port": schema.Int64Attribute{Optional: true, MarkdownDescription: "Port. Default `22`.", Validators: []validator.Int64{int64validator.Between(1, 65535)}},
				"user": schema.StringAttribute{Optional: true, MarkdownDescription: "User. Default: the profile's."},
				"private_key": schema.StringAttribute{
					Optional: true, Sensitive: true, MarkdownDescription: "Private key. Default: the profile's.",
				},
				"host_key": schema.StringAttribute{Optional: true, MarkdownDescription: "Host key, `\"ssh-ed25519 AAAA…\"` or `\"SHA256:…\"`. Default: looked up in `ssh.known_hosts`."},
			}},
		},
		"become": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "How commands that need root get it. Default: `sudo` without a password, and nothing for root itself.",
			Attributes: map[string]schema.Attribute{
				"method": schema.StringAttribute{
					Required: true, MarkdownDescription: "`sudo` or `none`.",
					Validators: []validator.String{stringvalidator.OneOf(ssh.BecomeSudo, ssh.BecomeNone)},
				},
				"password": schema.StringAttribute{Optional: true, Sensitive: true, MarkdownDescription: "Password for `sudo`, one line. It is sent over standard input only.",
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)}},
			},
		},
	}
}
