package wire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func hash32(b byte) (h [32]byte) {
	for i := range h {
		h[i] = b
	}
	return h
}

func id16(b byte) (id ID) {
	for i := range id {
		id[i] = b
	}
	return id
}

// sample is a message and its frame: the frozen form of the protocol.
type sample struct {
	m   Message
	hex string
}

var sampleEngine = Engine{Name: "e", Generation: "9f", Ranks: 2, FingerprintHash: hash32(0xfe), FingerprintJSON: "{}"}

const sampleEngineHex = "0001 65 0002 3966 0002 fefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefe 0002 7b7d"

var (
	idA     = strings.Repeat("aa", 16)
	idB     = strings.Repeat("bb", 16)
	hashHex = strings.Repeat("cc", 32)
)

var samples = []sample{
	{&Hello{Version: 1, Node: "n1", Instance: id16(0xaa), Session: id16(0xbb), Encryption: EncryptionAEAD, Streams: 4, Engines: []Engine{sampleEngine}},
		"00000058 01 0001 0002 6e31" + idA + idB + "01 04 0001" + sampleEngineHex},
	{&Engines{Engines: []Engine{sampleEngine, sampleEngine}}, "0000005d 02 0002" + sampleEngineHex + sampleEngineHex},
	{&Engines{}, "00000003 02 0000"},
	{&Offer{ID: id16(0xaa), SourceEngine: "p", TargetEngine: "d0", Tokens: 513, TokenHash: hash32(0xcc), LifetimeMS: 60000},
		"00000040 03" + idA + "0001 70 0002 6430 00000201" + hashHex + "0000ea60"},
	{&Claim{ID: id16(0xaa), SourceEngine: "p", ClaimantEngine: "d0", LifetimeMS: 30000}, "0000001c 04" + idA + "0001 70 0002 6430 00007530"},
	{&Grant{ID: id16(0xaa), Rank: 3, Ranges: []Range{{0, 65536}, {131072, 1}}, Credit: 4096},
		"0000003d 05" + idA + "0003 0002 0000000000000000 0000000000010000 0000000000020000 0000000000000001 0000000000001000"},
	{&Credit{ID: id16(0xaa), Rank: 3, Credit: 1 << 33}, "0000001b 06" + idA + "0003 0000000200000000"},
	{&Commit{ID: id16(0xbb)}, "00000011 07" + idB},
	{&Abort{ID: id16(0xbb), Code: CodeTokenHash, Reason: "no"}, "00000017 08" + idB + "0004 0002 6e6f"},
	{&Ping{Nonce: 0x0102}, "00000009 09 0000000000000102"},
	{&Pong{Nonce: 0x0102}, "00000009 0a 0000000000000102"},
	{&Probe{ID: id16(0xaa), Bytes: 1 << 20, Hash: hash32(0xcc)}, "00000039 0b" + idA + "0000000000100000" + hashHex},
	{&ProbeResult{ID: id16(0xaa), Bytes: 1 << 20, OK: true}, "0000001c 0c" + idA + "0000000000100000 01 0000"},
	{&Goodbye{Code: CodeEncryption, Reason: "é"}, "00000007 0d 000b 0002 c3a9"},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// frameOf makes a frame with a right length of a type and a body.
func frameOf(typ byte, body []byte) []byte {
	return (&Unknown{FrameType: typ, Body: body}).Append(nil)
}

func mustParse(t testing.TB, b []byte) Message {
	t.Helper()
	m, n, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if n != len(b) {
		t.Fatalf("used %d of %d bytes", n, len(b))
	}
	return m
}

func sameFrame(a, b Message) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }
