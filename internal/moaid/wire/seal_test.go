package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

var dataKey = []byte("0123456789abcdef")

func sealers(t testing.TB, mode Encryption) (*Sealer, *Opener) {
	t.Helper()
	s, err := NewSealer(mode, dataKey)
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewOpener(mode, dataKey)
	if err != nil {
		t.Fatal(err)
	}
	return s, o
}

func seal(t testing.TB, s *Sealer, plain ...[]byte) []byte {
	t.Helper()
	b, err := s.Seal(nil, ChunkHeader{Kind: KindKV, ID: id16(5), Offset: 64}, plain)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(o *Opener, b []byte) ([]byte, error) {
	c := bytes.Clone(b)
	return o.Open((*[ChunkHeaderSize]byte)(c), c[ChunkHeaderSize:])
}

var modes = []Encryption{EncryptionAEAD, EncryptionNone}

func TestGoldenSeal(t *testing.T) {
	for mode, want := range goldenBodies {
		s, _ := sealers(t, mode)
		seal(t, s, []byte("first"))
		if got := hex.EncodeToString(seal(t, s, []byte("he"), []byte("llo"))[ChunkHeaderSize:]); got != want {
			t.Errorf("mode %d: %s", mode, got)
		}
	}
}

func TestSealOpenAnyGather(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom(modes).Draw(t, "mode")
		s, err := NewSealer(mode, dataKey)
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewOpener(mode, dataKey)
		if err != nil {
			t.Fatal(err)
		}
		for n := range rapid.IntRange(1, 4).Draw(t, "chunks") {
			parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 100), 1, 5).Draw(t, "parts")
			plain := bytes.Join(parts, nil)
			h := drawHeader(t)
			b, err := s.Seal(nil, h, parts)
			if len(plain) == 0 {
				if err == nil {
					t.Fatal("an empty chunk was sealed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseChunkHeader((*[ChunkHeaderSize]byte)(b))
			h.Length, h.Counter = len(plain), uint64(n)
			if err != nil || got != h {
				t.Fatalf("header %+v, %v, want %+v", got, err, h)
			}
			if len(b) != ChunkHeaderSize+len(plain)+o.Overhead() {
				t.Fatalf("%d bytes", len(b))
			}
			opened, err := open(o, b)
			if err != nil || !bytes.Equal(opened, plain) {
				t.Fatalf("opened %x, %v, want %x", opened, err, plain)
			}
		}
	})
}

func TestEveryBitIsChecked(t *testing.T) {
	for _, mode := range modes {
		s, _ := sealers(t, mode)
		b := seal(t, s, []byte("some plain bytes"))
		for i := range 8 * len(b) {
			_, o := sealers(t, mode)
			c := bytes.Clone(b)
			c[i/8] ^= 1 << (i % 8)
			var w *Error
			if _, err := open(o, c); !errors.As(err, &w) || (w.Code != CodeCorrupt && w.Code != CodeProtocol) {
				t.Fatalf("mode %d, bit %d: %v", mode, i, err)
			}
			if _, err := open(o, b); err == nil {
				t.Fatalf("mode %d: opened after a failure", mode)
			}
		}
	}
}

func TestPlainIsHiddenOnlyByAEAD(t *testing.T) {
	plain := []byte("a secret of sixteen+")
	for _, mode := range modes {
		s, _ := sealers(t, mode)
		if shown := bytes.Contains(seal(t, s, plain), plain); shown != (mode == EncryptionNone) {
			t.Errorf("mode %d: plain bytes visible: %v", mode, shown)
		}
	}
}

func TestRepeatsAndGaps(t *testing.T) {
	for _, mode := range modes {
		s, _ := sealers(t, mode)
		first, second, third := seal(t, s, []byte("1")), seal(t, s, []byte("2")), seal(t, s, []byte("3"))
		for name, order := range map[string][][]byte{
			"repeat": {first, first}, "gap": {first, third}, "late": {first, second, first}, "not from 0": {second},
		} {
			_, o := sealers(t, mode)
			for i, b := range order {
				_, err := open(o, b)
				var w *Error
				if last := i == len(order)-1; last != errors.As(err, &w) || last && w.Code != CodeProtocol {
					t.Errorf("mode %d, %s, chunk %d: %v", mode, name, i, err)
				}
			}
		}
	}
}

func TestDirectionsAndKeysDoNotMix(t *testing.T) {
	s, _ := sealers(t, EncryptionAEAD)
	o, err := NewOpener(EncryptionAEAD, []byte("fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	var w *Error
	if _, err := open(o, seal(t, s, []byte("x"))); !errors.As(err, &w) || w.Code != CodeCorrupt {
		t.Error(err)
	}
}

func TestCountersEnd(t *testing.T) {
	for _, mode := range modes {
		s, o := sealers(t, mode)
		s.p.next, o.p.next = MaxCounter, MaxCounter
		b := seal(t, s, []byte("the last"))
		if _, err := open(o, b); err != nil {
			t.Error(err)
		}
		for range 2 {
			if _, err := s.Seal(nil, ChunkHeader{Kind: KindKV}, [][]byte{{1}}); !errors.Is(err, ErrExhausted) {
				t.Errorf("sealed beyond 2^32: %v", err)
			}
		}
	}
}

func TestSealRefusals(t *testing.T) {
	s, _ := sealers(t, EncryptionAEAD)
	before := s.p.next
	for name, parts := range map[string][][]byte{
		"nothing": nil, "empty": {{}}, "too long": {make([]byte, MaxChunk), {1}},
	} {
		if b, err := s.Seal([]byte("x"), ChunkHeader{Kind: KindKV}, parts); err == nil || string(b) != "x" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.p.next != before {
		t.Error("a refused chunk used a counter")
	}
	if _, err := NewSealer(EncryptionAEAD, []byte("short")); err == nil {
		t.Error("a short key was taken")
	}
	if _, err := NewOpener(9, dataKey); err == nil {
		t.Error("an unknown mode was taken")
	}
}

func TestSealDoesNotAllocate(t *testing.T) {
	plain := [][]byte{make([]byte, MaxChunk/2), make([]byte, MaxChunk/2)}
	scratch := make([]byte, 0, ChunkHeaderSize+MaxChunk+TagSize)
	for _, mode := range modes {
		s, _ := sealers(t, mode)
		if n := testing.AllocsPerRun(5, func() {
			if _, err := s.Seal(scratch, ChunkHeader{Kind: KindKV}, plain); err != nil {
				t.Fatal(err)
			}
		}); n > 1 { // the nonce escapes into the cipher's interface
			t.Errorf("mode %d: %v allocations", mode, n)
		}
	}
}

// goldenBodies is "hello" as the second chunk, computed with other
// implementations of AES-128-GCM and CRC32C.
var goldenBodies = map[Encryption]string{
	EncryptionAEAD: "842c16e4da868e6eb081c7edb42ea0956da8738033",
	EncryptionNone: "68656c6c6f457c703b",
}
