package node_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

func TestNodeRefusals(t *testing.T) {
	cases := []struct {
		name   string
		more   string
		config func(string) string
		setUp  func(*acctest.Host)
		want   string
	}{
		{name: "unknown host", config: replace(`host = "127.0.0.1"`, `host = "no-such-host.invalid"`), want: `(?s)no-such-host\.invalid.*Step: resolve.*Attribute: ssh\.host`},
		{name: "silent port", setUp: func(h *acctest.Host) { h.Server.Set(sshtest.Fault{Silent: true}) }, want: `(?s)did not answer in time.*Port: [0-9]+.*Step: handshake.*Attribute: ssh\.host`},
		{name: "wrong host key", setUp: func(h *acctest.Host) { h.Server.RotateHostKey() }, want: `(?s)host key not accepted.*expected ssh-ed25519 SHA256:.*presented ssh-ed25519 SHA256:.*Attribute: ssh\.host_key`},
		{name: "wrong credentials", setUp: func(h *acctest.Host) { h.Server.Set(sshtest.Fault{RefuseAuth: true}) }, want: `(?s)login refused.*ssh_profiles\["h100-0"\]\.private_key.*Attribute: ssh\.profile`},
		{name: "unknown profile", config: replace(`profile = "h100-0"`, `profile = "nobody"`), want: `(?s)Unknown SSH profile.*"nobody".*h100-0.*Attribute: ssh\.profile`},
		{name: "no sudo", setUp: func(h *acctest.Host) { h.NoSudo = true }, want: `(?s)Cannot become root.*ssh_profiles\["h100-0"\]\.become.*Attribute: ssh\.profile`},
		{name: "wrong vendor", more: `  expect = { vendor = "amd" }`, want: `(?s)expect\.vendor is amd.*2 × H100 \(nvidia\).*expect = \{ vendor = "nvidia".*Attribute: expect\.vendor`},
		{name: "wrong model", more: `  expect = { gpu = "MI300X" }`, want: `(?s)expect\.gpu is MI300X.*Attribute: expect\.gpu`},
		{name: "wrong count", more: `  expect = { gpu_count = 8 }`, want: `(?s)expect\.gpu_count is 8.*Attribute: expect\.gpu_count`},
		{name: "foreign fleet", setUp: func(h *acctest.Host) {
			h.SetFile("/etc/moai/owner.json", sshtest.Entry{Content: []byte(`{"fleet":"other","resource":"moai_node.x","writer":"w","moaid_sha256":""}`)})
		}, want: `(?s)belongs to another fleet.*"other"`},
		{name: "foreign resource", setUp: func(h *acctest.Host) {
			h.SetFile("/etc/moai/owner.json", sshtest.Entry{Content: []byte(`{"fleet":"test","resource":"moai_node.x","writer":"w","moaid_sha256":""}`)})
		}, want: `(?s)another resource.*terraform import.*name=x,host=`},
		{name: "somebody else's folder", setUp: func(h *acctest.Host) {
			h.SetFile("/opt/moai/bin/moaid", sshtest.Entry{Content: []byte("of a package"), Mode: 0o755})
		}, want: `(?s)something else in /opt/moai.*Move /opt/moai away`},
		{name: "somebody else's unit", setUp: func(h *acctest.Host) {
			h.SetFile("/etc/systemd/system/moai-kvd.service", sshtest.Entry{Content: []byte("[Service]\nExecStart=/bin/true\n")})
		}, want: `(?s)not ours.*moai-kvd\.service`},
		{name: "no systemd", setUp: func(h *acctest.Host) {
			h.SetProbe(map[string]sshtest.ProbeSection{"init": {Text: "openrc\n"}, "systemd": {Exit: 127}})
		}, want: `(?s)systemd does not run this machine`},
		{name: "bad name", config: replace(`name = "h100-0"`, `name = "H100 0"`), want: `1 to 63 of a-z`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, h := h100(t)
			config := f.ProviderBlock() + h.Node(c.more)
			if c.config != nil {
				config = c.config(config)
			}
			if c.setUp != nil {
				c.setUp(h)
			}
			before := len(h.Writes())
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: f.Factories(),
				Steps:                    []resource.TestStep{{Config: config, PlanOnly: true, ExpectError: flexible(c.want)}},
			})
			if w := h.Writes(); len(w) != before {
				t.Errorf("the machine was changed: %v", w[before:])
			}
		})
	}
}

// Two nodes that are one machine are refused by the first plan, before either is made; so is a name that is used twice.
func TestNodesThatAreNotTwo(t *testing.T) {
	f, h := h100(t)
	other := f.Add("mi300x-0", acctest.Accelerators{Vendor: "amd", Count: 1})
	twice := strings.NewReplacer(`"h100_0"`, `"again"`, `name = "h100-0"`, `name = "again"`).Replace(h.Node(""))
	same := strings.Replace(h.Node(""), `"h100_0"`, `"again"`, 1)
	for _, c := range []struct{ config, want string }{
		{h.Node("") + same, `(?s)Two resources are the same thing.*name\s+= "h100-0".*taken twice`},
		{h.Node("") + twice, `(?s)One machine for two nodes.*Attribute: ssh\.host`},
		{h.Node("") + replace(`name = "mi300x-0"`, `name = "h100-0"`)(other.Node("")), `(?s)Two resources are the same thing.*node name "h100-0" is taken twice: by a moai_node "h100-0" at 127.* and by a moai_node "h100-0" at 127`},
	} {
		resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(),
			Steps: []resource.TestStep{{Config: f.ProviderBlock() + c.config, PlanOnly: true, ExpectError: flexible(c.want)}}})
	}
}

func replace(old, new string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, new, 1) }
}

// flexible lets the CLI break lines where it likes.
func flexible(want string) *regexp.Regexp {
	return regexp.MustCompile(strings.ReplaceAll(want, " ", `[\s│]+`))
}
