package arena

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestPoolAgainstOracle runs random operations against a plain map of pages.
func TestPoolAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "ops")
		runOps(t, ops)
	})
}

func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 5, 1, 9, 200, 130, 66})
	f.Fuzz(func(t *testing.T, ops []byte) { runOps(t, ops) })
}

type failer interface{ Fatalf(string, ...any) }

func runOps(t failer, ops []byte) {
	const total = 16
	freedCalls := 0
	p := NewPool(total, func() { freedCalls++ })
	owner := make([]int, total) // 0 free
	type held struct {
		l        *Lease
		n, refs  int
		released bool
	}
	var leases []*held
	for i, op := range ops {
		arg := int(op >> 2)
		switch op & 3 {
		case 0:
			n := arg % (total + 2)
			l, ok := p.Lease(int64(n) * PageSize)
			free := 0
			for _, o := range owner {
				if o == 0 {
					free++
				}
			}
			if ok != (n <= free) {
				t.Fatalf("op %d: lease of %d pages with %d free: %v", i, n, free, ok)
			}
			if !ok {
				continue
			}
			leases = append(leases, &held{l: l, n: n})
			for _, e := range l.Extents() {
				for pg := e.Offset / PageSize; pg*PageSize < e.Offset+e.Length; pg++ {
					if owner[pg] != 0 {
						t.Fatalf("op %d: page %d leased twice", i, pg)
					}
					owner[pg] = len(leases)
				}
			}
		case 1, 2, 3:
			if len(leases) == 0 {
				continue
			}
			k := arg % len(leases)
			h := leases[k]
			switch op & 3 {
			case 1:
				if ok := h.l.Hold(); ok == h.released {
					t.Fatalf("op %d: hold %v of a lease released %v", i, ok, h.released)
				} else if ok {
					h.refs++
				}
			case 2:
				if h.refs > 0 {
					h.refs--
					h.l.Drop()
				}
			case 3:
				h.released = true
				h.l.Release()
			}
			if h.released && h.refs == 0 {
				for pg := range owner {
					if owner[pg] == k+1 {
						owner[pg] = 0
					}
				}
			}
		}
		u := p.Usage()
		want := Usage{Total: total}
		for _, o := range owner {
			switch {
			case o == 0:
				want.Free++
			case leases[o-1].released:
				want.Quarantined++
			default:
				want.Held++
			}
		}
		if u != want || u.Free+u.Held+u.Quarantined != u.Total {
			t.Fatalf("op %d: usage %+v, want %+v", i, u, want)
		}
	}
}

func TestCreateAdoptAndShare(t *testing.T) {
	a, err := Create("t", 4*PageSize+5, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prefault(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, err := Adopt("t", a.File(), a.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := a.Lease(2*PageSize + 3)
	if !ok {
		t.Fatal("no lease")
	}
	var n int
	for i, s := range a.View(l.Extents(), PageSize-1, 6) {
		n += len(s)
		for j := range s {
			s[j] = byte(i + 7)
		}
	}
	if n != 6 {
		t.Fatalf("view of %d bytes", n)
	}
	if got := b.View(l.Extents(), PageSize-1, 6); !bytes.Equal(bytes.Join(got, nil), bytes.Join(a.View(l.Extents(), PageSize-1, 6), nil)) {
		t.Fatal("the two mappings differ")
	}
	a.Retire()
	if u := a.Usage(); u.Held != 3 {
		t.Fatalf("retired with a lease: %+v", u)
	}
	if _, ok := a.Lease(1); ok {
		t.Fatal("leased after Retire")
	}
	l.Release()
	b.Retire()
}

func TestAdoptRefusesOthers(t *testing.T) {
	a, err := Create("t", 2*PageSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Retire()
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(2 * PageSize); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer unsealed.Close()
	if err := unsealed.Truncate(2 * PageSize); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f *os.File
		n int64
	}{"file": {plain, 2 * PageSize}, "unsealed": {unsealed, 2 * PageSize}, "short": {a.File(), PageSize}, "long": {a.File(), 3 * PageSize}, "odd": {a.File(), 5}} {
		if _, err := Adopt("x", c.f, c.n, nil); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.File().Truncate(PageSize); err == nil {
		t.Error("a sealed arena could be cut")
	}
}
