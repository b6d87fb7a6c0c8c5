package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kvconn"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// Spec says what the ranks of one replica run.
type Spec struct {
	Model       string // preset of refmodel
	Seed        uint64 // of the weights
	Fingerprint kvcache.Fingerprint
	Blocks      int // of KV
	Replica     int // number among the engine's data-parallel replicas
	// Session is how ranks introduce themselves to the KV daemon, but for what
	// differs from rank to rank. nil without a connector.
	Session *enginesock.Identity
}

// Ranks is the tensor-parallel size.
func (s *Spec) Ranks() int { return s.Fingerprint.Ranks.Tensor }

// Rank is one tensor-parallel rank.
type Rank struct {
	model  *transformer.Model
	cache  *transformer.Cache
	gather transformer.Gather
	client *enginesock.WorkerClient // both nil without a connector
	copier *kvconn.Worker
}

// NewRank builds the weights of a rank and its cache. Nothing is opened yet.
func NewRank(s Spec, rank int, gather transformer.Gather, reports kvconn.Reports, log *slog.Logger) (*Rank, error) {
	preset, err := refmodel.Lookup(s.Model)
	if err != nil {
		return nil, err
	}
	r := &Rank{gather: gather}
	if r.model, err = transformer.New(preset, s.Seed, rank, s.Ranks()); err != nil {
		return nil, fmt.Errorf("model %s: %w", s.Model, err)
	}
	if r.cache, err = r.model.NewCache(s.Fingerprint, s.Blocks); err != nil {
		return nil, fmt.Errorf("KV cache: %w", err)
	}
	if s.Session != nil {
		id := *s.Session
		id.Hello.Session, id.Hello.Rank = enginesock.Worker, rank
		r.client = enginesock.NewWorker(id, log)
		r.copier = kvconn.NewWorker(r.client, r.cache, s.Fingerprint, rank, reports, log)
	}
	return r, nil
}

// Compute runs the chunks. All ranks of a replica must be given the same ones.
func (r *Rank) Compute(chunks []transformer.Chunk) ([][]float32, error) {
	return r.model.Forward(r.cache, chunks, r.gather)
}

// Orders carries out the rank's part of a step's orders.
func (r *Rank) Orders(m sched.Meta) error {
	if r.copier == nil {
		return errors.New("orders for a rank without a KV connector")
	}
	r.copier.Orders(m)
	return nil
}

// State is nil while the session with the daemon is up, and without a connector.
func (r *Rank) State() error {
	if r.client == nil {
		return nil
	}
	return r.client.State()
}

// Run keeps the session with the daemon until ctx ends.
func (r *Rank) Run(ctx context.Context) {
	if r.client == nil {
		<-ctx.Done()
		return
	}
	r.client.Run(ctx)
}

// Wait returns when nothing is copied any more; no orders may follow.
func (r *Rank) Wait() {
	if r.copier != nil {
		r.copier.Wait()
	}
}
