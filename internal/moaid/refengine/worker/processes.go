package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// Processes are the ranks of a replica, each a process. When one of them ends, all
// have to, and with them the engine: the rank's part of the cache is lost.
type Processes struct {
	*tally
	spec   Spec
	copied func(direction string, bytes int64)
	stderr io.Writer

	procs  []*process
	ready  chan int // ranks
	logits chan [][]float32
	wg     sync.WaitGroup

	failure sync.Once
	err     error
	failed  chan struct{} // closed once err is set
}

var _ sched.Workers = (*Processes)(nil)

// Bounds of what a rank may take for what it is asked.
const (
	setupWait   = time.Minute // builds weights and memory
	computeWait = 5 * time.Minute
	stateWait   = 2 * time.Second
)

// NewProcesses makes a replica's ranks; Start starts them. notify is called when
// TakeLoads has something new, copied for what a rank has copied from or to its
// arena. stderr, which may be nil, takes what the processes log.
func NewProcesses(s Spec, notify func(), copied func(direction string, bytes int64), stderr io.Writer) *Processes {
	return &Processes{tally: newTally(s.Ranks(), notify), spec: s, copied: copied, stderr: stderr,
		ready: make(chan int, s.Ranks()), logits: make(chan [][]float32, 1), failed: make(chan struct{})}
}

// Start starts the processes and waits until they have built what they need. After
// an error nothing is left.
func (p *Processes) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.spec.Ranks() < 1 {
		return fmt.Errorf("replica %d has no ranks", p.spec.Replica)
	}
	exchange, err := newExchange(p.spec.Ranks())
	if err != nil {
		return err
	}
	defer closeAll(exchange)
	for rank := range p.spec.Ranks() {
		proc, err := spawn(rank, exchange, p.stderr)
		if err != nil {
			return err
		}
		p.procs = append(p.procs, proc)
		p.wg.Go(func() { p.fail(proc.listen(p.take)) })
		if err := proc.link.write(&order{Setup: &setup{Spec: p.spec, Rank: rank}}); err != nil {
			return p.because(fmt.Errorf("rank %d: %w", rank, err))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, setupWait)
	defer cancel()
	for range p.procs {
		select {
		case <-p.ready:
		case <-p.failed:
			return p.err
		case <-ctx.Done():
			return fmt.Errorf("the ranks of replica %d are not ready: %w", p.spec.Replica, ctx.Err())
		}
	}
	return nil
}

// Run watches the processes until ctx ends, then ends them. The error says which
// of them ended before, and why.
func (p *Processes) Run(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
	case <-p.failed:
		err = p.err
	}
	p.stop()
	return err
}

func (p *Processes) stop() {
	var wg sync.WaitGroup
	for _, proc := range p.procs {
		wg.Go(proc.stop)
	}
	wg.Wait()
	p.wg.Wait()
}

// fail notes the first process that ends.
func (p *Processes) fail(err error) {
	p.failure.Do(func() {
		p.err = fmt.Errorf("replica %d: %w", p.spec.Replica, err)
		close(p.failed)
		p.notify()
	})
}

// because gives the failure of a process as the cause of an error if there is
// one, or comes to be one: what failed to be sent to a process says less than how
// that process ended.
func (p *Processes) because(err error) error {
	select {
	case <-p.failed:
		return p.err
	case <-time.After(stateWait):
		return err
	}
}

func (p *Processes) take(proc *process, r *report) {
	switch {
	case r.Ready:
		p.ready <- proc.rank
	case r.Logits != nil:
		select {
		case p.logits <- r.Logits.Chunks:
		default: // of a step that nobody waits for
		}
	case r.Loaded != nil:
		p.report(*r.Loaded)
	case r.Copied != nil:
		p.copied(r.Copied.Direction, r.Copied.Bytes)
	}
}

func (p *Processes) tell(o *order) error {
	for _, proc := range p.procs {
		if err := proc.link.write(o); err != nil {
			return p.because(fmt.Errorf("replica %d, rank %d: %w", p.spec.Replica, proc.rank, err))
		}
	}
	return nil
}

// Compute runs the chunks on every rank and gives the logits, which rank 0 has.
func (p *Processes) Compute(chunks []transformer.Chunk) ([][]float32, error) {
	if err := p.tell(&order{Chunks: chunks}); err != nil {
		return nil, err
	}
	t := time.NewTimer(computeWait)
	defer t.Stop()
	select {
	case out := <-p.logits:
		if len(out) != len(chunks) {
			return nil, fmt.Errorf("replica %d: logits of %d chunks, not of %d", p.spec.Replica, len(out), len(chunks))
		}
		return out, nil
	case <-p.failed:
		return nil, p.err
	case <-t.C:
		return nil, fmt.Errorf("replica %d: a step has taken longer than %v", p.spec.Replica, computeWait)
	}
}

// Orders sends a step's orders to every rank.
func (p *Processes) Orders(m sched.Meta) error { return p.tell(&order{Meta: &m}) }

// State is nil while every rank has a session with the daemon.
func (p *Processes) State() error {
	asked := make([]<-chan error, len(p.procs))
	for i, proc := range p.procs {
		var err error
		if asked[i], err = proc.ask(); err != nil {
			return err
		}
	}
	t := time.NewTimer(stateWait)
	defer t.Stop()
	var errs []error
	for i, ch := range asked {
		select {
		case err := <-ch:
			errs = append(errs, err)
		case <-t.C:
			return fmt.Errorf("rank %d does not answer", i)
		}
	}
	return errors.Join(errs...)
}

// PIDs are the ids of the processes, in rank order.
func (p *Processes) PIDs() []int {
	out := make([]int, len(p.procs))
	for i, proc := range p.procs {
		out[i] = proc.cmd.Process.Pid
	}
	return out
}
