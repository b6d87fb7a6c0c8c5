package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestGoldenFrames(t *testing.T) {
	seen := map[byte]bool{}
	for _, s := range samples {
		want := unhex(t, s.hex)
		got := s.m.Append([]byte("before"))
		if !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s:\n got %s\nwant %s", TypeName(s.m.Type()), hex.EncodeToString(got[6:]), hex.EncodeToString(want))
			continue
		}
		if m := mustParse(t, want); !reflect.DeepEqual(m, s.m) {
			t.Errorf("%s: parsed %+v, want %+v", TypeName(s.m.Type()), m, s.m)
		}
		seen[s.m.Type()] = true
	}
	for typ := byte(TypeHello); typ <= TypeGoodbye; typ++ {
		if !seen[typ] {
			t.Errorf("no sample of %s", TypeName(typ))
		}
	}
}

func TestTrailingBytesAreIgnored(t *testing.T) {
	for _, s := range samples {
		b := s.m.Append(nil)
		m := mustParse(t, frameOf(b[4], append(b[5:], 1, 2, 3)))
		if !reflect.DeepEqual(m, s.m) {
			t.Errorf("%s: parsed %+v", TypeName(s.m.Type()), m)
		}
	}
}

func TestEveryShorterBodyIsRefused(t *testing.T) {
	for _, s := range samples {
		b := s.m.Append(nil)
		for n := range len(b) - FrameHeaderSize {
			_, _, err := Parse(frameOf(b[4], b[5:5+n]))
			var w *Error
			if !errors.As(err, &w) || w.Code != CodeProtocol {
				t.Errorf("%s cut to %d bytes: %v", TypeName(s.m.Type()), n, err)
			}
		}
	}
}

func TestIncompleteFrames(t *testing.T) {
	b := samples[0].m.Append(nil)
	for n := range len(b) {
		if _, used, err := Parse(b[:n]); !errors.Is(err, ErrShort) || used != 0 {
			t.Errorf("%d of %d bytes: %d, %v", n, len(b), used, err)
		}
	}
	if m, n, err := Parse(append(b, 0xff)); err != nil || n != len(b) || !reflect.DeepEqual(m, samples[0].m) {
		t.Errorf("with the next frame's first byte: %v, %d, %v", m, n, err)
	}
}

