package kvlink_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

const (
	address = "moai_kv_link.main"
	name    = "h100-0--mi300x-0"
)

func twoHosts(t *testing.T) (f *acctest.Fleet, a, b *acctest.Host, nodes string) {
	t.Helper()
	f = acctest.NewFleet(t)
	a = f.Add("h100-0", acctest.Accelerators{Vendor: "nvidia", Count: 1})
	b = f.Add("mi300x-0", acctest.Accelerators{Vendor: "amd", Count: 1})
	return f, a, b, f.ProviderBlock() + a.Node("") + b.Node("")
}

func link(more string) string {
	return "resource \"moai_kv_link\" \"main\" {\n  nodes = [moai_node.h100_0, moai_node.mi300x_0]\n" + more + "\n}\n"
}

func flexible(want string) *regexp.Regexp {
	return regexp.MustCompile(strings.ReplaceAll(want, " ", `[\s│]+`))
}

func known(attr string, v knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attr), v)
}

func ends(h100, mi300x string) statecheck.StateCheck {
	return known("ends", knownvalue.MapExact(map[string]knownvalue.Check{
		"h100-0": knownvalue.StringExact(h100), "mi300x-0": knownvalue.StringExact(mi300x),
	}))
}

func action(a plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, a)}}
}

func TestLinkLife(t *testing.T) {
	f, a, b, nodes := twoHosts(t)
	config := nodes + link("")
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: f.Factories(),
		Steps: []resource.TestStep{
			{
				Config: config,
				ConfigStateChecks: []statecheck.StateCheck{
					known("id", knownvalue.StringExact(name)), known("verified", knownvalue.Bool(true)), ends("ok", "ok"),
					known("transport", knownvalue.StringExact("auto")), known("encryption", knownvalue.StringExact("aead")),
				},
				Check: func(*terraform.State) error { return wired(a, b) },
			},
			{Config: config, PlanOnly: true},
			{
				Config: config, ResourceName: address, ImportState: true, ImportStateId: a.ImportID() + ";" + b.ImportID(), ImportStateVerify: true,
			},
			// The order of the nodes means nothing.
			{
				Config:           strings.Replace(config, "[moai_node.h100_0, moai_node.mi300x_0]", "[moai_node.mi300x_0, moai_node.h100_0]", 1),
				ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{
				Config: nodes + link(`  encryption = "none"`+"\n  streams = 8"), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
				Check: func(*terraform.State) error {
					if l, _ := a.Daemon.Link(name); l.Encryption != api.EncryptionNone || l.Streams != 8 {
						return fmt.Errorf("link is %+v", l)
					}
					return wired(a, b)
				},
			},
			// Without the link both daemons have forgotten each other.
			{
				Config: nodes,
				Check: func(*terraform.State) error {
					for _, d := range []*acctest.Daemon{a.Daemon, b.Daemon} {
						if _, ok := d.Link(name); ok {
							return fmt.Errorf("a link is left")
						}
						if _, ok := d.Trusts("link-" + name); ok {
							return fmt.Errorf("a trusted key is left")
						}
					}
					return nil
				},
			},
		},
	})
}

// wired checks that both ends are as they should be.
func wired(a, b *acctest.Host) error {
	la, ok := a.Daemon.Link(name)
	lb, ok2 := b.Daemon.Link(name)
	ta, _ := a.Daemon.Trusts("link-" + name)
	switch {
	case !ok || !ok2:
		return fmt.Errorf("a link is missing")
	case la.Dial == lb.Dial:
		return fmt.Errorf("both ends dial, or neither")
	case la.PeerKey != b.Daemon.PublicKey() || lb.PeerKey != a.Daemon.PublicKey():
		return fmt.Errorf("peers have other keys than the daemons")
	case ta.PublicKey != la.PeerKey || ta.Node != "mi300x-0":
		return fmt.Errorf("trust is %+v", ta)
	case a.Daemon.Probes() == 0 || b.Daemon.Probes() == 0:
		return fmt.Errorf("a direction was not probed")
	}
	return nil
}

