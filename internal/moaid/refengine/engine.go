package refengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kvconn"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/metrics"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/openai"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// Engine is one engine. Serve, or Run, makes it work.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	Met      *metrics.Set
	replicas []*replica
	handler  http.Handler

	mu      sync.Mutex
	started bool
	placed  map[*sched.Request]*replica // requests that have been submitted and not been left
}

// reserveWait bounds how long a prompt waits for pages to be sent from.
const reserveWait = 10 * time.Second

// New builds everything that lives in this process; the only rank of an engine
// that has one does. Nothing is opened or started yet.
func New(cfg Config, log *slog.Logger) (*Engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	preset, err := refmodel.Lookup(cfg.Model)
	if err != nil {
		return nil, err
	}
	fp, err := cfg.Fingerprint()
	if err != nil {
		return nil, err
	}
	kept, err := cfg.kept()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, log: log, Met: metrics.New(), placed: map[*sched.Request]*replica{}}
	generation := kvconn.NewID()
	for n := range cfg.DataParallel {
		r, err := e.newReplica(n, fp, kept, generation, preset.Config.MaxPosition)
		if err != nil {
			return nil, err
		}
		e.replicas = append(e.replicas, r)
	}
	e.handler = openai.New(e, cfg.Model, preset.Config.MaxPosition, e.Met.Registry, log, kvconn.NewID).Handler()
	return e, nil
}

// Handler serves the engine's HTTP API.
func (e *Engine) Handler() http.Handler { return e.handler }

// Replicas is the number of data-parallel replicas.
func (e *Engine) Replicas() int { return len(e.replicas) }

// Fits reports why a request can never run here.
func (e *Engine) Fits(prompt, maxTokens int) error {
	return e.replicas[0].sched.Fits(prompt, maxTokens)
}

// Submit queues a request at the replica that it names, or else at the one with
// the fewest requests. Abort must follow.
func (e *Engine) Submit(r *sched.Request) error {
	e.mu.Lock()
	to := e.replicas[0]
	if n := r.Params.Replica; n != nil {
		to = e.replicas[*n]
	} else {
		for _, x := range e.replicas[1:] {
			if x.open < to.open {
				to = x
			}
		}
	}
	to.open++
	e.placed[r] = to
	e.mu.Unlock()
	if err := to.sched.Submit(r); err != nil {
		e.leave(r)
		return err
	}
	return nil
}

// leave forgets where a request is.
func (e *Engine) leave(r *sched.Request) *replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.placed[r]
	if at != nil {
		at.open--
		delete(e.placed, r)
	}
	return at
}

// Abort ends a request whose client has gone, if it has not ended by itself.
func (e *Engine) Abort(r *sched.Request) {
	if at := e.leave(r); at != nil {
		at.sched.Abort(r)
	}
}

// Stats is a recent picture of all replicas together; step times are those of the
// slowest.
func (e *Engine) Stats() sched.Stats {
	var sum sched.Stats
	for _, r := range e.replicas {
		s := r.sched.Stats()
		sum.Waiting += s.Waiting
		sum.Running += s.Running
		sum.BlocksFree += s.BlocksFree
		sum.BlocksTotal += s.BlocksTotal
		sum.StepP50, sum.StepP99 = max(sum.StepP50, s.StepP50), max(sum.StepP99, s.StepP99)
	}
	return sum
}

// Health is nil when requests can be answered, with transfers if there is a connector.
func (e *Engine) Health() error {
	var errs []error
	for n, r := range e.replicas {
		if err := r.health(); err != nil {
			if len(e.replicas) > 1 {
				err = fmt.Errorf("replica %d: %w", n, err)
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("KV connector: %w", err)
	}
	return nil
}

// Start starts the processes of ranks, if there are any, and waits until they can
// compute. Run does so too.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	started := e.started
	e.started = true
	e.mu.Unlock()
	if started {
		return nil
	}
	errs := make([]error, len(e.replicas))
	var wg sync.WaitGroup
	for n, r := range e.replicas {
		wg.Go(func() { errs[n] = r.team.Start(ctx) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	for n, r := range e.replicas {
		if errs[n] == nil {
			_ = r.team.Run(over) // ends what was started
		}
	}
	return err
}

// Run computes until ctx ends or a rank does, which is an error; then requests that
// still run end with an error.
func (e *Engine) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := e.Start(ctx); err != nil {
		stop()
		for _, r := range e.replicas {
			_ = r.sched.Run(ctx) // ends the requests that have come
		}
		return err
	}
	errs := make([]error, len(e.replicas))
	var wg sync.WaitGroup
	for n, r := range e.replicas {
		wg.Go(func() { errs[n] = r.run(ctx, stop) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// goodbye bounds how long the answers to requests may take that ended because the
// engine has failed.
const goodbye = time.Second

// Serve answers HTTP on l and runs the engine until ctx ends. Requests in
// progress have grace to finish.
func (e *Engine) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	srv := &http.Server{Handler: e.handler, ReadHeaderTimeout: 10 * time.Second}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	ran, served := make(chan error, 1), make(chan error, 1)
	wg.Go(func() { ran <- e.Run(run) })
	wg.Go(func() { served <- srv.Serve(l) })
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve HTTP: %w", err)
	case err = <-ran:
		grace = goodbye
	case <-ctx.Done():
	}
	sctx, cancel := context.WithTimeout(run, grace)
	if srv.Shutdown(sctx) != nil {
		_ = srv.Close() // what is left is cut off
	}
	cancel()
	stop()
	wg.Wait()
	select {
	case rerr := <-ran:
		err = errors.Join(err, rerr)
	default:
	}
	return err
}
