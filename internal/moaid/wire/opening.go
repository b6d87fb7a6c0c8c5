package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Opening is the first message of a data stream, from the dialler.
type Opening struct {
	Session ID
	Stream  uint16
	Epoch   uint32
}

// StreamContext is the exporter context of the key (LabelStream, StreamKeySize
// bytes) that authenticates an opening and its answer.
func StreamContext(stream uint16, epoch uint32) []byte {
	b := binary.BigEndian.AppendUint16(nil, stream)
	return binary.BigEndian.AppendUint32(b, epoch)
}

// Direction of the chunks on a stream.
type Direction uint8

// Directions.
const (
	FromDialler  Direction = 0
	FromAcceptor Direction = 1
)

// DataContext is the exporter context of the key (LabelData, DataKeySize bytes)
// that seals the chunks of one direction of a stream.
func DataContext(dir Direction, stream uint16, epoch uint32) []byte {
	return append([]byte{byte(dir)}, StreamContext(stream, epoch)...)
}

// Append appends the opening with its MAC under key.
func (o Opening) Append(b, key []byte) []byte {
	start := len(b)
	b = append(b, Magic...)
	b = append(b, Version)
	b = append(b, o.Session[:]...)
	b = binary.BigEndian.AppendUint16(b, o.Stream)
	b = binary.BigEndian.AppendUint32(b, o.Epoch)
	return append(b, mac(key, nil, b[start:])...)
}

// ParseOpening reads an opening without checking its MAC: the session that it
// names has the key.
func ParseOpening(b *[OpeningSize]byte) (Opening, error) {
	if string(b[:4]) != Magic {
		return Opening{}, protocolError("stream does not begin with %s", Magic)
	}
	if b[4] != Version {
		return Opening{}, protocolError("stream version %d, this is version %d", b[4], Version)
	}
	return Opening{
		Session: ID(b[5:21]),
		Stream:  binary.BigEndian.Uint16(b[21:]),
		Epoch:   binary.BigEndian.Uint32(b[23:]),
	}, nil
}

// VerifyOpening says whether the opening was made with key. It takes the same
// time for every wrong MAC.
func VerifyOpening(b *[OpeningSize]byte, key []byte) bool {
	return hmac.Equal(b[OpeningSize-macSize:], mac(key, nil, b[:OpeningSize-macSize]))
}

// AppendAnswer appends the acceptor's answer to an opening.
func AppendAnswer(b []byte, opening *[OpeningSize]byte, key []byte) []byte {
	b = append(b, Magic...)
	b = append(b, Version)
	return append(b, mac(key, []byte("accept"), opening[:])...)
}

// VerifyAnswer says whether b answers the opening under key.
func VerifyAnswer(b *[AnswerSize]byte, opening *[OpeningSize]byte, key []byte) bool {
	return hmac.Equal(b[:], AppendAnswer(nil, opening, key))
}

func mac(key, prefix, msg []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(prefix)
	h.Write(msg)
	return h.Sum(nil)
}
