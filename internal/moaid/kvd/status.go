package kvd

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

func now() time.Time { return time.Now() }

func (d *Daemon) getStatus(w http.ResponseWriter, r *http.Request) {
	s := d.store.Get()
	st := api.Status{
		Node: d.cfg.Node, PublicKey: d.identity.PublicString(), Instance: d.instance.String(), ContentSHA256: d.cfg.ContentSHA256,
		StartedAt: d.started, Listen: d.cfg.Listen, Trust: []api.Trust{}, Links: []api.LinkStatus{}, Engines: []api.EngineStatus{}, Pairs: sortedPairs(s.Pairs),
		Transfers: map[string]int{},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Trust)) {
		st.Trust = append(st.Trust, s.Trust[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Links)) {
		st.Links = append(st.Links, d.linkStatus(s.Links[name]))
	}
	if st.Pairs == nil {
		st.Pairs = []api.Pair{}
	}
	err := d.own.call(r.Context(), func() {
		for _, name := range slices.Sorted(maps.Keys(d.engines)) {
			e := d.engines[name]
			st.Engines = append(st.Engines, e.status(d.own.now(), d.compatibilityOf(e)))
		}
		for _, t := range d.sends {
			if !t.m.State().Terminal() {
				st.Transfers[string(t.m.State())]++
			}
		}
		for _, t := range d.recvs {
			if !t.m.State().Terminal() {
				st.Transfers[string(t.m.State())]++
			}
		}
	})
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, st)
}

// transfers lists live and remembered transfers, oldest first.
func (d *Daemon) transfers() []api.Transfer {
	type row struct {
		at transfer.Instant
		t  api.Transfer
	}
	var rows []row
	now := d.own.now()
	for _, t := range d.sends {
		bytes, chunks := t.m.Moved()
		peer := t.m.Claimant()
		if peer == "" && t.target.Node != "" {
			peer = peerName(t.target.Node, t.target.Engine)
		}
		x := api.Transfer{ID: t.id.String(), Direction: "send", State: string(t.m.State()), Engine: t.replica.engine.reg.Name, DataRank: t.replica.rank, Peer: peer, Tokens: t.tokens,
			BytesExpected: t.expected, Conversion: t.conversionText(), ValuesClipped: t.changed.Clipped, ValuesRounded: t.changed.Rounded, BytesMoved: bytes, Chunks: chunks, Encryption: t.encryption, AgeSeconds: seconds(t.began, now),
			OfferSeconds: seconds(t.began, t.offered)}
		if t.m.State().Terminal() {
			x.Reason = reason(t.m.End())
		}
		rows = append(rows, row{t.began, x})
	}
	for _, t := range d.recvs {
		bytes, chunks := t.m.Moved()
		x := api.Transfer{ID: t.id.String(), Direction: "receive", State: string(t.m.State()), Engine: t.replica.engine.reg.Name, DataRank: t.replica.rank, Peer: peerName(t.source.Node, t.source.Engine),
			Tokens: t.m.Tokens(), FromToken: t.m.From(), BytesExpected: t.m.Expected(), BytesMoved: bytes, Chunks: chunks, Encryption: t.encryption,
			AgeSeconds: seconds(t.began, now), OfferSeconds: seconds(t.began, t.offered), ReceiveSeconds: seconds(t.offered, t.ready)}
		if t.m.State().Terminal() {
			x.Reason = reason(t.m.End())
			if t.m.State() == transfer.Committed {
				x.LoadSeconds = seconds(t.ready, t.ended)
			}
		}
		rows = append(rows, row{t.began, x})
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.t.ID, b.t.ID)) })
	out := make([]api.Transfer, len(rows))
	for i, r := range rows {
		out[i] = r.t
	}
	return out
}
