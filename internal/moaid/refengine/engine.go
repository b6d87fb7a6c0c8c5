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

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kvconn"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/metrics"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/openai"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// Engine is one engine. Run makes it work.
type Engine struct {
	cfg   Config
	log   *slog.Logger
	Sched *sched.Scheduler
	Met   *metrics.Set

	scheduler *enginesock.SchedulerClient // both nil without a connector
	worker    *enginesock.WorkerClient
	copier    *kvconn.Worker
	handler   http.Handler
}

// reserveWait bounds how long a prompt waits for pages to be sent from.
const reserveWait = 10 * time.Second

// New builds the weights and everything else. Nothing is opened yet.
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
	model, err := transformer.New(preset, cfg.Seed, 0, 1)
	if err != nil {
		return nil, err
	}
	cache, err := model.NewCache(fp, cfg.Blocks)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, log: log, Met: metrics.New()}
	var conn sched.Connector
	var worker sched.Worker
	if cfg.DaemonSocket != "" {
		hello := enginesock.Hello{Version: enginesock.Version, Engine: cfg.Name, Generation: kvconn.NewID(), World: 1, Fingerprint: fp}
		wake := func() { e.Sched.Wake() }
		hello.Session = enginesock.Scheduler
		e.scheduler = enginesock.NewScheduler(enginesock.Identity{Path: cfg.DaemonSocket, Hello: hello}, log, wake)
		hello.Session = enginesock.Worker
		e.worker = enginesock.NewWorker(enginesock.Identity{Path: cfg.DaemonSocket, Hello: hello}, log)
		e.copier = kvconn.NewWorker(e.worker, cache, e.Met, log, wake)
		conn = kvconn.NewScheduler(kvconn.Config{Node: cfg.Node, Engine: cfg.Name, Fail: cfg.FailTransfers,
			ReserveWait: reserveWait, ClaimWait: cfg.TransferWait, DownWait: cfg.DownWait}, e.scheduler, e.Met, log)
		worker = e.copier
	}
	e.Sched = sched.New(sched.Config{Blocks: cfg.Blocks, MaxBatchedTokens: cfg.MaxBatchedTokens, MaxSeqs: cfg.MaxSeqs,
		MaxTokens: preset.Config.MaxPosition}, model, cache, conn, worker, e.Met)
	e.handler = openai.New(e, cfg.Model, preset.Config.MaxPosition, e.Met.Registry, log, kvconn.NewID).Handler()
	return e, nil
}

// Handler serves the engine's HTTP API.
func (e *Engine) Handler() http.Handler { return e.handler }

// Fits reports why a request can never run here.
func (e *Engine) Fits(prompt, maxTokens int) error { return e.Sched.Fits(prompt, maxTokens) }

// Submit queues a request.
func (e *Engine) Submit(r *sched.Request) error { return e.Sched.Submit(r) }

// Abort ends a request whose client has gone.
func (e *Engine) Abort(r *sched.Request) { e.Sched.Abort(r) }

// Health is nil when requests can be answered, with transfers if there is a connector.
func (e *Engine) Health() error {
	if e.scheduler == nil {
		return nil
	}
	if err := errors.Join(e.scheduler.State(), e.worker.State()); err != nil {
		return fmt.Errorf("KV connector: %w", err)
	}
	return nil
}

// Run computes until ctx ends; then requests that still run end with an error.
func (e *Engine) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if e.scheduler != nil {
		wg.Go(func() { e.scheduler.Run(ctx) })
		wg.Go(func() { e.worker.Run(ctx) })
		wg.Go(func() { e.report(ctx) })
	}
	e.Sched.Run(ctx)
	if e.copier != nil {
		e.copier.Wait()
	}
	wg.Wait()
}

// report sends load feedback once a second, and when nothing is left to do.
func (e *Engine) report(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-e.Sched.Idle():
		}
		s := e.Sched.Stats()
		e.scheduler.Report(enginesock.Stats{Waiting: s.Waiting, Running: s.Running, KVBlocksFree: s.BlocksFree, KVBlocksTotal: s.BlocksTotal,
			StepMicrosP50: s.StepP50.Microseconds(), StepMicrosP99: s.StepP99.Microseconds()})
	}
}

// Serve answers HTTP on l and runs the engine until ctx ends. Requests in
// progress have grace to finish.
func (e *Engine) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	srv := &http.Server{Handler: e.handler, ReadHeaderTimeout: 10 * time.Second}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(run) })
	failed := make(chan error, 1)
	wg.Go(func() { failed <- srv.Serve(l) })
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		sctx, cancel := context.WithTimeout(run, grace)
		if srv.Shutdown(sctx) != nil {
			_ = srv.Close() // what is left is cut off
		}
		cancel()
	}
	stop()
	wg.Wait()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