func TestLengthsAreCheckedBeforeTheBody(t *testing.T) {
	for _, head := range []string{"00000000", "00100001", "ffffffff"} {
		if _, _, err := Parse(unhex(t, head)); err == nil || errors.Is(err, ErrShort) {
			t.Errorf("%s: %v", head, err)
		}
	}
	// A list count that the body cannot hold must not allocate for it.
	huge := frameOf(TypeGrant, append(unhex(t, idA), 0, 0, 0xff, 0xff))
	if n := testing.AllocsPerRun(10, func() { _, _, _ = Parse(huge) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if _, _, err := Parse(huge); err == nil {
		t.Error("a list without items was parsed")
	}
}

func TestHostileNumbersAndStrings(t *testing.T) {
	id := unhex(t, idA)
	top := []byte{0x80, 0, 0, 0, 0, 0, 0, 0}
	most := []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	zero := make([]byte, 8)
	one := []byte{0, 0, 0, 0, 0, 0, 0, 1}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, b := range map[string][]byte{
		"credit beyond int64":      frameOf(TypeCredit, join(id, []byte{0, 0}, top)),
		"offset beyond int64":      frameOf(TypeGrant, join(id, []byte{0, 0, 0, 1}, top, zero, zero)),
		"length beyond int64":      frameOf(TypeGrant, join(id, []byte{0, 0, 0, 1}, zero, top, zero)),
		"range that wraps":         frameOf(TypeGrant, join(id, []byte{0, 0, 0, 1}, most, one, zero)),
		"probe beyond int64":       frameOf(TypeProbe, join(id, top, make([]byte, 32))),
		"string that is not UTF-8": frameOf(TypeGoodbye, []byte{0, 1, 0, 1, 0xff}),
	} {
		var w *Error
		if _, _, err := Parse(b); !errors.As(err, &w) || w.Code != CodeProtocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownTypes(t *testing.T) {
	m, ok := mustParse(t, frameOf(200, []byte("xyz"))).(*Unknown)
	if !ok || m.FrameType != 200 || string(m.Body) != "xyz" {
		t.Errorf("got %+v", m)
	}
}

func TestHelloOfAnotherVersion(t *testing.T) {
	m, ok := mustParse(t, frameOf(TypeHello, []byte{0, 7, 0xff})).(*Hello)
	if !ok || m.Version != 7 {
		t.Errorf("got %+v", m)
	}
}

func TestEncodeRefusesWhatDoesNotFit(t *testing.T) {
	long := strings.Repeat("é", 40000)
	big := make([]Engine, 17)
	for i := range big {
		big[i].FingerprintJSON = strings.Repeat("x", 65535)
	}
	for name, m := range map[string]Message{
		"long string":     &Goodbye{Reason: long},
		"bad UTF-8":       &Goodbye{Reason: "\xff"},
		"long frame":      &Engines{Engines: big},
		"long list":       &Grant{Ranges: make([]Range, 1<<16)},
		"negative credit": &Credit{Credit: -1},
	} {
		if b, err := Encode([]byte("x"), m); err == nil || string(b) != "x" {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	// Append clips a string at a rune's start.
	g, ok := mustParse(t, (&Goodbye{Reason: long}).Append(nil)).(*Goodbye)
	if !ok || g.Reason != strings.Repeat("é", 32767) {
		t.Errorf("clipped to %d bytes", len(g.Reason))
	}
}

func TestCodeNames(t *testing.T) {
	const doc = "1 cancelled, 2 withdrawn, 3 not_offered, 4 token_hash, 5 incompatible, 6 deadline, 7 no_room, 8 corrupt, 9 not_paired, 10 protocol, " +
		"11 encryption, 12 shutdown, 13 replaced, 14 unknown_engine, 15 load_failed, 16 not_needed, 17 untrusted"
	for i, entry := range strings.Split(doc, ", ") {
		if _, name, _ := strings.Cut(entry, " "); Code(i+1).String() != name {
			t.Errorf("code %d is %s, not %s", i+1, Code(i+1), name)
		}
	}
	if Code(99).String() != "code_99" {
		t.Error(Code(99))
	}
}

func TestID(t *testing.T) {
	id, err := ParseID("000102030405060708090a0b0c0d0e0f")
	if err != nil || id[15] != 15 || id.String() != "000102030405060708090a0b0c0d0e0f" {
		t.Errorf("%v %v", id, err)
	}
	for _, s := range []string{"", "00", "zz0102030405060708090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0f00"} {
		if _, err := ParseID(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
	var back ID
	if b, err := id.MarshalText(); err != nil || back.UnmarshalText(b) != nil || back != id {
		t.Errorf("text form: %v %v", back, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range samples {
		b := s.m.Append(nil)
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(append(b, b...))
	}
	f.Add(frameOf(TypeHello, []byte{0, 7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, n, err := Parse(b)
		if err != nil {
			if n != 0 || m != nil {
				t.Fatalf("%v with %d bytes used", err, n)
			}
			return
		}
		if n < FrameHeaderSize || n > len(b) {
			t.Fatalf("used %d of %d bytes", n, len(b))
		}
		again := m.Append(nil)
		if len(again) > n && m.Type() != TypeHello {
			t.Fatalf("%d bytes became %d", n, len(again))
		}
		m2, n2, err := Parse(again)
		if err != nil || n2 != len(again) || !reflect.DeepEqual(m, m2) || !sameFrame(m, m2) {
			t.Fatalf("%+v became %+v, %v", m, m2, err)
		}
	})
}
