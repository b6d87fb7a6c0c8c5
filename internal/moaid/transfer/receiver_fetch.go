package transfer

// fetch asks for pages and credit for what is needed and not there yet.
func (r *Receiver) fetch(now Instant) []Effect {
	rs, err := r.o.Need(r.offer.Tokens, r.from)
	if err != nil {
		return r.finish(now, Ended{Aborted, CodeProtocol, err.Error()}, true)
	}
	own, err := r.o.Own(r.offer.Tokens)
	if err != nil {
		return r.finish(now, Ended{Aborted, CodeProtocol, err.Error()}, true)
	}
	for i := range r.ranks {
		r.ranks[i].own = own[i]
	}
	r.need = SetOf(rs...)
	r.state, r.deadline = Offered, now.Add(r.o.Timeouts.Progress)
	if missing := r.need.Sub(r.leased); len(missing) > 0 {
		if len(r.leasing) > 0 {
			return nil // pages for a shorter claim are on their way; onLeased comes back here
		}
		r.leasing = missing
		return []Effect{LeasePages{missing}}
	}
	if r.wanted() == 0 {
		return r.becomeReady(now)
	}
	return r.ask(nil)
}

func (r *Receiver) onLeased(now Instant, e Leased) []Effect {
	if len(r.leasing) == 0 || !e.OK {
		return nil
	}
	for _, x := range r.leasing {
		r.leased = r.leased.Add(x)
	}
	r.leasing = nil
	if r.state != Offered {
		return nil // the session was lost meanwhile; its return asks again
	}
	return r.fetch(now)
}

// wanted is what is leased, not verified and not credited in this session.
func (r *Receiver) wanted() int64 {
	var n int64
	for i := range r.ranks {
		k := &r.ranks[i]
		if k.open {
			n += k.granted.Bytes() - k.credit
		} else {
			n += r.missingOf(k).Bytes()
		}
	}
	return n
}

// missingOf is what a rank has pages for and has not got.
func (r *Receiver) missingOf(k *recvRank) Set { return r.leased.And(k.own).Sub(k.verified) }

func (r *Receiver) ask(out []Effect) []Effect {
	w := r.wanted()
	if w == r.asked {
		return out
	}
	r.asked = w
	return append(out, WantCredit{w})
}

// divide gives credit to whichever rank has least on its way, so that a rank
// whose bytes are not stored yet does not hold up the others.
func (r *Receiver) divide(n int64) {
	step := max(n/64, 4096)
	under := make([]int64, len(r.ranks))
	for i := range r.ranks {
		k := &r.ranks[i]
		under[i] = k.credit - (k.granted.Bytes() - k.granted.Sub(k.verified).Bytes())
	}
	for n > 0 {
		best := -1
		for i := range r.ranks {
			if r.ranks[i].credit < r.ranks[i].granted.Bytes() && (best < 0 || under[i] < under[best]) {
				best = i
			}
		}
		k := &r.ranks[best]
		d := min(step, n, k.granted.Bytes()-k.credit)
		k.credit, under[best], n = k.credit+d, under[best]+d, n-d
	}
}

// onCredit turns budget into grants and credit.
func (r *Receiver) onCredit(now Instant, e Credit) []Effect {
	n := min(e.Bytes, r.wanted())
	if (r.state != Offered && r.state != Receiving) || r.peer == 0 || len(r.leasing) > 0 || n <= 0 {
		if e.Bytes > 0 {
			return []Effect{ReturnBudget{e.Bytes}}
		}
		return nil
	}
	var out []Effect
	if n < e.Bytes {
		out = append(out, ReturnBudget{e.Bytes - n})
	}
	r.given += n
	if r.state == Offered {
		r.deadline = now.Add(r.o.Timeouts.Progress)
	}
	r.state = Receiving
	was := make([]int64, len(r.ranks))
	fresh := make([]bool, len(r.ranks))
	for i := range r.ranks {
		k := &r.ranks[i]
		if !k.open {
			k.granted, k.credit = r.missingOf(k), 0
			fresh[i] = true
		}
		k.open = true
		was[i] = k.credit
	}
	r.divide(n)
	for i := range r.ranks {
		k := &r.ranks[i]
		switch {
		case fresh[i] && len(k.granted) > 0:
			out = append(out, SendGrant{r.peer, i, k.granted, k.credit})
		case k.credit > was[i]:
			out = append(out, SendCredit{r.peer, i, k.credit})
		}
	}
	r.asked = r.wanted()
	return out
}
