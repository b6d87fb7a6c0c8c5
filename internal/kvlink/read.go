package kvlink

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

const keptText = "The last known state of the link is kept: a daemon that does not answer has forgotten nothing."

// Read implements resource.Resource. The link is gone only when both daemons say so. A daemon that is stopped is a change in
// the plan, as for its node, and no warning that would outlive the apply that starts it.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Read(ctx, defaultReadTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	m.Nodes = noderef.FollowList(r.fleet, m.Nodes)
	s, ok := m.spec()
	if !ok {
		return
	}
	importing := m.Verified.IsNull()
	var found [2]found
	var silent [2]bool
	err := func() (err error) {
		if importing {
			if s, err = r.recover(ctx, s, &m); err != nil {
				return err
			}
		}
		c := newConverger(r.fleet, s)
		if err := c.verifyNodes(ctx); err != nil {
			return err
		}
		for i := range c.ends {
			found[i], err = c.read(ctx, i)
			var down *fleet.SilentError
			switch {
			case err == nil:
			case !importing && errors.As(err, &down):
				silent[i] = true
			default:
				return err
			}
		}
		return nil
	}()
	switch {
	case err != nil && (importing || whole.Err() != nil):
		sub := subject("read the link", s, err)
		sub.Importing = importing
		resp.Diagnostics.Append(diagnose.Error(sub, err))
		return
	case err != nil:
		resp.Diagnostics.Append(diagnose.Warning(subject("read the link", s, err), err, keptText))
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...) // where the nodes are now
		return
	case found[0].none() && found[1].none() && importing:
		resp.Diagnostics.Append(diagnose.Refusal(subject("read the link", s, nil), "Nothing to import", fmt.Sprintf("Neither node has a link %q.", s.name)))
		return
	case found[0].none() && found[1].none() && silent == [2]bool{}:
		resp.State.RemoveResource(ctx)
		return
	}
	status := map[string]string{}
	for i, e := range s.ends() {
		status[e.node.Name] = e.judge(found[i].trust, found[i].link)
		if silent[i] {
			status[e.node.Name] = stSilent
		}
	}
	m.setEnds(status)
	if importing {
		m.Verified = types.BoolValue(true)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// recover completes an imported link with what machines and daemons say.
func (r *Resource) recover(ctx context.Context, s spec, m *model) (spec, error) {
	for i := range s.nodes {
		n := &s.nodes[i]
		node := r.fleet.Node(n.Coordinates)
		f, err := node.Facts(ctx)
		if err != nil {
			return s, at(i, err)
		}
		n.MachineID, n.Vendor = f.MachineID, f.Vendor
		d, err := node.Manage().Status(ctx)
		if err != nil {
			return s, at(i, err)
		}
		n.PublicKey = d.PublicKey
		for _, l := range d.Links {
			if l.Name != s.name {
				continue
			}
			s.encryption, s.streams = l.Encryption, l.Streams
			if s.nodes[1-i].Fabric, err = fabricOf(l.Addresses, s.nodes[1-i].Host); err != nil {
				return s, at(i, err)
			}
		}
	}
	m.Encryption, m.Streams = types.StringValue(string(s.encryption)), types.Int64Value(int64(s.streams))
	m.Nodes = types.ListValueMust(noderef.Type(), []attr.Value{noderef.Encode(s.nodes[0]), noderef.Encode(s.nodes[1])})
	return s, nil
}

// fabricOf reads a node's endpoints from the addresses at which its peer looks for it; the SSH host at the default port is
// what a node without fabric has.
func fabricOf(addresses []string, sshHost string) ([]fleet.Endpoint, error) {
	var out []fleet.Endpoint
	for _, a := range addresses {
		e, err := fleet.ParseEndpoint(a)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	if len(out) == 1 && out[0] == (fleet.Endpoint{Address: sshHost, Port: fleet.DefaultFabricPort}) {
		return nil, nil
	}
	return out, nil
}
