package wire

// Commit says that decode's engine has loaded the KV.
type Commit struct {
	ID ID
}

// Type is TypeCommit.
func (m *Commit) Type() byte { return TypeCommit }

// Append appends the frame.
func (m *Commit) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Commit) encode(e *encoder) { e.id(m.ID) }
func (m *Commit) decode(d *decoder) { m.ID = d.id("id") }

// Abort ends a transfer on either side. It is idempotent.
type Abort struct {
	ID     ID
	Code   Code
	Reason string
}

// Type is TypeAbort.
func (m *Abort) Type() byte { return TypeAbort }

// Append appends the frame.
func (m *Abort) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Abort) encode(e *encoder) {
	e.id(m.ID)
	e.u16(uint16(m.Code))
	e.str(m.Reason, "reason")
}

func (m *Abort) decode(d *decoder) {
	m.ID = d.id("id")
	m.Code = Code(d.u16("code"))
	m.Reason = d.str("reason")
}

// Goodbye ends the session.
type Goodbye struct {
	Code   Code
	Reason string
}

// Type is TypeGoodbye.
func (m *Goodbye) Type() byte { return TypeGoodbye }

// Append appends the frame.
func (m *Goodbye) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Goodbye) encode(e *encoder) {
	e.u16(uint16(m.Code))
	e.str(m.Reason, "reason")
}

func (m *Goodbye) decode(d *decoder) {
	m.Code = Code(d.u16("code"))
	m.Reason = d.str("reason")
}
