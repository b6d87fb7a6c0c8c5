package worker

import (
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

func linkPair(t *testing.T) (a, b *link) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]*link, 2)
	for i, fd := range fds {
		if out[i], err = newLink(os.NewFile(uintptr(fd), "test")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(out[i].close)
	}
	return out[0], out[1]
}

// Messages arrive as they were sent, what says nothing but its kind too.
func TestMessagesCross(t *testing.T) {
	a, b := linkPair(t)
	go func() {
		for _, o := range sampleOrders() {
			if err := a.write(&o); err != nil {
				t.Error(err)
			}
		}
		a.close()
	}()
	for i, want := range sampleOrders() {
		var got order
		if err := b.read(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("message %d is %+v, %v", i, got, err)
		}
	}
	if err := b.read(&order{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	c, d := linkPair(t)
	inf := float32(math.Inf(-1))
	for _, want := range []report{{Ready: true}, {Fatal: "x"}, {State: &state{}}, {State: &state{"down"}}, {Loaded: &sched.LoadResult{}},
		{Copied: &copied{"send", 7}}, {Logits: &logits{[][]float32{{3}, {1, inf, math.SmallestNonzeroFloat32}}}}} {
		if err := c.write(&want); err != nil {
			t.Fatal(err)
		}
		var got report
		if err := d.read(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// Chunks whose logits nobody wants have none at the other end either.
func TestNoLogitsStayNone(t *testing.T) {
	a, b := linkPair(t)
	if err := a.write(&report{Logits: &logits{[][]float32{nil, {1}, nil}}}); err != nil {
		t.Fatal(err)
	}
	var got report
	if err := b.read(&got); err != nil || got.Logits == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if l := got.Logits.Chunks; len(l) != 3 || len(l[0]) != 0 || len(l[1]) != 1 || len(l[2]) != 0 {
		t.Errorf("%v", l)
	}
}

func sampleOrders() []order {
	return []order{
		{Setup: &setup{Spec: Spec{Model: "m", Seed: 1, Fingerprint: kvcache.Fingerprint{Version: 1}, Session: &enginesock.Identity{Path: "/x"}}, Rank: 1}},
		{State: true},
		{Chunks: []transformer.Chunk{{Tokens: []int{0, 1}, Tables: [][]int{{0, -1}, {5}}, Logits: true}}},
		{Meta: &sched.Meta{Loads: []sched.Load{{ID: "a", Ranges: []kvcache.Range{{Length: 3}}, Extents: [][]enginesock.Extent{{{Offset: 9, Length: 3}}}}}}},
	}
}
