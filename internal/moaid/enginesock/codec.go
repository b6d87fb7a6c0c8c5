package enginesock

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// ErrMalformed is what ends a session: a packet that is no JSON object, is too
// long, or cannot be answered because it has no sequence number.
var ErrMalformed = errors.New("malformed packet")

// Refused is a packet that was understood well enough to answer it with an
// error of Code.
type Refused struct {
	Seq     int64
	Code    Code
	Message string
}

func (r *Refused) Error() string { return fmt.Sprintf("%s (%s)", r.Message, r.Code) }

// Reply is the error packet that answers the refused request.
func (r *Refused) Reply() *Error { return &Error{Seq: r.Seq, Code: r.Code, Message: r.Message} }

// EncodeRequest gives the packet of r with sequence number seq, which it also
// stores in r. The error is ErrMalformed if the packet would be too long.
func EncodeRequest(r Request, seq int64) ([]byte, error) {
	r.setSeq(seq)
	setRequestType(r)
	return encode(r)
}

// EncodeReply gives the packet of r. A rank with nothing has an empty list in it,
// never null.
func EncodeReply(r Reply) ([]byte, error) {
	r.setType()
	switch m := r.(type) {
	case *OK:
		m.RankRanges, m.Extents = withoutNil(m.RankRanges), withoutNil(m.Extents)
	case *VerdictEvent:
		m.Extents = withoutNil(m.Extents)
	}
	return encode(r)
}

func withoutNil[T any](lists [][]T) [][]T {
	for i, l := range lists {
		if l == nil {
			lists = slices.Clone(lists)
			for ; i < len(lists); i++ {
				if lists[i] == nil {
					lists[i] = []T{}
				}
			}
			return lists
		}
	}
	return lists
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode packet: %w", err)
	}
	if len(b) > MaxPacket {
		return nil, fmt.Errorf("packet of %d bytes is longer than %d: %w", len(b), MaxPacket, ErrMalformed)
	}
	return b, nil
}

// DecodeRequest reads a client's packet. The error wraps ErrMalformed if the
// session must end, and is a *Refused if the packet is to be answered.
func DecodeRequest(b []byte) (Request, error) {
	var h Head
	if err := decodeHead(b, &h); err != nil {
		return nil, err
	}
	if h.Seq < 1 {
		return nil, fmt.Errorf("seq %d is not positive: %w", h.Seq, ErrMalformed)
	}
	r := newRequest(h.T)
	if r == nil {
		return nil, &Refused{Seq: h.Seq, Code: CodeUnknownType, Message: fmt.Sprintf("request type %q is unknown", clip(h.T))}
	}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, &Refused{Seq: h.Seq, Code: CodeBadRequest, Message: fmt.Sprintf("%s: %v", h.T, err)}
	}
	if h.T == TypeHello {
		if err := knownFingerprint(b); err != nil {
			return nil, &Refused{Seq: h.Seq, Code: CodeFingerprint, Message: fmt.Sprintf("%s: %v", h.T, err)}
		}
	}
	if err := Check(r); err != nil {
		return nil, &Refused{Seq: h.Seq, Code: CodeBadRequest, Message: fmt.Sprintf("%s: %v", h.T, err)}
	}
	return r, nil
}

// knownFingerprint refuses what else is ignored, a field that is not known: in a
// fingerprint it may change what the bytes mean.
func knownFingerprint(hello []byte) error {
	var h struct {
		Fingerprint json.RawMessage `json:"fingerprint"`
	}
	if err := json.Unmarshal(hello, &h); err != nil || len(h.Fingerprint) == 0 {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(h.Fingerprint))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&kvcache.Fingerprint{}); err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	return nil
}

// DecodeReply reads a daemon's packet. A type that is not known gives nil and no
// error: a client ignores it. The error wraps ErrMalformed.
func DecodeReply(b []byte) (Reply, error) {
	var h struct {
		T string `json:"t"`
	}
	if err := decodeHead(b, &h); err != nil {
		return nil, err
	}
	var r Reply
	switch h.T {
	case TypeOK:
		r = &OK{}
	case TypeError:
		r = &Error{}
	case TypeRoom:
		r = &Room{}
	case TypeReleased:
		r = &Released{}
	case TypeVerdict:
		r = &VerdictEvent{}
	case TypeClosed:
		r = &Closed{}
	default:
		return nil, nil
	}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", h.T, err, ErrMalformed)
	}
	return r, nil
}

