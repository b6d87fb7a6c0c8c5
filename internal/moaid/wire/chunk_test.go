package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestGoldenChunkHeader(t *testing.T) {
	h := ChunkHeader{Kind: KindKV, Rank: 0x0102, ID: id16(0xaa), Offset: 0x0304, Counter: 0x0506, Length: 0x010203}
	want := "01000102" + idA + "0000000000000304" + "0000000000000506" + "00010203" + "00000000"
	if got := hex.EncodeToString(h.Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestChunkHeaderRefusals(t *testing.T) {
	ok := ChunkHeader{Kind: KindProbe, Length: 1}
	for name, change := range map[string]func(h *ChunkHeader, b *[ChunkHeaderSize]byte){
		"kind 0":       func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { b[0] = 0 },
		"kind 3":       func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { b[0] = 3 },
		"flags":        func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { b[1] = 1 },
		"reserved":     func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { b[43] = 1 },
		"length 0":     func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { b[39] = 0 },
		"length max+1": func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { copy(b[36:], []byte{0, 4, 0, 1}) },
		"offset":       func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { b[20] = 0x80 },
		"offset end": func(h *ChunkHeader, b *[ChunkHeaderSize]byte) {
			h.Offset = math.MaxInt64
			copy(b[:], h.Append(nil))
		},
		"counter": func(_ *ChunkHeader, b *[ChunkHeaderSize]byte) { copy(b[28:], []byte{0, 0, 0, 1, 0, 0, 0, 1}) },
	} {
		h := ok
		b := [ChunkHeaderSize]byte(h.Append(nil))
		if _, err := ParseChunkHeader(&b); err != nil {
			t.Fatal(err)
		}
		change(&h, &b)
		var w *Error
		if _, err := ParseChunkHeader(&b); !errors.As(err, &w) || w.Code != CodeProtocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func drawHeader(t *rapid.T) ChunkHeader {
	return ChunkHeader{
		Kind:    Kind(rapid.IntRange(1, 2).Draw(t, "kind")),
		Rank:    rapid.Uint16().Draw(t, "rank"),
		ID:      ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
		Offset:  rapid.Int64Range(0, math.MaxInt64-MaxChunk).Draw(t, "offset"),
		Counter: rapid.Uint64Range(0, MaxCounter).Draw(t, "counter"),
		Length:  rapid.IntRange(1, MaxChunk).Draw(t, "length"),
	}
}

func TestChunkHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		b := [ChunkHeaderSize]byte(h.Append(nil))
		if got, err := ParseChunkHeader(&b); err != nil || got != h {
			t.Fatalf("got %+v, %v, want %+v", got, err, h)
		}
	})
}

func FuzzChunkHeader(f *testing.F) {
	f.Add(ChunkHeader{Kind: KindKV, Length: 1}.Append(nil))
	f.Add(ChunkHeader{Kind: KindProbe, Rank: 7, ID: id16(1), Offset: 1 << 40, Counter: MaxCounter, Length: MaxChunk}.Append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < ChunkHeaderSize {
			return
		}
		b := [ChunkHeaderSize]byte(in)
		h, err := ParseChunkHeader(&b)
		if err != nil {
			return
		}
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(h.Append(nil), b[:]) {
			t.Fatalf("%x became %x", b, h.Append(nil))
		}
	})
}
