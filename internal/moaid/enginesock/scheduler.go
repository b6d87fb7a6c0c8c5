package enginesock

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Sending is what a scheduler knows of an id that it sends.
type Sending struct {
	Extents [][]Extent        // a list a rank; nil until pages are reserved
	Ranges  [][]kvcache.Range // a list a rank: what this rank stores of the payload, in its extents; may be empty
	NoRoom  bool              // waits for room
	Err     error             // the daemon refused; final
	Ended   *Released         // the id has ended

	// Instance of the daemon that leased the extents. Nothing may be written to
	// them by a worker whose arena another instance has.
	Instance string
}

type sending struct {
	Sending
	reserve  Reserve
	offer    *Offer
	withdraw *Withdraw
}

type claimed struct {
	state    ClaimState
	instance string // of the daemon that said so
	claim    Claim
	release  *Release
}

// SchedulerClient is an engine's scheduler session. Its methods return at once:
// they note what is wanted, and what the daemon said last is read with Sending
// and Poll. What was not answered is repeated when the session comes back.
type SchedulerClient struct {
	s      *session
	notify func()

	mu     sync.Mutex
	sends  map[string]*sending
	claims map[string]*claimed
}

// NewScheduler makes a client; Run opens its session. notify, if not nil, is
// called when anything that can be polled has changed; it must not block.
func NewScheduler(id Identity, log *slog.Logger, notify func()) *SchedulerClient {
	if notify == nil {
		notify = func() {}
	}
	c := &SchedulerClient{notify: notify, sends: map[string]*sending{}, claims: map[string]*claimed{}}
	c.s = newSession(id, hooks{open: c.open, event: c.event, down: notify}, log)
	return c
}

// Run keeps the session until ctx ends.
func (c *SchedulerClient) Run(ctx context.Context) { c.s.run(ctx) }

// State is nil while the session is up.
func (c *SchedulerClient) State() error { return c.s.state() }

// Registration is what the daemon said last of the engine's registration.
func (c *SchedulerClient) Registration() Registration { return c.s.registration() }

// Reserve asks for pages. An id is reserved once.
func (c *SchedulerClient) Reserve(id string, tokens int, target *Endpoint) {
	c.mu.Lock()
	if c.sends[id] != nil {
		c.mu.Unlock()
		return
	}
	c.sends[id] = &sending{reserve: Reserve{ID: id, Tokens: tokens, Target: target}}
	c.mu.Unlock()
	c.sendReserve(id)
}

func (c *SchedulerClient) sendReserve(id string) {
	c.mu.Lock()
	t := c.sends[id]
	if t == nil {
		c.mu.Unlock()
		return
	}
	t.NoRoom = false
	r := t.reserve
	c.mu.Unlock()
	c.s.start(&r, nil, func(ok *OK, _ *os.File, err error) {
		c.mu.Lock()
		if t := c.sends[id]; t != nil {
			var refused *Error
			switch {
			case err == nil:
				t.Extents, t.Ranges, t.Instance = ok.Extents, ok.RankRanges, c.s.instanceNow()
			case errors.Is(err, ErrDown):
			case errors.As(err, &refused) && refused.Code == CodeNoRoom:
				t.NoRoom = true
			case t.Extents == nil:
				t.Err = err
			case t.Ended == nil: // asked again after a session was lost, and the event with it
				t.Ended = &Released{T: TypeReleased, ID: id, Outcome: Aborted, Reason: "it ended while there was no session: " + err.Error()}
			}
		}
		c.mu.Unlock()
		c.notify()
	})
}

// Offer says that the prompt's KV is, or will be, in the reserved pages.
func (c *SchedulerClient) Offer(id string, tokens int, hash string) {
	o := &Offer{ID: id, Tokens: tokens, TokenHash: hash}
	c.mu.Lock()
	if t := c.sends[id]; t != nil {
		t.offer = o
	}
	c.mu.Unlock()
	again := *o
	c.s.start(&again, nil, c.sendRefused(id))
}

// Withdraw says that the prefill was aborted.
func (c *SchedulerClient) Withdraw(id, reason string) {
	c.mu.Lock()
	if t := c.sends[id]; t != nil {
		t.withdraw = &Withdraw{ID: id, Reason: reason}
	}
	c.mu.Unlock()
	c.s.start(&Withdraw{ID: id, Reason: reason}, nil, c.withdrawn(id))
}

// withdrawn ends an id that the daemon does not know: it was withdrawn before
// there were pages for it, so that no event will tell its end.
func (c *SchedulerClient) withdrawn(id string) func(*OK, *os.File, error) {
	return func(_ *OK, _ *os.File, err error) {
		if !errors.Is(err, &Error{Code: CodeUnknownID}) {
			return
		}
		c.mu.Lock()
		if t := c.sends[id]; t != nil && t.withdraw != nil && t.Ended == nil {
			t.NoRoom, t.Ended = false, &Released{T: TypeReleased, ID: id, Outcome: Withdrawn, Reason: t.withdraw.Reason}
		}
		c.mu.Unlock()
		c.notify()
	}
}

func (c *SchedulerClient) sendRefused(id string) func(*OK, *os.File, error) {
	return func(_ *OK, _ *os.File, err error) {
		if err == nil || errors.Is(err, ErrDown) {
			return
		}
		c.mu.Lock()
		if t := c.sends[id]; t != nil {
			t.Err = err
		}
		c.mu.Unlock()
		c.notify()
	}
}

