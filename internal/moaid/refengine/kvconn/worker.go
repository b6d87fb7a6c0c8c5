package kvconn

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/metrics"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// Worker copies between the engine's blocks and the daemon's arena.
type Worker struct {
	client *enginesock.WorkerClient
	cache  *transformer.Cache
	fp     kvcache.Fingerprint
	met    *metrics.Set
	log    *slog.Logger
	notify func()

	mu   sync.Mutex
	done []sched.LoadResult
	wg   sync.WaitGroup
}

// NewWorker makes a worker of the only rank. notify is called when a load has ended.
func NewWorker(client *enginesock.WorkerClient, cache *transformer.Cache, met *metrics.Set, log *slog.Logger, notify func()) *Worker {
	return &Worker{client: client, cache: cache, fp: cache.Fingerprint(), met: met, log: log, notify: notify}
}

// Step carries out a step's orders.
func (w *Worker) Step(m sched.Meta) {
	for _, l := range m.Loads {
		w.wg.Go(func() { w.load(l) })
	}
	for _, s := range m.Stores {
		if err := w.store(s); err != nil {
			w.log.Warn("KV was not stored", "transfer", s.ID, "err", err)
		}
	}
}

// TakeLoads gives the loads that ended since the last call.
func (w *Worker) TakeLoads() []sched.LoadResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.done
	w.done = nil
	return out
}

// Wait returns when no load is running.
func (w *Worker) Wait() { w.wg.Wait() }

// store copies the blocks that became complete to the arena and says so.
func (w *Worker) store(s sched.Store) error {
	pl, err := w.fp.PayloadFor(s.Tokens)
	if err != nil {
		return err
	}
	var ranges []kvcache.Range
	err = w.client.Arena(s.Instance, func(mem []byte) error {
		sp, err := spans([]kvcache.Range{{Length: pl.Bytes}}, s.Extents, int64(len(mem)))
		if err != nil {
			return err
		}
		for _, p := range pages(&w.fp, pl) {
			end := min((p.block+1)*w.fp.Storage.BlockSize, s.Tokens)
			if end <= s.From || end > s.To {
				continue
			}
			src := w.cache.Page(p.slot, s.Blocks[p.group][p.block])
			if used := s.Tokens - p.block*w.fp.Storage.BlockSize; used < w.fp.Storage.BlockSize {
				src = slices.Clone(src)
				w.fp.ClearFrom(src, p.group, used)
			}
			each(sp, p.offset, src, func(part []byte, at int64) { copy(mem[at:], part) })
			ranges = appendRange(ranges, kvcache.Range{Offset: p.offset, Length: int64(len(src))})
		}
		return nil
	})
	if err != nil || len(ranges) == 0 {
		return err
	}
	w.met.TransferBytes.WithLabelValues("send").Add(float64(kvcache.TotalBytes(ranges)))
	w.client.Stored(s.ID, ranges)
	return nil
}

// load copies a claimed payload to the request's blocks and reports it: to the
// daemon exactly once, and to the engine.
func (w *Worker) load(l sched.Load) {
	err := w.copyIn(l)
	if err != nil {
		w.log.Warn("KV was not loaded", "transfer", l.ID, "err", err)
	}
	if rerr := w.client.Loaded(l.ID, err == nil); rerr != nil {
		w.log.Warn("a load was not reported", "transfer", l.ID, "err", rerr)
	}
	w.mu.Lock()
	w.done = append(w.done, sched.LoadResult{Request: l.Request, OK: err == nil})
	w.mu.Unlock()
	w.notify()
}

func (w *Worker) copyIn(l sched.Load) error {
	pl, err := w.fp.PayloadFor(l.Tokens)
	if err != nil {
		return err
	}
	return w.client.Arena(l.Instance, func(mem []byte) error {
		sp, err := spans(l.Ranges, l.Extents, int64(len(mem)))
		if err != nil {
			return err
		}
		var got int64
		for _, p := range pages(&w.fp, pl) {
			dst := w.cache.Page(p.slot, l.Blocks[p.group][p.block])
			got += each(sp, p.offset, dst, func(part []byte, at int64) { copy(part, mem[at:]) })
		}
		if got != pl.Bytes {
			return fmt.Errorf("the ranges hold %d of the payload's %d bytes", got, pl.Bytes)
		}
		w.met.TransferBytes.WithLabelValues("receive").Add(float64(got))
		return nil
	})
}

func appendRange(rs []kvcache.Range, r kvcache.Range) []kvcache.Range {
	if n := len(rs); n > 0 && rs[n-1].Offset+rs[n-1].Length == r.Offset {
		rs[n-1].Length += r.Length
		return rs
	}
	return append(rs, r)
}
