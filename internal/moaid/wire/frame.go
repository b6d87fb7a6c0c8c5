package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of control frames.
const (
	TypeHello       = 1
	TypeEngines     = 2
	TypeOffer       = 3
	TypeClaim       = 4
	TypeGrant       = 5
	TypeCredit      = 6
	TypeCommit      = 7
	TypeAbort       = 8
	TypePing        = 9
	TypePong        = 10
	TypeProbe       = 11
	TypeProbeResult = 12
	TypeGoodbye     = 13
)

// Message is a control frame. The implementations are the pointers to the frame
// types of this package.
type Message interface {
	// Type is the frame's type byte.
	Type() byte
	// Append appends the whole frame: length, type and body. What the format
	// cannot carry (a string beyond 65535 bytes) is clipped; Encode refuses it.
	Append(b []byte) []byte

	encode(e *encoder)
	decode(d *decoder)
}

// ErrShort says that the slice does not yet hold a whole frame.
var ErrShort = errors.New("frame is not complete")

func appendFrame(b []byte, m Message) []byte {
	b, _ = encodeFrame(b, m)
	return b
}

func encodeFrame(b []byte, m Message) ([]byte, error) {
	start := len(b)
	e := encoder{b: append(b, 0, 0, 0, 0, m.Type())}
	m.encode(&e)
	n := len(e.b) - start - 4
	binary.BigEndian.PutUint32(e.b[start:], uint32(n))
	if e.clipped != "" {
		return e.b, fmt.Errorf("frame %s: %s", TypeName(m.Type()), e.clipped)
	}
	if n > MaxFrame {
		return e.b, fmt.Errorf("frame %s takes %d bytes, more than %d", TypeName(m.Type()), n, MaxFrame)
	}
	return e.b, nil
}

// Encode appends the frame to b. It fails, with b as it was, when the format
// cannot carry the message.
func Encode(b []byte, m Message) ([]byte, error) {
	out, err := encodeFrame(b, m)
	if err != nil {
		return b, err
	}
	return out, nil
}

// FrameLength reads the length of a frame (type and body, without the four
// length bytes) and checks it, so that a reader may allocate that much.
func FrameLength(header [4]byte) (int, error) {
	n := binary.BigEndian.Uint32(header[:])
	if n < 1 || n > MaxFrame {
		return 0, protocolError("frame length %d is not within 1 and %d", n, MaxFrame)
	}
	return int(n), nil
}

// Parse reads the frame at the start of b and says how many bytes it used.
// ErrShort means that b ends before the frame does. A frame of a type that this
// version does not know is an *Unknown.
func Parse(b []byte) (Message, int, error) {
	if len(b) < 4 {
		return nil, 0, ErrShort
	}
	n, err := FrameLength([4]byte(b))
	if err != nil {
		return nil, 0, err
	}
	if len(b)-4 < n {
		return nil, 0, ErrShort
	}
	m, err := ParseBody(b[4], b[5:4+n])
	if err != nil {
		return nil, 0, err
	}
	return m, 4 + n, nil
}

// ParseBody reads the body of a frame whose type is known. Nothing of the
// result refers to body.
func ParseBody(typ byte, body []byte) (Message, error) {
	m := newMessage(typ)
	d := decoder{b: body}
	m.decode(&d)
	if d.err != nil {
		return nil, fmt.Errorf("frame %s: %w", TypeName(typ), d.err)
	}
	return m, nil
}

func newMessage(typ byte) Message {
	switch typ {
	case TypeHello:
		return new(Hello)
	case TypeEngines:
		return new(Engines)
	case TypeOffer:
		return new(Offer)
	case TypeClaim:
		return new(Claim)
	case TypeGrant:
		return new(Grant)
	case TypeCredit:
		return new(Credit)
	case TypeCommit:
		return new(Commit)
	case TypeAbort:
		return new(Abort)
	case TypePing:
		return new(Ping)
	case TypePong:
		return new(Pong)
	case TypeProbe:
		return new(Probe)
	case TypeProbeResult:
		return new(ProbeResult)
	case TypeGoodbye:
		return new(Goodbye)
	}
	return &Unknown{FrameType: typ}
}

var typeNames = [...]string{
	TypeHello: "HELLO", TypeEngines: "ENGINES", TypeOffer: "OFFER", TypeClaim: "CLAIM", TypeGrant: "GRANT",
	TypeCredit: "CREDIT", TypeCommit: "COMMIT", TypeAbort: "ABORT", TypePing: "PING", TypePong: "PONG",
	TypeProbe: "PROBE", TypeProbeResult: "PROBE_RESULT", TypeGoodbye: "GOODBYE",
}

// TypeName is the name of a frame type in the protocol document.
func TypeName(typ byte) string {
	if int(typ) < len(typeNames) && typeNames[typ] != "" {
		return typeNames[typ]
	}
	return fmt.Sprintf("type %d", typ)
}

// Unknown is a frame of a type that this version does not know. Receivers
// ignore it.
type Unknown struct {
	FrameType byte
	Body      []byte
}

// Type is the frame's type byte.
func (m *Unknown) Type() byte { return m.FrameType }

// Append appends the frame.
func (m *Unknown) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Unknown) encode(e *encoder) { e.b = append(e.b, m.Body...) }
func (m *Unknown) decode(d *decoder) { m.Body = append([]byte(nil), d.b...); d.b = nil }
