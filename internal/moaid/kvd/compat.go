package kvd

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// format is a fingerprint with its hash, by which verdicts and converters are kept.
type format struct {
	kvcache.Fingerprint
	hash string
}

func formatOf(fp kvcache.Fingerprint) format { return format{fp, fp.Hash()} }

// compatCache remembers verdicts. It is emptied when the pairs change.
type compatCache struct {
	m map[compatKey]kvcompat.Verdict
}

type compatKey struct {
	prefill, decode string
	options         kvcompat.Options
}

// Bounds of what is remembered of formats that peers announce. A converter of large
// blocks has tables of a megabyte.
const (
	maxVerdicts   = 256
	maxConverters = 32
)

func (c *compatCache) check(prefill, decode format, o kvcompat.Options) kvcompat.Verdict {
	key := compatKey{prefill.hash, decode.hash, o}
	if v, ok := c.m[key]; ok {
		return v
	}
	if c.m == nil || len(c.m) >= maxVerdicts {
		c.m = map[compatKey]kvcompat.Verdict{}
	}
	v := kvcompat.Check(prefill.Fingerprint, decode.Fingerprint, o)
	c.m[key] = v
	return v
}

// converterCache remembers converters, of formats between which KV may cross.
type converterCache struct {
	m map[[2]string]converterOrError
}

type converterOrError struct {
	c   *convert.Converter
	err error
}

func (c *converterCache) get(prefill, decode format) (*convert.Converter, error) {
	key := [2]string{prefill.hash, decode.hash}
	if v, ok := c.m[key]; ok {
		return v.c, v.err
	}
	if c.m == nil || len(c.m) >= maxConverters {
		c.m = map[[2]string]converterOrError{}
	}
	conv, err := convert.New(prefill.Fingerprint, decode.Fingerprint)
	c.m[key] = converterOrError{conv, err}
	return conv, err
}

// options are what the operator allows between two engines: what every pair on
// this node that joins them allows. ok is false if none does.
func (d *Daemon) options(prefill, decode api.PeerEngine) (o kvcompat.Options, ok bool) {
	for _, p := range d.pairs {
		if !contains(p.Prefill, prefill) || !contains(p.Decode, decode) {
			continue
		}
		if !ok {
			o, ok = p.Options, true
			continue
		}
		o.AllowLossy = o.AllowLossy && p.AllowLossy
		o.AllowReleases = o.AllowReleases && p.AllowReleases
	}
	return o, ok
}

// recheck ends what leaves this node in a way that pairs do not allow any more. What
// was paired and is not may end as it began.
func (d *Daemon) recheck() {
	d.eachSend(func(t *sending) {
		node, name, ok := parsePeerName(t.m.Claimant())
		if !ok || t.conversion == nil || t.m.State().Terminal() {
			return
		}
		e := t.replica.engine
		o, paired := d.options(api.PeerEngine{Node: d.cfg.Node, Engine: e.reg.Name}, api.PeerEngine{Node: node, Engine: name})
		if !paired {
			return
		}
		if err := d.compat.check(e.format, t.conversion.to, o).Err(); err != nil {
			_ = d.stepSend(t, transfer.Fail{Code: codeIncompatible, Detail: err.Error()})
		}
	})
}

// compatibility is what an engine's status says of the peers' engines that pairs
// join with it.
type compatibility struct {
	incompatible []string
	conversions  []api.Conversion
}

// compatibilityOf compares an engine with those of peers whose formats are known.
func (d *Daemon) compatibilityOf(e *engine) compatibility {
	var out compatibility
	here := api.PeerEngine{Node: d.cfg.Node, Engine: e.reg.Name}
	done := map[[2]api.PeerEngine]bool{}
	compare := func(prefill, decode, other api.PeerEngine) {
		key := [2]api.PeerEngine{prefill, decode}
		ps := d.peers[other.Node]
		if ps == nil || done[key] {
			return
		}
		theirs, known := ps.known[other.Engine]
		if !known {
			return
		}
		done[key] = true
		p, q := e.format, theirs
		if other == prefill {
			p, q = theirs, e.format
		}
		o, _ := d.options(prefill, decode)
		v := d.compat.check(p, q, o)
		if err := v.Err(); err != nil {
			out.incompatible = append(out.incompatible, fmt.Sprintf("%s → %s: %v", peerName(prefill.Node, prefill.Engine), peerName(decode.Node, decode.Engine), err))
			return
		}
		out.conversions = append(out.conversions, api.Conversion{Prefill: prefill, Decode: decode, Class: v.Class, Text: v.Conversion()})
	}
	for _, p := range sortedPairs(d.pairs) {
		if contains(p.Prefill, here) {
			for _, o := range p.Decode {
				compare(here, o, o)
			}
		}
		if contains(p.Decode, here) {
			for _, o := range p.Prefill {
				compare(o, here, o)
			}
		}
	}
	return out
}
