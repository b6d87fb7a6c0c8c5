package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kvconn"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// Subcommand is the first argument of a rank's process, which is the engine's
// program.
const Subcommand = "engine-worker"

// Descriptors that a rank's process is started with.
const (
	fdLink   = 3
	fdMemory = 4
	fdBells  = 5 // and following, one a rank
)

// Serve is a rank's process: it does what its engine says until the engine goes.
// The result is the exit status.
func Serve() int {
	// A unit's stop signal reaches every process of it. The engine lets its requests
	// finish, for which it needs its ranks.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	var st syscall.Stat_t
	if err := syscall.Fstat(fdLink, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		fmt.Fprintln(os.Stderr, Subcommand+" is started by the engine, which gives it a socket.")
		return 2
	}
	l, err := newLink(os.NewFile(fdLink, "engine"))
	if err != nil {
		fmt.Fprintln(os.Stderr, Subcommand+":", err)
		return 1
	}
	err = serve(l)
	switch {
	case err == nil, errors.Is(err, io.EOF): // the engine has gone
		return 0
	}
	fmt.Fprintln(os.Stderr, Subcommand+":", err)
	_ = l.write(&report{Fatal: err.Error()}) // the engine may have gone
	return 1
}

// serve gives the reason why the rank ends.
func serve(l *link) error {
	var o order
	if err := l.read(&o); err != nil {
		return err
	}
	if o.Setup == nil {
		return errors.New("the engine's first message is no setup")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("replica", o.Setup.Spec.Replica, "rank", o.Setup.Rank)
	rank, err := build(l, o.Setup, log)
	if err != nil {
		return err
	}
	if err := l.write(&report{Ready: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go rank.Run(ctx)
	work := make(chan order, 64)
	ended := make(chan error, 2)
	go func() { ended <- carryOut(l, rank, o.Setup.Rank, work) }()
	go func() { ended <- listen(l, rank, work) }()
	return <-ended
}

func build(l *link, s *setup, log *slog.Logger) (*Rank, error) {
	bells := make([]int, s.Spec.Ranks())
	for i := range bells {
		bells[i] = fdBells + i
	}
	x, err := joinExchange(fdMemory, bells, s.Rank)
	if err != nil {
		return nil, err
	}
	reports := kvconn.Reports{ // a lost report means that the engine has gone, of which listen hears
		Loaded: func(r sched.LoadResult) { _ = l.write(&report{Loaded: &r}) },
		Copied: func(direction string, n int64) { _ = l.write(&report{Copied: &copied{direction, n}}) },
	}
	return NewRank(s.Spec, s.Rank, x, reports, log)
}

// listen hands out what the engine says. State is answered here, also while the
// rank computes.
func listen(l *link, rank *Rank, work chan<- order) error {
	for {
		var o order
		if err := l.read(&o); err != nil {
			return err
		}
		if !o.State {
			work <- o
			continue
		}
		s := &state{}
		if err := rank.State(); err != nil {
			s.Err = err.Error()
		}
		if err := l.write(&report{State: s}); err != nil {
			return err
		}
	}
}

// carryOut does the work in order, so that a step's stores precede the next
// step's computation.
func carryOut(l *link, rank *Rank, number int, work <-chan order) error {
	for o := range work {
		if o.Meta != nil {
			if err := rank.Orders(*o.Meta); err != nil {
				return err
			}
			continue
		}
		out, err := rank.Compute(o.Chunks)
		if err != nil {
			return fmt.Errorf("compute: %w", err)
		}
		if number != 0 {
			continue
		}
		if err := l.write(&report{Logits: &logits{out}}); err != nil {
			return err
		}
	}
	return nil
}

// ServeIfAsked is for the main function of programs that are not moaid-lab, such as
// tests with engines of several ranks: if this process was started as a rank's, it
// serves and exits.
func ServeIfAsked() {
	if len(os.Args) > 1 && os.Args[1] == Subcommand {
		os.Exit(Serve())
	}
}
