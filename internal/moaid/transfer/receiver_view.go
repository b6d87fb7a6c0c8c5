package transfer

// State is the current state.
func (r *Receiver) State() State { return r.state }

// End is how it ended; meaningful in a terminal state.
func (r *Receiver) End() Ended { return r.end }

// Deadline is when the caller must Tick.
func (r *Receiver) Deadline() Instant { return r.deadline }

// Done reports that an ended transfer need not be remembered any more.
func (r *Receiver) Done(now Instant) bool {
	return r.state.Terminal() && r.freed && now >= r.deadline
}

// Verdict is the answer to a claim.
func (r *Receiver) Verdict() Verdict { return r.verdict }

// HasConnector reports whether the engine has claimed.
func (r *Receiver) HasConnector() bool { return r.connector != nil }

// From is the number of tokens that the engine has itself.
func (r *Receiver) From() int { return r.from }

// Tokens is the length of the prompt, 0 while unknown.
func (r *Receiver) Tokens() int {
	switch {
	case r.offer != nil:
		return r.offer.Tokens
	case r.connector != nil:
		return r.connector.Tokens
	}
	return 0
}

// Expected is the number of bytes that must travel, over all ranks.
func (r *Receiver) Expected() int64 {
	var n int64
	for i := range r.ranks {
		n += r.need.And(r.ranks[i].own).Bytes()
	}
	return n
}

// Moved is the number of verified payload bytes and chunks, over all ranks.
func (r *Receiver) Moved() (bytes, chunks int64) { return r.moved, r.chunks }

// Wanted is how many bytes more may be granted, over all ranks.
func (r *Receiver) Wanted() int64 {
	if (r.state != Offered && r.state != Receiving) || r.peer == 0 || len(r.leasing) > 0 {
		return 0
	}
	return r.wanted()
}

// Given is the in-flight budget that this transfer holds.
func (r *Receiver) Given() int64 { return r.given }
