package wire

// Ping asks for a Pong with the same nonce.
type Ping struct {
	Nonce uint64
}

// Type is TypePing.
func (m *Ping) Type() byte { return TypePing }

// Append appends the frame.
func (m *Ping) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Ping) encode(e *encoder) { e.u64(m.Nonce) }
func (m *Ping) decode(d *decoder) { m.Nonce = d.u64("nonce") }

// Pong answers a Ping. Frames are handled in order: it also says that
// everything sent before the Ping was.
type Pong struct {
	Nonce uint64
}

// Type is TypePong.
func (m *Pong) Type() byte { return TypePong }

// Append appends the frame.
func (m *Pong) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Pong) encode(e *encoder) { e.u64(m.Nonce) }
func (m *Pong) decode(d *decoder) { m.Nonce = d.u64("nonce") }
