package intake

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestReadsAndCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 1 << 20
		b := NewBudget(total)
		n := rapid.IntRange(0, 300_000).Draw(t, "bytes")
		announced := rapid.SampledFrom([]int64{-1, int64(n), 0, 1 << 40}).Draw(t, "announced")
		want := bytes.Repeat([]byte("abcdefg"), n/7+1)[:n]
		got, release, err := b.Read(iotest.DataErrReader(bytes.NewReader(want)), announced)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %v", len(got), err)
		}
		if b.Free() > total-int64(cap(got)) {
			t.Fatalf("%d bytes in memory, %d counted", cap(got), total-b.Free())
		}
		if int64(cap(got)) > max(2*int64(n), first) {
			t.Fatalf("%d bytes of memory for %d", cap(got), n)
		}
		if release(); b.Free() != total {
			t.Fatalf("%d left", b.Free())
		}
	})
}

func TestFullAndBroken(t *testing.T) {
	b := NewBudget(100_000)
	_, release, err := b.Read(bytes.NewReader(make([]byte, 60_000)), 60_000)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Read(bytes.NewReader(make([]byte, 60_000)), 60_000); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	release()
	if _, _, err := b.Read(io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(io.ErrUnexpectedEOF)), -1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if b.Free() != 100_000 {
		t.Errorf("%d left", b.Free())
	}
}
