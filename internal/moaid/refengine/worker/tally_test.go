package worker

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// A load has ended when all ranks have said so, well only if all have loaded it.
func TestLoadsOfAllRanks(t *testing.T) {
	told := 0
	c := newTally(3, func() { told++ })
	for _, r := range []sched.LoadResult{{Request: "a", OK: true}, {Request: "b", OK: false}, {Request: "a", OK: true}, {Request: "b", OK: true}} {
		c.report(r)
	}
	if got := c.TakeLoads(); len(got) != 0 || told != 0 {
		t.Errorf("%v after two of three reports, told %d times", got, told)
	}
	c.report(sched.LoadResult{Request: "b", OK: true})
	c.report(sched.LoadResult{Request: "a", OK: true})
	want := []sched.LoadResult{{Request: "b", OK: false}, {Request: "a", OK: true}}
	if got := c.TakeLoads(); !slices.Equal(got, want) || told != 2 {
		t.Errorf("got %v, told %d times", got, told)
	}
	if got := c.TakeLoads(); len(got) != 0 {
		t.Errorf("%v a second time", got)
	}
}
