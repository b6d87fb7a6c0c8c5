// Package pacing decides how many bytes a decode engine's senders may have on
// their way to it: an in-flight limit over all transfers, and optionally a rate.
// It is pure; time comes as an argument. Transfers are served in the order in
// which the caller lists them; only claimed ones may be listed.
package pacing

import "time"

// Quantum is the smallest piece of credit that is worth a message, in bytes,
// unless the transfer needs less: one chunk.
const Quantum = 256 << 10

// Budget is the ingest budget of one engine.
type Budget struct {
	limit    int64
	rate     int64 // bytes a second; 0 is unlimited
	inflight int64
	tokens   float64
	last     int64 // instant in ns of the last refill; 0: never
}

// New makes a budget of limit bytes in flight, and rate bytes a second if rate
// is positive.
func New(limit, rate int64) *Budget {
	return &Budget{limit: max(limit, 1), rate: max(rate, 0), tokens: float64(max(limit, 1))}
}

// SetLimit changes the in-flight limit. What is in flight beyond a lower one
// stays so until it arrives.
func (b *Budget) SetLimit(limit int64) { b.limit = max(limit, 1) }

// InFlight is what was given and neither verified nor given back, in bytes.
func (b *Budget) InFlight() int64 { return b.inflight }

// Give answers how much of want may be granted now (in ns), and counts it as in
// flight. It is 0 if less than a quantum could be given and more is wanted.
func (b *Budget) Give(now, want int64) int64 {
	b.refill(now)
	n := min(want, b.limit-b.inflight)
	if b.rate > 0 {
		n = min(n, int64(b.tokens))
	}
	if n <= 0 || n < min(want, Quantum, b.limit) {
		return 0
	}
	b.inflight += n
	if b.rate > 0 {
		b.tokens -= float64(n)
	}
	return n
}

// Return takes back n bytes: verified, or given to a transfer that ended.
func (b *Budget) Return(n int64) { b.inflight = max(b.inflight-n, 0) }

// Wait is how long after now to ask again for want bytes if only the rate is in
// the way; 0 if it is not.
func (b *Budget) Wait(now, want int64) time.Duration {
	b.refill(now)
	need := float64(min(want, Quantum, b.limit))
	if b.rate == 0 || b.limit-b.inflight < int64(need) || b.tokens >= need {
		return 0
	}
	// Wake-ups below a millisecond are not kept by the runtime.
	return max(time.Duration((need-b.tokens)/float64(b.rate)*float64(time.Second)), time.Millisecond)
}

// refill computes tokens from the time that has passed, never from the number
// of calls. The burst is the in-flight limit.
func (b *Budget) refill(now int64) {
	if b.rate == 0 {
		return
	}
	if b.last != 0 && now > b.last {
		b.tokens += float64(now-b.last) / float64(time.Second) * float64(b.rate)
	}
	b.tokens = min(b.tokens, float64(b.limit))
	b.last = max(b.last, now)
}
