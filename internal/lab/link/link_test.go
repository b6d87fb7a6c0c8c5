package link

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestMessage(t *testing.T) {
	m := newMessage(16, 0)
	m.info(7, 1)
	m.text(3, "abcd")
	m.nest(18, func() { m.number(10, 5) })
	n := binary.NativeEndian
	if len(m.b) != 16+16+12+12 || n.Uint16(m.b[4:]) != 16 || n.Uint32(m.b[20:]) != 7 || n.Uint32(m.b[28:]) != 1 {
		t.Fatalf("% x", m.b)
	}
	// The length of a text counts its end, but not the padding to four bytes.
	text := m.b[32:]
	if n.Uint16(text) != 9 || n.Uint16(text[2:]) != 3 || !bytes.Equal(text[4:12], []byte("abcd\x00\x00\x00\x00")) {
		t.Errorf("text: % x", text)
	}
	nest := m.b[44:]
	if n.Uint16(nest) != 12 || n.Uint16(nest[2:]) != 18 || n.Uint16(nest[4:]) != 8 || n.Uint16(nest[6:]) != 10 || n.Uint32(nest[8:]) != 5 {
		t.Errorf("nest: % x", nest)
	}
}

func TestRefusals(t *testing.T) {
	if err := AddCable("a", "no-such-bridge", "b", "02:00:00:00:00:01", 1); err == nil {
		t.Error("a cable into a bridge that is not there")
	}
	if err := AddCable("a", "b", "c", "no address", 1); err == nil {
		t.Error("a cable without a hardware address")
	}
	if err := Up("no-such-device0"); err == nil {
		t.Error("a device that is not there is on")
	}
}
