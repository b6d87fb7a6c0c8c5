package transfer

import "slices"

func (r *Receiver) reported() int {
	n := 0
	for _, v := range r.reports {
		if v != 0 {
			n++
		}
	}
	return n
}

func (r *Receiver) onLoaded(now Instant, e Loaded) ([]Effect, error) {
	if e.Rank < 0 || e.Rank >= len(r.reports) {
		return nil, refuse("bad_request", "the engine has no rank %d", e.Rank)
	}
	if r.reports[e.Rank] != 0 {
		return nil, refuse("duplicate", "rank %d has reported already", e.Rank)
	}
	if (r.state != Ready && r.state != Loading) || r.connector == nil {
		return nil, refuse("conflict", "nothing is ready to be loaded, the transfer is %s", r.state)
	}
	r.report(e)
	r.state = Loading
	if r.reported() < len(r.reports) {
		return nil, nil
	}
	switch {
	case r.ending != nil:
		return r.finish(now, *r.ending, true), nil
	case slices.Contains(r.reports, -1):
		return r.finish(now, Ended{Aborted, CodeLoadFailed, "a rank could not load"}, true), nil
	}
	return r.finish(now, Ended{Outcome: Committed}, true), nil
}

func (r *Receiver) report(e Loaded) {
	r.reports[e.Rank] = -1
	if e.OK {
		r.reports[e.Rank] = 1
	}
}

func (r *Receiver) onRelease(now Instant, e Release) []Effect {
	end := Ended{Aborted, CodeNotNeeded, e.Detail}
	if r.state == Loading && r.ending == nil || r.state == Ready && e.Loading {
		r.state, r.ending = Loading, &end
		return nil
	}
	if r.state == Loading {
		return nil
	}
	return r.finish(now, end, true)
}

// onCancel waits for an engine that was told that it may load, but not long.
func (r *Receiver) onCancel(now Instant, end Ended) []Effect {
	if (r.state == Ready && r.connector != nil) || r.state == Loading {
		if r.ending == nil {
			r.ending = &end
			r.deadline = min(r.deadline, now.Add(r.o.Timeouts.Grace))
		}
		return nil
	}
	return r.finish(now, end, true)
}

func (r *Receiver) onAbort(now Instant, e PeerAbort) []Effect {
	if e.Session != r.peer || r.peer == 0 {
		return nil
	}
	switch {
	case e.Code == CodeCancelled:
		return r.onCancel(now, Ended{Aborted, e.Code, e.Detail})
	case r.state == Ready || r.state == Loading:
		return nil // every byte is here and right: the prefill side is not needed any more
	}
	return r.finish(now, Ended{Aborted, e.Code, e.Detail}, false)
}

func (r *Receiver) expire(now Instant) []Effect {
	e := Ended{Outcome: Aborted, Code: CodeDeadline}
	switch {
	case r.ending != nil:
		e = *r.ending
	case r.state == Claimed && r.offer == nil && r.peer == 0:
		e.Code, e.Detail = CodePeerGone, "there was no session with the prefill node"
	case r.state == Claimed && r.offer == nil:
		e.Code, e.Detail = CodeNotOffered, "the prefill node did not offer it in time"
	case r.state == Claimed:
		e.Code, e.Detail = CodePeerGone, "the prefill node did not return in time"
	case r.state == Offered:
		e.Code, e.Detail = CodeNoRoom, "no staging pages or in-flight budget became free in time"
	case r.state == Receiving:
		e.Detail = "no bytes arrived in time"
	case r.state == Ready:
		e.Detail = "it was ready and not loaded in time"
	default:
		e.Detail = "not every rank reported in time"
	}
	return r.finish(now, e, true)
}

// finish ends the transfer. Pages that workers may still be reading are kept
// until they have reported, at most for the grace time.
func (r *Receiver) finish(now Instant, e Ended, tell bool) []Effect {
	mayLoad := r.connector != nil && (r.state == Ready || r.state == Loading) && r.reported() < len(r.reports)
	hadReady := r.verdict.Ready
	var out []Effect
	r.state, r.end = e.Outcome, e
	if tell {
		out = r.tell(out)
	}
	out = r.giveBack(out, r.given)
	if r.asked != 0 {
		r.asked = 0
		out = append(out, WantCredit{0})
	}
	if e.Outcome != Committed {
		r.verdict = Verdict{Code: e.Code, Detail: e.Detail}
		if !hadReady {
			out = append(out, VerdictReached{r.verdict})
		}
	}
	out = append(out, e)
	if mayLoad {
		r.deadline = now.Add(r.o.Timeouts.Grace)
		return out
	}
	return r.free(now, out)
}

// tell sends the end to the peer, if there is a session with it.
func (r *Receiver) tell(out []Effect) []Effect {
	switch {
	case r.peer == 0:
		return out
	case r.state == Committed:
		return append(out, SendCommit{r.peer})
	}
	return append(out, SendAbort{r.peer, r.end.Code, r.end.Detail})
}

func (r *Receiver) free(now Instant, out []Effect) []Effect {
	if r.freed {
		return out
	}
	r.freed, r.deadline = true, now.Add(r.o.Timeouts.Retain)
	return append(out, FreePages{})
}

// after handles events of an ended transfer.
func (r *Receiver) after(now Instant, ev Event) ([]Effect, error) {
	var out []Effect
	if !r.freed && now >= r.deadline {
		out = r.free(now, out)
	}
	switch e := ev.(type) {
	case PeerUp:
		if e.Session != r.peer {
			r.peer = e.Session
			out = r.tell(out) // the first telling may have been lost with its session
		}
	case PeerDown:
		if e.Session == r.peer {
			r.peer = 0
		}
	case PeerOffer:
		if e.Session == r.peer {
			out = r.tell(out)
		}
	case Credit:
		if e.Bytes > 0 {
			out = append(out, ReturnBudget{e.Bytes})
		}
	case Claim:
		if r.connector != nil && (r.connector.Tokens != e.Tokens || r.connector.Hash != e.Hash) {
			return out, refuse("conflict", "this id was claimed for another prompt")
		}
		if r.connector == nil {
			r.connector = &e
		}
	case Loaded:
		switch {
		case e.Rank < 0 || e.Rank >= len(r.reports):
			return out, refuse("bad_request", "the engine has no rank %d", e.Rank)
		case r.reports[e.Rank] != 0:
			return out, refuse("duplicate", "rank %d has reported already", e.Rank)
		case r.freed:
			return out, refuse("unknown_id", "the transfer has ended")
		}
		r.report(e)
		if r.reported() == len(r.reports) {
			out = r.free(now, out)
		}
	case EngineGone:
		if e.Fenced {
			out = r.free(now, out)
		}
	}
	return out, nil
}
