package wire

import (
	"encoding/hex"
	"errors"
)

// ID names a transfer, a session, an instance or a probe: 128 random bits.
type ID [16]byte

// String is the id as 32 hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether the id is all zero bits, which names nothing.
func (id ID) IsZero() bool { return id == ID{} }

var errID = errors.New("an id is 32 hex digits")

// ParseID reads 32 hex digits.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, errID
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, errID
	}
	return id, nil
}

// MarshalText and UnmarshalText make an ID 32 hex digits in JSON and logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(b []byte) error {
	p, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = p
	return nil
}
