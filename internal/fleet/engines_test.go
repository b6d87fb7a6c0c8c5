package fleet

import (
	"testing"
)

func TestPlanEngine(t *testing.T) {
	t.Parallel()
	f := New(t.Context(), Settings{Fleet: "prod"})
	t.Cleanup(f.Close)
	if o := f.PlanEngine(EngineClaim{Node: "a", Engine: "y", GPUs: []int{0}}); len(o) > 0 {
		t.Errorf("the first has others: %v", o)
	}
	f.PlanEngine(EngineClaim{Node: "b", Engine: "x"})
	f.PlanEngine(EngineClaim{Node: "a", Engine: "x"})
	o := f.PlanEngine(EngineClaim{Node: "a", Engine: "z"})
	if len(o) != 2 || o[0].Engine != "x" || o[1].Engine != "y" {
		t.Errorf("got %v", o)
	}
	// A later plan of the same engine replaces the former.
	f.PlanEngine(EngineClaim{Node: "a", Engine: "y", GPUs: []int{3}})
	if o = f.PlanEngine(EngineClaim{Node: "a", Engine: "z"}); len(o) != 2 || o[1].GPUs[0] != 3 {
		t.Errorf("got %v", o)
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	f := New(t.Context(), Settings{Fleet: "prod"})
	t.Cleanup(f.Close)
	c := Coordinates{Name: "a", Host: "192.0.2.1"}
	if n, ok := f.GPUs(c); ok {
		t.Errorf("%d accelerators of a node that nobody knows", n)
	}
	eight := 8
	f.ExpectGPUs("a", &eight)
	if n, ok := f.GPUs(c); !ok || n != 8 {
		t.Errorf("got %d, %v", n, ok)
	}
	f.ExpectGPUs("a", nil)
	if _, ok := f.GPUs(c); ok {
		t.Error("an expectation that is gone is remembered")
	}
}
