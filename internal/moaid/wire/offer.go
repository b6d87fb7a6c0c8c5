package wire

import "time"

// Offer says that the KV of a prompt is, or will be, in prefill's host pages.
type Offer struct {
	ID           ID
	SourceEngine string
	TargetEngine string
	Tokens       uint32
	TokenHash    [32]byte
	LifetimeMS   uint32
}

// Type is TypeOffer.
func (m *Offer) Type() byte { return TypeOffer }

// Append appends the frame.
func (m *Offer) Append(b []byte) []byte { return appendFrame(b, m) }

// Lifetime is LifetimeMS as a duration.
func (m *Offer) Lifetime() time.Duration { return time.Duration(m.LifetimeMS) * time.Millisecond }

func (m *Offer) encode(e *encoder) {
	e.id(m.ID)
	e.str(m.SourceEngine, "source engine")
	e.str(m.TargetEngine, "target engine")
	e.u32(m.Tokens)
	e.hash(m.TokenHash)
	e.u32(m.LifetimeMS)
}

func (m *Offer) decode(d *decoder) {
	m.ID = d.id("id")
	m.SourceEngine = d.str("source engine")
	m.TargetEngine = d.str("target engine")
	m.Tokens = d.u32("tokens")
	m.TokenHash = d.hash("token hash")
	m.LifetimeMS = d.u32("lifetime")
}
