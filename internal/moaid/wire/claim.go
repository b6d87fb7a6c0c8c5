package wire

import "time"

// Claim says that the request with this id has arrived at decode.
type Claim struct {
	ID             ID
	SourceEngine   string
	ClaimantEngine string
	LifetimeMS     uint32
}

// Type is TypeClaim.
func (m *Claim) Type() byte { return TypeClaim }

// Append appends the frame.
func (m *Claim) Append(b []byte) []byte { return appendFrame(b, m) }

// Lifetime is LifetimeMS as a duration.
func (m *Claim) Lifetime() time.Duration { return time.Duration(m.LifetimeMS) * time.Millisecond }

func (m *Claim) encode(e *encoder) {
	e.id(m.ID)
	e.str(m.SourceEngine, "source engine")
	e.str(m.ClaimantEngine, "claimant engine")
	e.u32(m.LifetimeMS)
}

func (m *Claim) decode(d *decoder) {
	m.ID = d.id("id")
	m.SourceEngine = d.str("source engine")
	m.ClaimantEngine = d.str("claimant engine")
	m.LifetimeMS = d.u32("lifetime")
}
