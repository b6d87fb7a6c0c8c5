package kvconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// Pages is a rank's part of the engine's cache. slot is a layer's index in its
// group; pages are as long as the fingerprint says.
type Pages interface {
	ReadPage(group, slot, block int, dst []byte)
	WritePage(group, slot, block int, src []byte)
}

// Reports take what a worker has done. They are called from several goroutines
// and must not block.
type Reports struct {
	Loaded func(sched.LoadResult)
	Copied func(direction string, bytes int64) // send or receive
}

// Worker copies between one rank's blocks and its arena at the daemon.
type Worker struct {
	client  *enginesock.WorkerClient
	pages   Pages
	fp      kvcache.Fingerprint
	rank    int
	reports Reports
	log     *slog.Logger
	wg      sync.WaitGroup
	ctx     context.Context // ends with Wait
	cancel  context.CancelFunc
}

// answerWait bounds the wait for the daemon's answer to a report, without which
// what was copied is not used.
const answerWait = 5 * time.Second

// NewWorker makes the worker of a rank over a client that somebody runs.
func NewWorker(client *enginesock.WorkerClient, pages Pages, fp kvcache.Fingerprint, rank int, reports Reports, log *slog.Logger) *Worker {
	w := &Worker{client: client, pages: pages, fp: fp, rank: rank, reports: reports, log: log}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// State is nil while the session with the daemon is up.
func (w *Worker) State() error { return w.client.State() }

// Orders carries out the rank's part of a step's orders: stores before it returns,
// loads asynchronously.
func (w *Worker) Orders(m sched.Meta) {
	for _, l := range m.Loads {
		w.wg.Go(func() { w.load(l) })
	}
	for _, s := range m.Stores {
		if err := w.store(s); err != nil {
			w.log.Warn("KV was not stored", "transfer", s.ID, "err", err)
		}
	}
}

// Wait returns when no load is running; no orders may follow.
func (w *Worker) Wait() {
	w.cancel()
	w.wg.Wait()
}

// store copies what is this rank's of the blocks that became complete to the
// arena, and says so.
func (w *Worker) store(s sched.Store) error {
	if w.rank >= len(s.Ranges) || w.rank >= len(s.Extents) {
		return fmt.Errorf("the daemon has pages for %d ranks, not for rank %d", len(s.Extents), w.rank)
	}
	pl, err := w.fp.PayloadFor(s.Tokens)
	if err != nil {
		return err
	}
	var ranges []kvcache.Range
	err = w.client.Arena(s.Instance, func(mem []byte) error {
		sp, err := spans(s.Ranges[w.rank], s.Extents[w.rank], int64(len(mem)))
		if err != nil {
			return err
		}
		var buf []byte
		for _, p := range pages(&w.fp, pl) {
			end := min((p.block+1)*w.fp.Storage.BlockSize, s.Tokens)
			if end <= s.From || end > s.To || !covers(sp, p.offset, p.size) {
				continue
			}
			buf = sized(buf, p.size)
			w.pages.ReadPage(p.group, p.slot, s.Blocks[p.group][p.block], buf)
			w.fp.ClearFrom(buf, p.group, min(s.Tokens-p.block*w.fp.Storage.BlockSize, w.fp.Storage.BlockSize))
			each(sp, p.offset, buf, func(part []byte, at int64) { copy(mem[at:], part) })
			ranges = appendRange(ranges, kvcache.Range{Offset: p.offset, Length: p.size})
		}
		return nil
	})
	if err != nil || len(ranges) == 0 {
		return err
	}
	w.reports.Copied("send", kvcache.TotalBytes(ranges))
	w.client.Stored(s.ID, ranges)
	return nil
}

// load copies a claimed payload to the request's blocks and reports it: to the
// daemon exactly once, and to the engine when the daemon has confirmed that the
// pages were the transfer's all the while.
func (w *Worker) load(l sched.Load) {
	err := w.copyIn(l)
	if err != nil {
		w.log.Warn("KV was not loaded", "transfer", l.ID, "err", err)
	}
	ctx, cancel := context.WithTimeout(w.ctx, answerWait)
	defer cancel()
	if rerr := w.client.Report(ctx, l.ID, err == nil); rerr != nil && err == nil {
		w.log.Warn("KV that was loaded is not used, since the KV daemon did not confirm it", "transfer", l.ID, "err", rerr)
		err = rerr
	}
	w.reports.Loaded(sched.LoadResult{Request: l.Request, OK: err == nil})
}

func (w *Worker) copyIn(l sched.Load) error {
	if w.rank >= len(l.Extents) {
		return fmt.Errorf("the daemon has KV for %d ranks, not for rank %d", len(l.Extents), w.rank)
	}
	pl, err := w.fp.PayloadFor(l.Tokens)
	if err != nil {
		return err
	}
	return w.client.Arena(l.Instance, func(mem []byte) error {
		sp, err := spans(l.Ranges, l.Extents[w.rank], int64(len(mem)))
		if err != nil {
			return err
		}
		var got int64
		var buf []byte
		for _, p := range pages(&w.fp, pl) {
			buf = sized(buf, p.size)
			n := each(sp, p.offset, buf, func(part []byte, at int64) { copy(part, mem[at:]) })
			if n == p.size {
				w.pages.WritePage(p.group, p.slot, l.Blocks[p.group][p.block], buf)
			}
			got += n
		}
		if got != pl.Bytes {
			return fmt.Errorf("the ranges hold %d of the payload's %d bytes", got, pl.Bytes)
		}
		w.reports.Copied("receive", got)
		return nil
	})
}

// sized is buf, or a new one, with n bytes.
func sized(buf []byte, n int64) []byte {
	if int64(cap(buf)) < n {
		return make([]byte, n)
	}
	return buf[:n]
}

func appendRange(rs []kvcache.Range, r kvcache.Range) []kvcache.Range {
	if n := len(rs); n > 0 && rs[n-1].Offset+rs[n-1].Length == r.Offset {
		rs[n-1].Length += r.Length
		return rs
	}
	return append(rs, r)
}
