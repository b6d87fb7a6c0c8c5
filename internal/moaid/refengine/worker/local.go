package worker

import (
	"context"
	"log/slog"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kvconn"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// Local is a replica's only rank, in the engine's own process.
type Local struct {
	*tally
	*Rank
}

var _ sched.Workers = (*Local)(nil)

// NewLocal builds the rank. notify is called when TakeLoads has something new,
// copied for what was copied from or to the arena.
func NewLocal(s Spec, notify func(), copied func(direction string, bytes int64), log *slog.Logger) (*Local, error) {
	l := &Local{tally: newTally(1, notify)}
	var err error
	l.Rank, err = NewRank(s, 0, transformer.Alone, kvconn.Reports{Loaded: l.report, Copied: copied}, log)
	return l, err
}

// Start does nothing: the rank is built.
func (*Local) Start(context.Context) error { return nil }

// Run keeps the session with the daemon until ctx ends, when no step may be
// running any more.
func (l *Local) Run(ctx context.Context) error {
	l.Rank.Run(ctx)
	l.Wait()
	return nil
}
