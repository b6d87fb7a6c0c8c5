package refengine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kvconn"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/worker"
)

// team is the ranks of a replica.
type team interface {
	sched.Workers
	Start(ctx context.Context) error
	// Run ends with ctx, or with an error when a rank has ended.
	Run(ctx context.Context) error
	// State is nil while all ranks have a session with the daemon.
	State() error
}

// replica is a scheduler with its ranks: an engine but for the HTTP API.
type replica struct {
	sched  *sched.Scheduler
	team   team
	client *enginesock.SchedulerClient // nil without a connector
	open   int                         // requests that have been submitted and not been left; guarded by the engine
}

// newReplica builds replica number n, which claims to have fp and keeps elements as
// kept says. generation is the engine's.
func (e *Engine) newReplica(n int, fp, kept kvcache.Fingerprint, generation string, maxTokens int) (*replica, error) {
	cfg, r := &e.cfg, &replica{}
	log := e.log
	if cfg.DataParallel > 1 {
		log = log.With("replica", n)
	}
	wake := func() { r.sched.Wake() }
	spec := worker.Spec{Model: cfg.Model, Seed: cfg.Seed, Fingerprint: kept, Blocks: cfg.Blocks, Replica: n}
	var conn sched.Connector
	if cfg.DaemonSocket != "" {
		id := enginesock.Identity{Path: cfg.DaemonSocket, Hello: enginesock.Hello{Version: enginesock.Version, Engine: cfg.Name,
			Generation: generation, Session: enginesock.Scheduler, World: fp.Ranks.Tensor, DataRank: n, DataSize: cfg.DataParallel, Fingerprint: fp}}
		spec.Session = &id
		r.client = enginesock.NewScheduler(id, log, wake)
		conn = kvconn.NewScheduler(kvconn.Config{Node: cfg.Node, Engine: cfg.Name, Fail: cfg.FailTransfers,
			ReserveWait: reserveWait, ClaimWait: cfg.TransferWait, DownWait: cfg.DownWait}, r.client, e.Met, log)
	}
	copied := func(direction string, bytes int64) {
		e.Met.TransferBytes.WithLabelValues(direction).Add(float64(bytes))
	}
	if cfg.Processes() {
		r.team = worker.NewProcesses(spec, wake, copied, cfg.Stderr)
	} else {
		local, err := worker.NewLocal(spec, wake, copied, log)
		if err != nil {
			return nil, err
		}
		r.team = local
	}
	r.sched = sched.New(sched.Config{Blocks: cfg.Blocks, MaxBatchedTokens: cfg.MaxBatchedTokens, MaxSeqs: cfg.MaxSeqs, MaxTokens: maxTokens},
		fp, n, r.team, conn, e.Met)
	return r, nil
}

// run works until ctx ends or a rank does; the error says which. stop, which ends
// ctx, is called in the latter case.
func (r *replica) run(ctx context.Context, stop func()) error {
	var wg sync.WaitGroup
	if r.client != nil {
		wg.Go(func() { r.client.Run(ctx) })
		wg.Go(func() { r.report(ctx) })
	}
	// Ranks go after the scheduler, which may be in the middle of a step.
	tctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var terr error
	wg.Go(func() {
		if terr = r.team.Run(tctx); terr != nil {
			stop()
		}
	})
	err := r.sched.Run(ctx)
	if err != nil {
		stop()
	}
	cancel()
	wg.Wait()
	if terr != nil { // what made the scheduler fail, if it did
		return terr
	}
	return err
}

// health is nil when the replica can answer requests, with transfers if there is
// a connector.
func (r *replica) health() error {
	if r.client == nil {
		return nil
	}
	return errors.Join(r.client.State(), r.team.State())
}

// report sends load feedback once a second, and when nothing is left to do.
func (r *replica) report(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-r.sched.Idle():
		}
		s := r.sched.Stats()
		r.client.Report(enginesock.Stats{Waiting: s.Waiting, Running: s.Running, KVBlocksFree: s.BlocksFree, KVBlocksTotal: s.BlocksTotal,
			StepMicrosP50: s.StepP50.Microseconds(), StepMicrosP99: s.StepP99.Microseconds()})
	}
}