func TestLinkDriftIsShownAndHealed(t *testing.T) {
	f, a, b, nodes := twoHosts(t)
	config := nodes + link("")
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config},
		{
			PreConfig: func() {
				a.Daemon.Forget("trust", "link-"+name)
				l, _ := b.Daemon.Link(name)
				l.Streams = 1
				b.Daemon.SetLink(l)
			},
			RefreshState: true, ExpectNonEmptyPlan: true,
			Check: resource.ComposeAggregateTestCheckFunc(
				resource.TestCheckResourceAttr(address, "ends.h100-0", "missing"), resource.TestCheckResourceAttr(address, "ends.mi300x-0", "changed")),
		},
		{Config: config, ConfigPlanChecks: action(plancheck.ResourceActionUpdate), ConfigStateChecks: []statecheck.StateCheck{ends("ok", "ok")}},
		// A new key of a node reaches its peer.
		{
			PreConfig: func() { a.Remove("/var/lib/moai/kvd/node.key") },
			Config:    config, ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			Check: func(*terraform.State) error { return wired(a, b) },
		},
		// Both daemons say that there is no such link: it is made anew.
		{
			PreConfig: func() {
				for _, d := range []*acctest.Daemon{a.Daemon, b.Daemon} {
					d.Forget("trust", "link-"+name)
					d.Forget("links", name)
				}
			},
			Config: config, ConfigPlanChecks: action(plancheck.ResourceActionCreate),
		},
	}})
}

// A daemon that does not run has forgotten nothing.
func TestLinkDaemonDownIsNotGone(t *testing.T) {
	f, a, _, nodes := twoHosts(t)
	config := nodes + link("")
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config},
		{
			PreConfig: func() {
				_ = a.OnUnit("stop", "moai-kvd.service") // the fake's stop cannot fail
				a.SetUnit("moai-kvd.service", func(u *sshtest.Unit) { u.Active = "inactive" })
			},
			RefreshState: true, ExpectNonEmptyPlan: true,
			Check: resource.ComposeAggregateTestCheckFunc(
				resource.TestCheckResourceAttr(address, "ends.h100-0", "unresponsive"), resource.TestCheckResourceAttr(address, "ends.mi300x-0", "ok")),
		},
		{Config: config, ConfigPlanChecks: action(plancheck.ResourceActionUpdate), ConfigStateChecks: []statecheck.StateCheck{ends("ok", "ok")}},
		{Config: config, PlanOnly: true},
		// Destroying wakes a daemon that sleeps, so that it forgets.
		{
			PreConfig: func() {
				_ = a.OnUnit("stop", "moai-kvd.service") // as above
				a.SetUnit("moai-kvd.service", func(u *sshtest.Unit) { u.Active = "inactive" })
			},
			Config: nodes,
			Check: func(*terraform.State) error {
				if _, ok := a.Daemon.Link(name); ok {
					return fmt.Errorf("the link is left on the daemon that slept")
				}
				return nil
			},
		},
	}})
}

func TestLinkFollowsFabric(t *testing.T) {
	f, a, b, _ := twoHosts(t)
	config := func(addr string) string {
		return f.ProviderBlock() + a.Node("") + b.Node("  fabric = { endpoints = [{ address = \""+addr+"\" }] }") + link("")
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config("198.51.100.1")},
		{
			Config: config("198.51.100.2"), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			Check: func(*terraform.State) error {
				if l, _ := a.Daemon.Link(name); len(l.Addresses) != 1 || l.Addresses[0] != "198.51.100.2:9610" {
					return fmt.Errorf("addresses are %v", l.Addresses)
				}
				return nil
			},
		},
		{Config: config("198.51.100.2"), PlanOnly: true},
	}})
}

func TestLinkRefusals(t *testing.T) {
	for _, c := range []struct{ name, link, want string }{
		{"rdma", link(`  transport = "rdma"`), `(?s)RDMA is not available.*TCP only`},
		{"same node twice", strings.Replace(link(""), "mi300x_0", "h100_0", 1), `(?s)A link needs two nodes.*Both nodes are "h100-0"`},
		{"one node", strings.Replace(link(""), ", moai_node.mi300x_0", "", 1), `(?s)at least 2 elements`},
		{"streams", link(`  streams = 17`), `(?s)between 1 and 16`},
		{"encryption", link(`  encryption = "auto"`), `(?s)one of`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, _, nodes := twoHosts(t)
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(),
				Steps: []resource.TestStep{{Config: nodes + c.link, PlanOnly: true, ExpectError: flexible(c.want)}}})
		})
	}
}

func TestLinkThatDoesNotComeUp(t *testing.T) {
	f, a, _, nodes := twoHosts(t)
	config := nodes + link(`  timeouts = { create = "4s" }`)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{
			PreConfig: func() { a.Daemon.BreakLinks("dial tcp 192.0.2.1:9610: i/o timeout") },
			Config:    config, ExpectError: flexible(`(?s)KV link does not come up.*127\.0\.0\.1:9610.*h100-0 says: dial tcp 192\.0\.2\.1:9610: i/o timeout`),
		},
		{PreConfig: func() { a.Daemon.BreakLinks("") }, Config: config, ConfigStateChecks: []statecheck.StateCheck{known("verified", knownvalue.Bool(true))}},
	}})
}