// decodeHead reads the common fields of a packet. encoding/json takes the JSON
// null for any target, so an object is asked for explicitly.
func decodeHead(b []byte, into any) error {
	if len(b) > MaxPacket {
		return fmt.Errorf("packet of %d bytes is longer than %d: %w", len(b), MaxPacket, ErrMalformed)
	}
	if t := strings.TrimLeft(string(b[:min(len(b), 64)]), " \t\r\n"); !strings.HasPrefix(t, "{") {
		return fmt.Errorf("no JSON object: %w", ErrMalformed)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", err, ErrMalformed)
	}
	return nil
}

func newRequest(t string) Request {
	switch t {
	case TypeHello:
		return &Hello{}
	case TypePing:
		return &Ping{}
	case TypeArena:
		return &Arena{}
	case TypeAdopt:
		return &Adopt{}
	case TypeReserve:
		return &Reserve{}
	case TypeOffer:
		return &Offer{}
	case TypeWithdraw:
		return &Withdraw{}
	case TypeStored:
		return &Stored{}
	case TypeClaim:
		return &Claim{}
	case TypeRelease:
		return &Release{}
	case TypeLoaded:
		return &Loaded{}
	case TypeStats:
		return &Stats{}
	}
	return nil
}

func setRequestType(r Request) {
	type typed interface{ setType(string) }
	if t, ok := r.(typed); ok {
		t.setType(r.Type())
	}
}

func (h *Head) setType(t string) { h.T = t }

// Check reports fields that no daemon could accept. What depends on the
// daemon's configuration (engine names, fingerprints, known ids) is not looked at.
func Check(r Request) error {
	switch m := r.(type) {
	case *Hello:
		switch {
		case m.Engine == "" || len(m.Engine) > 128:
			return errors.New("engine is empty or longer than 128 characters")
		case !isHex(m.Generation, 32):
			return errors.New("generation is not 32 hex digits")
		case m.Session != Scheduler && m.Session != Worker:
			return fmt.Errorf("session %q is neither scheduler nor worker", clip(string(m.Session)))
		case m.World < 1 || m.World > MaxWorld || m.Rank < 0 || m.Rank >= m.World:
			return fmt.Errorf("rank %d of world %d does not exist", m.Rank, m.World)
		case m.Session == Scheduler && m.Rank != 0:
			return fmt.Errorf("a scheduler has rank 0, not %d", m.Rank)
		case m.DataSize < 0 || m.DataSize > MaxReplicas || m.DataRank < 0 || m.DataRank >= m.Replicas():
			return fmt.Errorf("data_rank %d of data_size %d does not exist", m.DataRank, m.DataSize)
		}
	case *Adopt:
		if m.Arena == "" || m.Bytes < 1 {
			return errors.New("arena or bytes is missing")
		}
	case *Reserve:
		return firstError(checkID(m.ID), checkTokens(m.Tokens))
	case *Offer:
		return firstError(checkID(m.ID), checkTokens(m.Tokens), checkHash(m.TokenHash))
	case *Withdraw:
		return checkID(m.ID)
	case *Stored:
		return firstError(checkID(m.ID), checkRanges(m.Ranges))
	case *Claim:
		if m.FromToken < 0 || m.FromToken > m.Tokens {
			return fmt.Errorf("from_token %d is outside 0 to tokens", m.FromToken)
		}
		return firstError(checkID(m.ID), checkTokens(m.Tokens), checkHash(m.TokenHash))
	case *Release:
		return checkID(m.ID)
	case *Loaded:
		return checkID(m.ID)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkID(id string) error {
	if !isHex(id, 32) {
		return errors.New("id is not 32 lower-case hex digits")
	}
	return nil
}

func checkTokens(n int) error {
	if n < 1 || n > kvcache.MaxTokens {
		return fmt.Errorf("tokens %d is outside 1 to %d", n, kvcache.MaxTokens)
	}
	return nil
}

func checkHash(h string) error {
	if !isHex(h, 64) {
		return errors.New("token_hash is not 64 lower-case hex digits")
	}
	return nil
}

func checkRanges(rs []kvcache.Range) error {
	for _, r := range rs {
		if r.Offset < 0 || r.Length < 1 || r.Offset+r.Length < r.Offset {
			return fmt.Errorf("range at %d of %d bytes is none", r.Offset, r.Length)
		}
	}
	return nil
}

func isHex(s string, n int) bool {
	if len(s) != n || s != strings.ToLower(s) {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
