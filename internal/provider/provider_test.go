package provider

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

func TestSchemasAreValid(t *testing.T) {
	ctx := context.Background()
	server, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range resp.Diagnostics {
		t.Errorf("%s: %s", d.Summary, d.Detail)
	}
	describe := func(where string, b *tfprotov6.SchemaBlock) {
		for _, a := range b.Attributes {
			described(t, where, a)
		}
	}
	describe("provider", resp.Provider.Block)
	for name, s := range resp.ResourceSchemas {
		if !strings.HasPrefix(name, TypeName+"_") {
			t.Errorf("resource %q", name)
		}
		if s.Block.Description == "" {
			t.Errorf("%s has no description", name)
		}
		describe(name, s.Block)
	}
}

// described checks that an attribute and all below it have a description; timeouts bring none for the object itself.
func described(t *testing.T, where string, a *tfprotov6.SchemaAttribute) {
	t.Helper()
	where += "." + a.Name
	if a.Description == "" && a.Name != "timeouts" {
		t.Errorf("%s has no description", where)
	}
	if a.NestedType != nil {
		for _, n := range a.NestedType.Attributes {
			described(t, where, n)
		}
	}
}

func TestEveryResourceHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range (&Provider{}).Resources(context.Background()) {
		var resp resource.MetadataResponse
		f().Metadata(context.Background(), resource.MetadataRequest{ProviderTypeName: TypeName}, &resp)
		if seen[resp.TypeName] {
			t.Errorf("%s twice", resp.TypeName)
		}
		seen[resp.TypeName] = true
	}
}

var (
	bastionType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"host": types.StringType, "port": types.Int64Type, "user": types.StringType, "private_key": types.StringType, "host_key": types.StringType,
	}}
	becomeType  = types.ObjectType{AttrTypes: map[string]attr.Type{"method": types.StringType, "password": types.StringType}}
	profileType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"user": types.StringType, "private_key": types.StringType, "bastions": types.ListType{ElemType: bastionType}, "become": becomeType,
	}}
	sshType = types.ObjectType{AttrTypes: map[string]attr.Type{"known_hosts": types.StringType, "connect_timeout": types.StringType}}
)

func profileObject(change map[string]attr.Value) attr.Value {
	a := map[string]attr.Value{
		"user": types.StringValue("ops"), "private_key": types.StringValue("KEY"),
		"bastions": types.ListNull(bastionType), "become": types.ObjectNull(becomeType.AttrTypes),
	}
	for k, v := range change {
		a[k] = v
	}
	return types.ObjectValueMust(profileType.AttrTypes, a)
}

func block(ssh types.Object, profiles types.Map) model {
	return model{Fleet: types.StringValue("prod"), SSH: ssh, SSHProfiles: profiles}
}

func TestSettings(t *testing.T) {
	env := func(name string) string {
		return map[string]string{envKnownHosts: "from env", envConnectTimeout: "3s", envPrivateKey: "ENVKEY"}[name]
	}
	hop := types.ObjectValueMust(bastionType.AttrTypes, map[string]attr.Value{
		"host": types.StringValue("jump"), "port": types.Int64Value(2222), "user": types.StringNull(), "private_key": types.StringNull(), "host_key": types.StringValue("pin"),
	})
	profiles := types.MapValueMust(profileType, map[string]attr.Value{
		"plain":  profileObject(nil),
		"keyed":  profileObject(map[string]attr.Value{"private_key": types.StringNull()}),
		"hopped": profileObject(map[string]attr.Value{"bastions": types.ListValueMust(bastionType, []attr.Value{hop})}),
		"sudo": profileObject(map[string]attr.Value{"become": types.ObjectValueMust(becomeType.AttrTypes,
			map[string]attr.Value{"method": types.StringValue("sudo"), "password": types.StringValue("PW\n")})}),
		"later": profileObject(map[string]attr.Value{"private_key": types.StringUnknown()}),
		"none":  types.ObjectUnknown(profileType.AttrTypes),
	})
	s, diags := block(types.ObjectNull(sshType.AttrTypes), profiles).settings(context.Background(), env)
	if diags.HasError() {
		t.Fatal(diags)
	}
	if s.Fleet != "prod" || s.KnownHosts != "from env" || s.ConnectTimeout != 3*time.Second || len(s.Unknown) != 0 {
		t.Errorf("settings = %+v", s)
	}
	check := func(name, what string, ok bool) {
		if !ok {
			t.Errorf("profile %s: %s: %+v", name, what, s.Profiles[name])
		}
	}
	check("plain", "key", s.Profiles["plain"].PrivateKey.Reveal() == "KEY")
	check("keyed", "key from the environment", s.Profiles["keyed"].PrivateKey.Reveal() == "ENVKEY")
	check("hopped", "bastion", len(s.Profiles["hopped"].Bastions) == 1 && s.Profiles["hopped"].Bastions[0].Port == 2222 && s.Profiles["hopped"].Bastions[0].HostKey == "pin")
	check("sudo", "become", s.Profiles["sudo"].Become.Password.Reveal() == "PW")
	check("later", "unknown", len(s.Profiles["later"].Unknown) == 1)
	check("none", "unknown", len(s.Profiles["none"].Unknown) == 1)

	ssh := types.ObjectValueMust(sshType.AttrTypes, map[string]attr.Value{"known_hosts": types.StringValue("own"), "connect_timeout": types.StringValue("1m")})
	if s, _ := block(ssh, types.MapNull(profileType)).settings(context.Background(), env); s.KnownHosts != "own" || s.ConnectTimeout != time.Minute {
		t.Errorf("the block does not win over the environment: %+v", s)
	}
	if s, _ := block(types.ObjectUnknown(sshType.AttrTypes), types.MapUnknown(profileType)).settings(context.Background(), env); strings.Join(s.Unknown, ",") != "ssh.known_hosts,ssh_profiles" {
		t.Errorf("unknown = %v", s.Unknown)
	}
	bad := types.ObjectValueMust(sshType.AttrTypes, map[string]attr.Value{"known_hosts": types.StringNull(), "connect_timeout": types.StringValue("soon")})
	if _, diags := block(bad, types.MapNull(profileType)).settings(context.Background(), env); !diags.HasError() || !strings.Contains(diags[0].Detail(), envConnectTimeout) {
		t.Errorf("diags = %v", diags)
	}
}

// Configure dials nothing and fails for nothing that is not known yet.
func TestConfigureToleratesUnknown(t *testing.T) {
	ctx := context.Background()
	p := New("test")()
	var sr provider.SchemaResponse
	p.Schema(ctx, provider.SchemaRequest{}, &sr)
	typ, ok := sr.Schema.Type().TerraformType(ctx).(tftypes.Object)
	if !ok {
		t.Fatal("schema is no object")
	}
	values := map[string]tftypes.Value{}
	for name, at := range typ.AttributeTypes {
		values[name] = tftypes.NewValue(at, tftypes.UnknownValue)
	}
	var resp provider.ConfigureResponse
	p.Configure(ctx, provider.ConfigureRequest{Config: tfsdk.Config{Schema: sr.Schema, Raw: tftypes.NewValue(typ, values)}}, &resp)
	if resp.Diagnostics.HasError() {
		t.Fatal(resp.Diagnostics)
	}
	if _, ok := resp.ResourceData.(*fleet.Fleet); !ok || resp.DataSourceData == nil || resp.EphemeralResourceData == nil || resp.ActionData == nil || resp.ListResourceData == nil {
		t.Errorf("not all receivers are set: %+v", resp)
	}
}
