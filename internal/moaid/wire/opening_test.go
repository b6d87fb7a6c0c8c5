package wire

import (
	"bytes"
	"encoding/hex"
	"testing"
)

var openingKey = bytes.Repeat([]byte{0x42}, StreamKeySize)

func TestGoldenOpening(t *testing.T) {
	o := Opening{Session: id16(0xbb), Stream: 3, Epoch: 1}
	b := o.Append(nil, openingKey)
	if len(b) != OpeningSize {
		t.Fatalf("%d bytes", len(b))
	}
	if got, want := hex.EncodeToString(b[:27]), "4d4f414901"+idB+"0003"+"00000001"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	opening := [OpeningSize]byte(b)
	answer := AppendAnswer(nil, &opening, openingKey)
	if len(answer) != AnswerSize {
		t.Fatalf("answer of %d bytes", len(answer))
	}
	// Both MACs, computed once with another implementation of HMAC-SHA256.
	if got := hex.EncodeToString(b[27:]); got != goldenOpeningMAC {
		t.Errorf("opening MAC %s", got)
	}
	if got := hex.EncodeToString(answer); got != "4d4f414901"+goldenAnswerMAC {
		t.Errorf("answer %s", got)
	}
	if got := hex.EncodeToString(DataContext(FromAcceptor, 3, 1)); got != "01"+"0003"+"00000001" {
		t.Errorf("data context %s", got)
	}
}

func TestOpeningIsAuthenticatedWhole(t *testing.T) {
	o := Opening{Session: id16(1), Stream: 2, Epoch: 3}
	b := [OpeningSize]byte(o.Append(nil, openingKey))
	if got, err := ParseOpening(&b); err != nil || got != o {
		t.Fatalf("parsed %+v, %v", got, err)
	}
	if !VerifyOpening(&b, openingKey) {
		t.Fatal("a right opening is refused")
	}
	answer := [AnswerSize]byte(AppendAnswer(nil, &b, openingKey))
	for i := range b {
		c := b
		c[i] ^= 1
		if VerifyOpening(&c, openingKey) {
			t.Errorf("byte %d of the opening is not covered", i)
		}
		if VerifyAnswer(&answer, &c, openingKey) {
			t.Errorf("the answer does not cover byte %d of the opening", i)
		}
	}
	for i := range answer {
		c := answer
		c[i] ^= 1
		if VerifyAnswer(&c, &b, openingKey) {
			t.Errorf("byte %d of the answer is not checked", i)
		}
	}
	other := bytes.Repeat([]byte{0x43}, StreamKeySize)
	if VerifyOpening(&b, other) || VerifyAnswer(&answer, &b, other) {
		t.Error("another key is taken")
	}
	// The opening's own MAC must not do as an answer.
	if VerifyAnswer((*[AnswerSize]byte)(append([]byte("MOAI\x01"), b[OpeningSize-macSize:]...)), &b, openingKey) {
		t.Error("a reflected MAC is an answer")
	}
}

func FuzzOpening(f *testing.F) {
	f.Add(Opening{Session: id16(1), Stream: 2, Epoch: 3}.Append(nil, openingKey))
	f.Add(bytes.Repeat([]byte{0xff}, OpeningSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < OpeningSize {
			return
		}
		b := [OpeningSize]byte(in)
		o, err := ParseOpening(&b)
		if err != nil {
			if VerifyOpening(&b, openingKey) {
				t.Fatal("authentic, but not parsed")
			}
			return
		}
		again := o.Append(nil, openingKey)
		if !bytes.Equal(again[:OpeningSize-macSize], b[:OpeningSize-macSize]) {
			t.Fatalf("%x became %x", b, again)
		}
		if VerifyOpening(&b, openingKey) != bytes.Equal(again, b[:]) {
			t.Fatal("verified otherwise than made")
		}
	})
}

const (
	goldenOpeningMAC = "726466f61b4a1de49e5a27aa69cbc8d4c034bf9988970c1dbc9a8b2c1f94d1f7"
	goldenAnswerMAC  = "cd85f79cd1614b1de8d1a37c7f29986b09872d99aaed905e0e8a2e438fb5cdd1"
)
