package kvd

import (
	"context"
	"errors"
	"testing"
)

// A caller that gives up while the owner is busy must find nothing done later:
// a claim of a request that has gone would keep its pages until a deadline.
func TestCallIsAllOrNothing(t *testing.T) {
	o := newOwner()
	ctx, stop := context.WithCancel(t.Context())
	go o.run(ctx, func() {}, func() {})
	defer func() { stop(); <-o.done }()
	busy, started := make(chan struct{}), make(chan struct{})
	o.post(func() { close(started); <-busy })
	<-started
	gone, leave := context.WithCancel(t.Context())
	leave()
	ran := false
	if err := o.call(gone, func() { ran = true }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(busy)
	if err := o.call(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	if ran {
		t.Error("it was done after its caller was told that it was not")
	}
}
