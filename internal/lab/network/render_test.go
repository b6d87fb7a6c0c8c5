package network

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

func lab(t *testing.T) plan.Plan {
	t.Helper()
	p, err := plan.New("moai")
	if err == nil {
		p, err = p.With([]string{"gateway", "h100-0", "mi300x-0"}, func() string { return "" })
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestScripts(t *testing.T) {
	p := lab(t)
	h := p.Hosts[1]
	for name, c := range map[string]struct{ got, want string }{
		"lab": {labScript(), `link set dev lo up
link add name br-mgmt type bridge forward_delay 0 stp_state 0
link set dev br-mgmt addrgenmode none
address add 10.77.0.1/24 dev br-mgmt
link set dev br-mgmt up
link add name br-fabric type bridge forward_delay 0 stp_state 0
link set dev br-fabric addrgenmode none
address add 10.78.0.1/24 dev br-fabric
link set dev br-fabric up
`},
		"cable": {strings.Join(cable(p, h, plan.Fabric), " "),
			"ip link add name fabric2 netns moai-net type veth peer name eth1 address 02:6c:4e:00:00:0c netns moai-h100-0"},
		"host": {hostScript(h), `link set dev lo up
address add 10.77.0.12/24 dev eth0
link set dev eth0 up
address add 10.78.0.12/24 dev eth1
link set dev eth1 up
`},
		"ports": {portScript(h), `link set dev mgmt2 addrgenmode none
link set dev mgmt2 master br-mgmt up
link set dev fabric2 addrgenmode none
link set dev fabric2 master br-fabric up
`},
		"links": {linkScript(h, "down"), "link set dev mgmt2 down\nlink set dev fabric2 down\n"},
		"cut two": {cutScript(false, p.Hosts[1:], []plan.Net{plan.Fabric}),
			`add element bridge lab cut { 02:6c:4e:00:00:0c . 02:6c:4e:00:00:0d }
add element bridge lab cut { 02:6c:4e:00:00:0d . 02:6c:4e:00:00:0c }
`},
		"heal one": {cutScript(true, p.Hosts[:1], plan.Nets), `add element bridge lab alone { 02:6c:4d:00:00:0b }
delete element bridge lab alone { 02:6c:4d:00:00:0b }
add element bridge lab alone { 02:6c:4e:00:00:0b }
delete element bridge lab alone { 02:6c:4e:00:00:0b }
`},
	} {
		if c.got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, c.got, c.want)
		}
	}
}

// TestNoWayOut checks that nothing names the root namespace or a route: every link command says in which namespaces.
func TestNoWayOut(t *testing.T) {
	p := lab(t)
	all := labScript() + hostScript(p.Hosts[0]) + portScript(p.Hosts[0])
	for _, word := range []string{"route", "default", "masquerade"} {
		if strings.Contains(all+filter, word) {
			t.Errorf("%q in the network's scripts", word)
		}
	}
	for _, n := range plan.Nets {
		if c := strings.Join(cable(p, p.Hosts[0], n), " "); strings.Count(c, " netns moai-") != 2 {
			t.Errorf("an end of this cable would be born in the root namespace: %s", c)
		}
	}
}
