package wire

// Probe announces Bytes of chunks of KindProbe. Hash is SHA-256 over the
// SHA-256 of each chunk, in the order of their offsets.
type Probe struct {
	ID    ID
	Bytes int64
	Hash  [32]byte
}

// Type is TypeProbe.
func (m *Probe) Type() byte { return TypeProbe }

// Append appends the frame.
func (m *Probe) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Probe) encode(e *encoder) {
	e.id(m.ID)
	e.size(m.Bytes, "bytes")
	e.hash(m.Hash)
}

func (m *Probe) decode(d *decoder) {
	m.ID = d.id("id")
	m.Bytes = d.size("bytes")
	m.Hash = d.hash("hash")
}

// ProbeResult says what arrived.
type ProbeResult struct {
	ID     ID
	Bytes  int64
	OK     bool
	Reason string
}

// Type is TypeProbeResult.
func (m *ProbeResult) Type() byte { return TypeProbeResult }

// Append appends the frame.
func (m *ProbeResult) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *ProbeResult) encode(e *encoder) {
	e.id(m.ID)
	e.size(m.Bytes, "bytes")
	var ok uint8
	if m.OK {
		ok = 1
	}
	e.u8(ok)
	e.str(m.Reason, "reason")
}

func (m *ProbeResult) decode(d *decoder) {
	m.ID = d.id("id")
	m.Bytes = d.size("bytes")
	m.OK = d.u8("ok") == 1
	m.Reason = d.str("reason")
}
