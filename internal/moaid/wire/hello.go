package wire

// Encryption is how chunks are sealed, as HELLO says it.
type Encryption uint8

// Encryption modes.
const (
	EncryptionNone Encryption = 0 // CRC32C
	EncryptionAEAD Encryption = 1 // AES-128-GCM
)

// Hello is the first frame of each side. A body of another version is not read
// beyond its number.
type Hello struct {
	Version    uint16
	Node       string
	Instance   ID // of the daemon, new at each start
	Session    ID // the dialler's counts; the acceptor sends zero
	Encryption Encryption
	Streams    uint8
	Engines    []Engine
}

// Type is TypeHello.
func (m *Hello) Type() byte { return TypeHello }

// Append appends the frame.
func (m *Hello) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Hello) encode(e *encoder) {
	e.u16(m.Version)
	e.str(m.Node, "node")
	e.id(m.Instance)
	e.id(m.Session)
	e.u8(uint8(m.Encryption))
	e.u8(m.Streams)
	encodeEngines(e, m.Engines)
}

func (m *Hello) decode(d *decoder) {
	m.Version = d.u16("version")
	if m.Version != Version {
		return
	}
	m.Node = d.str("node")
	m.Instance = d.id("instance")
	m.Session = d.id("session")
	m.Encryption = Encryption(d.u8("encryption"))
	m.Streams = d.u8("streams")
	m.Engines = decodeEngines(d)
}
