package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// ErrExhausted says that a stream has used its last counter: its session must
// end, and a new one has new keys.
var ErrExhausted error = &Error{Code: CodeProtocol, Reason: "the stream has used all its chunk counters"}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// protection is what Sealer and Opener share: the mode, its key, and the
// counter that the next chunk must have.
type protection struct {
	aead cipher.AEAD // nil in mode none
	next uint64
}

func newProtection(mode Encryption, key []byte) (protection, error) {
	switch mode {
	case EncryptionNone:
		return protection{}, nil
	case EncryptionAEAD:
		if len(key) != DataKeySize {
			return protection{}, fmt.Errorf("data key has %d bytes, not %d", len(key), DataKeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return protection{}, fmt.Errorf("data key: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return protection{}, fmt.Errorf("data key: %w", err)
		}
		return protection{aead: aead}, nil
	}
	return protection{}, fmt.Errorf("encryption mode %d is unknown", mode)
}

func (p *protection) overhead() int {
	if p.aead == nil {
		return CRCSize
	}
	return TagSize
}

func nonce(counter uint64) (n [12]byte) {
	binary.BigEndian.PutUint64(n[4:], counter)
	return n
}

// Sealer protects the chunks of one direction of one stream. It numbers them
// itself, so that no nonce is ever used twice. Not for concurrent use.
type Sealer struct{ p protection }

// NewSealer makes a sealer whose first chunk has counter 0. The key, of
// DataKeySize bytes, must be used for nothing else; mode none takes none.
func NewSealer(mode Encryption, key []byte) (*Sealer, error) {
	p, err := newProtection(mode, key)
	return &Sealer{p: p}, err
}

// Seal appends header and protected body of one chunk to dst; the body is the
// concatenation of plain. It sets h.Counter and h.Length. plain must not
// overlap dst. With enough room in dst (ChunkHeaderSize + MaxChunk + TagSize)
// it does not allocate.
func (s *Sealer) Seal(dst []byte, h ChunkHeader, plain [][]byte) ([]byte, error) {
	h.Length = 0
	for _, b := range plain {
		if len(b) > MaxChunk-h.Length {
			return dst, protocolError("chunk is longer than %d bytes", MaxChunk)
		}
		h.Length += len(b)
	}
	if s.p.next > MaxCounter {
		return dst, ErrExhausted
	}
	h.Counter = s.p.next
	if err := h.Check(); err != nil {
		return dst, err
	}
	// Counted before it is used: a failure below burns the number.
	s.p.next++
	start := len(dst)
	out := h.Append(dst)
	body := len(out)
	for _, b := range plain {
		out = append(out, b...)
	}
	if s.p.aead == nil {
		return binary.BigEndian.AppendUint32(out, crc32.Checksum(out[start:], castagnoli)), nil
	}
	n := nonce(h.Counter)
	return s.p.aead.Seal(out[:body], n[:], out[body:], out[start:body]), nil
}

// Opener checks the chunks of one direction of one stream. Not for concurrent
// use.
type Opener struct {
	p      protection
	failed bool
}

// NewOpener makes an opener that expects counter 0.
func NewOpener(mode Encryption, key []byte) (*Opener, error) {
	p, err := newProtection(mode, key)
	return &Opener{p: p}, err
}

// Overhead is how many bytes a body has beyond its plain length.
func (o *Opener) Overhead() int { return o.p.overhead() }

// Expect refuses a header whose counter is not the next one: a repeat, a gap or
// a reordering. It changes nothing, so a reader may ask before it reads a body.
func (o *Opener) Expect(h ChunkHeader) error {
	if o.failed {
		return protocolError("stream has failed")
	}
	if h.Counter != o.p.next {
		return protocolError("chunk counter is %d, expected %d", h.Counter, o.p.next)
	}
	return h.Check()
}

// Open checks one chunk and gives its plain bytes, which lie in body's memory.
// header are the 44 bytes as received, body everything after them. After an
// error the opener is of no use and body's content undefined: bytes of a chunk
// that failed must not be used.
func (o *Opener) Open(header *[ChunkHeaderSize]byte, body []byte) ([]byte, error) {
	h, err := ParseChunkHeader(header)
	if err == nil {
		err = o.Expect(h)
	}
	if err == nil && len(body) != h.Length+o.Overhead() {
		err = protocolError("chunk body has %d bytes, header says %d", len(body), h.Length+o.Overhead())
	}
	if err != nil {
		o.failed = true
		return nil, err
	}
	plain, ok := o.check(h, header, body)
	if !ok {
		o.failed = true
		return nil, &Error{Code: CodeCorrupt, Reason: fmt.Sprintf("chunk %d of %d bytes failed its check", h.Counter, h.Length)}
	}
	o.p.next++
	return plain, nil
}

func (o *Opener) check(h ChunkHeader, header *[ChunkHeaderSize]byte, body []byte) ([]byte, bool) {
	if o.p.aead == nil {
		plain := body[:h.Length]
		sum := crc32.Update(crc32.Checksum(header[:], castagnoli), castagnoli, plain)
		return plain, sum == binary.BigEndian.Uint32(body[h.Length:])
	}
	n := nonce(h.Counter)
	plain, err := o.p.aead.Open(body[:0], n[:], body, header[:])
	return plain, err == nil
}
