package kvd

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
)

// An attempt that gets pages of one rank and none of the other gives them back.
// It must not wake itself by that, or the owner spins until a deadline.
func TestLeaseThatFailsDoesNotWakeItself(t *testing.T) {
	woken := 0
	var arenas []*arena.Arena
	for _, pages := range []int64{4, 1} {
		a, err := arena.Create("t", pages*arena.PageSize, func() { woken++ })
		if err != nil {
			t.Fatal(err)
		}
		defer a.Retire()
		arenas = append(arenas, a)
	}
	e := &replica{arenas: arenas}
	if _, ok := e.lease([]int64{2 * arena.PageSize, 2 * arena.PageSize}); ok {
		t.Fatal("leased two pages of an arena with one")
	}
	if woken != 0 || arenas[0].Usage().Free != 4 {
		t.Errorf("woken %d times, usage %+v", woken, arenas[0].Usage())
	}
	ls, ok := e.lease([]int64{arena.PageSize, arena.PageSize})
	if !ok {
		t.Fatal("no lease")
	}
	ls[0].Release()
	ls[1].Release()
	if woken != 2 {
		t.Errorf("woken %d times by pages that became free", woken)
	}
}
