package transfer

func (s *Sender) expire(now Instant) []Effect {
	e := Ended{Expired, CodeDeadline, "no progress in state " + string(s.state)}
	switch {
	case s.state == Reserved:
		e.Code, e.Detail = CodeNotOffered, "reserved and not offered in time"
	case s.state == Offered && s.claimant != "":
		e.Code, e.Detail = CodePeerGone, "the claiming daemon did not return in time"
	case s.state == Offered:
		e.Detail = "offered and not claimed in time"
	}
	return s.finish(now, e, true)
}

// finish ends the transfer. Pages that workers may still be writing are kept
// for the grace time.
func (s *Sender) finish(now Instant, e Ended, tell bool) []Effect {
	var out []Effect
	if tell && s.peer != 0 {
		code := e.Code
		out = append(out, SendAbort{s.peer, code, e.Detail})
	}
	s.state, s.end = e.Outcome, e
	out = append(out, e)
	if s.storing() {
		s.deadline = now.Add(s.o.Timeouts.Grace)
		return out
	}
	return s.free(now, out)
}

// storing reports whether a worker may still be writing.
func (s *Sender) storing() bool {
	for rank, own := range s.o.Own {
		if s.stored[rank].Bytes() < own.Bytes() {
			return true
		}
	}
	return false
}

func (s *Sender) free(now Instant, out []Effect) []Effect {
	if s.freed {
		return out
	}
	s.freed, s.deadline = true, now.Add(s.o.Timeouts.Retain)
	return append(out, FreePages{})
}

// after handles events of an ended transfer: requests get the answer that they
// would have got, and late messages of the peer are told that it is over.
func (s *Sender) after(now Instant, ev Event) ([]Effect, error) {
	var out []Effect
	if !s.freed && now >= s.deadline {
		out = s.free(now, out)
	}
	switch e := ev.(type) {
	case ChunkSent:
		s.inflight--
		if !e.Failed {
			s.sent += e.Length
			s.chunks++
		}
	case Stored:
		after, err := s.addStored(e)
		if err != nil {
			return out, err
		}
		s.stored[e.Rank] = after
		if !s.freed && !s.storing() {
			out = s.free(now, out)
		}
	case EngineGone:
		if e.Fenced {
			out = s.free(now, out)
		}
	case Offer:
		if s.offer != nil && *s.offer == e {
			return out, nil
		}
		return out, refuse("unknown_id", "the transfer has ended: %s", s.why())
	case PeerClaim:
		out = append(out, SendAbort{e.Session, s.abortCode(), s.why()})
	case PeerGrant:
		out = append(out, SendAbort{e.Session, s.abortCode(), s.why()})
	}
	return out, nil
}

func (s *Sender) abortCode() Code {
	if s.end.Code == "" {
		return CodeNotOffered
	}
	return s.end.Code
}

func (s *Sender) why() string {
	if s.end.Detail == "" {
		return string(s.end.Outcome)
	}
	return string(s.end.Outcome) + ": " + s.end.Detail
}