// Sending tells what is known of an id; false if it was never reserved or is forgotten.
func (c *SchedulerClient) Sending(id string) (Sending, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.sends[id]
	if t == nil {
		return Sending{}, false
	}
	return t.Sending, true
}

// Forget drops what is known of an id, sent or claimed. The daemon is told nothing.
func (c *SchedulerClient) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sends, id)
	delete(c.claims, id)
}

// Claim says that the prompt has arrived here. A claim of a known id with a
// smaller from_token extends it; any other repetition does nothing.
func (c *SchedulerClient) Claim(m Claim) {
	c.mu.Lock()
	t := c.claims[m.ID]
	if t != nil && (t.release != nil || m.FromToken >= t.claim.FromToken || t.state.Verdict == Failed) {
		c.mu.Unlock()
		return
	}
	c.claims[m.ID] = &claimed{claim: m, state: ClaimState{Verdict: Pending}}
	c.mu.Unlock()
	c.sendClaim(m)
}

func (c *SchedulerClient) sendClaim(m Claim) {
	from := m.FromToken
	c.s.start(&m, nil, func(ok *OK, _ *os.File, err error) {
		c.mu.Lock()
		if t := c.claims[m.ID]; t != nil && t.release == nil && t.claim.FromToken == from {
			switch {
			case errors.Is(err, ErrDown):
			case err != nil:
				t.state = ClaimState{Verdict: Failed, Code: FailCancelled, Reason: err.Error()}
			case ok.Verdict == Pending: // a verdict event that overtook this answer stands
			default:
				t.state, t.instance = ok.ClaimState, c.s.instanceNow()
			}
		}
		c.mu.Unlock()
		c.notify()
	})
}

// Poll reads the stored verdict of a claim, and which instance of the daemon gave
// it; it costs no I/O. An id that was never claimed is pending.
func (c *SchedulerClient) Poll(id string) (state ClaimState, instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.claims[id]; t != nil {
		return t.state, t.instance
	}
	return ClaimState{Verdict: Pending}, ""
}

// Release says that the engine will not load a claimed id.
func (c *SchedulerClient) Release(id, reason string) {
	r := &Release{ID: id, Reason: reason}
	c.mu.Lock()
	if t := c.claims[id]; t != nil {
		t.release = r
	}
	c.mu.Unlock()
	again := *r
	c.s.start(&again, nil, func(_ *OK, _ *os.File, err error) {
		if errors.Is(err, ErrDown) {
			return
		}
		c.mu.Lock()
		delete(c.claims, id)
		c.mu.Unlock()
	})
}

// Report sends load feedback; it is dropped while there is no session.
func (c *SchedulerClient) Report(st Stats) {
	c.s.start(&st, nil, func(*OK, *os.File, error) {})
}

func (c *SchedulerClient) event(r Reply) {
	c.mu.Lock()
	var retry []string
	switch m := r.(type) {
	case *Room:
		for id, t := range c.sends {
			if t.NoRoom && t.withdraw == nil {
				retry = append(retry, id)
			}
		}
	case *Released:
		if t := c.sends[m.ID]; t != nil {
			t.Ended = m
		}
	case *VerdictEvent:
		if t := c.claims[m.ID]; t != nil && t.release == nil {
			t.state, t.instance = m.ClaimState, c.s.instanceNow()
		}
	case *Closed:
		delete(c.claims, m.ID)
	}
	c.mu.Unlock()
	slices.Sort(retry)
	for _, id := range retry {
		c.sendReserve(id)
	}
	c.notify()
}

// open repeats what the daemon may not have heard. What has pages is reserved
// again too: the event that told its end may have been lost, and then that is
// refused.
func (c *SchedulerClient) open(_ context.Context, _ *OK, restarted bool) error {
	c.mu.Lock()
	var again []Request
	var reserve []string
	var offers []Offer
	var withdraw []Withdraw
	var claims []Claim
	for id, t := range c.sends {
		switch {
		case t.Ended != nil || t.Err != nil:
		case restarted && (t.Extents != nil || t.withdraw != nil):
			t.Ended = &Released{T: TypeReleased, ID: id, Outcome: Aborted, Reason: "the KV daemon was restarted"}
		case t.withdraw != nil:
			withdraw = append(withdraw, *t.withdraw)
			if t.Extents != nil {
				reserve = append(reserve, id)
			}
		default:
			reserve = append(reserve, id)
			if t.offer != nil {
				offers = append(offers, *t.offer)
			}
		}
	}
	for id, t := range c.claims {
		switch {
		case t.release != nil && restarted:
			delete(c.claims, id)
		case t.release != nil:
			r := *t.release
			again = append(again, &r)
		case t.state.Verdict == Failed:
		default: // a ready claim of a restarted daemon has lost its bytes
			if restarted {
				t.state = ClaimState{Verdict: Pending}
			}
			claims = append(claims, t.claim)
		}
	}
	c.mu.Unlock()
	for _, r := range again {
		c.s.start(r, nil, func(*OK, *os.File, error) {})
	}
	for _, w := range withdraw {
		c.s.start(&w, nil, c.withdrawn(w.ID))
	}
	for _, id := range reserve {
		c.sendReserve(id)
	}
	for _, o := range offers {
		c.s.start(&o, nil, func(*OK, *os.File, error) {})
	}
	for _, m := range claims {
		c.sendClaim(m)
	}
	return nil
}
