package transformer

import (
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// meeting is the Gather of ranks that are goroutines.
type meeting struct {
	mu    sync.Mutex
	cond  *sync.Cond
	parts [][]float32
	here  int
	round int
	calls int
}

func newMeeting(size int) *meeting {
	m := &meeting{parts: make([][]float32, size)}
	m.cond = sync.NewCond(&m.mu)
	return m
}

// wait returns when all ranks are here.
func (m *meeting) wait() {
	m.here++
	if m.here == len(m.parts) {
		m.here = 0
		m.round++
		m.cond.Broadcast()
		return
	}
	for round := m.round; round == m.round; {
		m.cond.Wait()
	}
}

type seat struct {
	*meeting
	rank int
}

func (s seat) AllGather(part, whole []float32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[s.rank] = part
	s.calls++
	s.wait()
	for r, p := range s.parts {
		copy(whole[r*len(part):(r+1)*len(part)], p)
	}
	s.wait()
	return nil
}

// ranks is one model as all its ranks, with a cache each.
type ranks struct {
	t      failer
	fp     kvcache.Fingerprint
	models []*Model
	caches []*Cache
	meet   *meeting
}

func newRanks(t failer, model refmodel.Model, f refmodel.Format, seed uint64, blocks int) *ranks {
	t.Helper()
	fp, err := model.Fingerprint(seed, f)
	if err != nil {
		t.Fatal(err)
	}
	r := &ranks{t: t, fp: fp, meet: newMeeting(f.Tensor)}
	for rank := range f.Tensor {
		m, err := New(model, seed, rank, f.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		c, err := m.NewCache(fp, blocks)
		if err != nil {
			t.Fatal(err)
		}
		r.models, r.caches = append(r.models, m), append(r.caches, c)
	}
	return r
}

func (r *ranks) forward(chunks ...Chunk) [][]float32 {
	var wg sync.WaitGroup
	out, errs := make([][][]float32, len(r.models)), make([]error, len(r.models))
	for rank, m := range r.models {
		wg.Go(func() { out[rank], errs[rank] = m.Forward(r.caches[rank], chunks, seat{r.meet, rank}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
	for rank := 1; rank < len(out); rank++ {
		if out[rank] != nil {
			r.t.Fatal("a rank other than the first returned logits")
		}
	}
	return out[0]
}

// logits feeds the tokens at once but for the last few, which come one by one.
func (r *ranks) logits(tokens []int, tab [][]int, single int) [][]float32 {
	at := max(1, len(tokens)-single)
	out := r.forward(Chunk{Tokens: tokens[:at], Tables: tab, Logits: true})
	for ; at < len(tokens); at++ {
		out = append(out, r.forward(Chunk{Tokens: tokens[at : at+1], Start: at, Tables: tab, Logits: true})...)
	}
	return out
}

func tablesFor(fp *kvcache.Fingerprint, tokens int) (tab [][]int, blocks int) {
	per := (tokens + fp.Storage.BlockSize - 1) / fp.Storage.BlockSize
	tab = tables(0, per)
	return tab[:len(fp.Groups)], per * len(fp.Groups)
}

func TestRanksDoNotChangeABit(t *testing.T) {
	for _, name := range refmodel.Names() {
		model, err := refmodel.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		p := prompt(3, 200)
		var want [][]float32
		for _, size := range []int{1, 2, 4, 8} {
			f := refmodel.DefaultFormat()
			f.Tensor = size
			if err := f.Check(model); err != nil {
				if size < 8 {
					t.Error(err)
				}
				continue
			}
			fp, err := model.Fingerprint(1, f)
			if err != nil {
				t.Fatal(err)
			}
			tab, blocks := tablesFor(&fp, len(p))
			r := newRanks(t, model, f, 1, blocks)
			got := r.logits(p, tab, 3)
			if size == 1 {
				want = got
			}
			for i := range want {
				if !equalBits(got[i], want[i]) {
					t.Errorf("%s on %d ranks: step %d differs", name, size, i)
				}
			}
			if n := 4 * 3 * model.Config.Layers; size > 1 && r.meet.calls != n*size {
				t.Errorf("%s on %d ranks: %d gathers, want %d", name, size, r.meet.calls/size, n)
			}
		}
	}
}

// Neighbours that share a head keep the same pages of it.
func TestRanksWithTheSameHeadHaveTheSamePages(t *testing.T) {
	for _, name := range []string{"moai/seeded", "moai/latent"} {
		model, err := refmodel.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := refmodel.LookupFormat("h100")
		if err != nil {
			t.Fatal(err)
		}
		f.Tensor = 4
		r := newRanks(t, model, f, 1, 8)
		tab, _ := tablesFor(&r.fp, 32)
		r.logits(prompt(1, 32), tab, 0)
		page := func(rank int) string {
			b := make([]byte, r.fp.PageBytes(0))
			r.caches[rank].ReadPage(0, 1, tab[0][1], b)
			return string(b)
		}
		for a := range 4 {
			for b := range 4 {
				if same := r.fp.Primary(0, a) == r.fp.Primary(0, b); (page(a) == page(b)) != same {
					t.Errorf("%s: ranks %d and %d: same pages is not %t", name, a, b, same)
				}
			}
		}
	}
}

type broken struct{}

var errBroken = errors.New("no peer")

func (broken) AllGather(_, _ []float32) error { return errBroken }

func TestGatherErrorIsReturned(t *testing.T) {
	m, err := New(small, 1, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	f := formatWith(16)
	f.Tensor = 2
	fp, err := small.Fingerprint(1, f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.NewCache(fp, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Forward(c, []Chunk{{Tokens: []int{1}, Tables: tables(0, 1)}}, broken{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

func TestNewRefusesWhatCannotBeSplit(t *testing.T) {
	for _, c := range []struct{ rank, size int }{{0, 0}, {0, 3}, {2, 2}, {-1, 2}, {0, 16}} {
		if _, err := New(small, 1, c.rank, c.size); err == nil {
			t.Errorf("rank %d of %d was made", c.rank, c.size)
		}
	}
	m, err := New(small, 1, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := formatWith(16)
	f.Tensor = 2
	two, err := small.Fingerprint(1, f)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newRig(t, "moai/seeded", 1).model.Fingerprint(1, formatWith(16))
	if err != nil {
		t.Fatal(err)
	}
	for name, fp := range map[string]kvcache.Fingerprint{"other ranks": two, "other model": other} {
		if _, err := m.NewCache(fp, 2); err == nil {
			t.Errorf("%s: a cache was made", name)
		}
	}
}

// drawFormat draws a format in which the small model can be kept, of the given
// encoding, on up to four ranks.
func drawFormat(t *rapid.T, model refmodel.Model, base refmodel.Format) refmodel.Format {
	f := base
	f.Order = rapid.SampledFrom(kvcache.Orders()).Draw(t, "order")
	f.Packing = rapid.SampledFrom(kvcache.Packings()).Draw(t, "packing")
	f.KernelBlock = rapid.SampledFrom([]int{1, 3, 16, 32}).Draw(t, "kernel block")
	f.BlockSize = f.KernelBlock * rapid.IntRange(1, 3).Draw(t, "kernel blocks")
	f.Padding = 16 * rapid.IntRange(0, 2).Draw(t, "padding")
	f.Tensor = rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "ranks")
	if f.Check(model) != nil {
		t.Skip("does not fit")
	}
	return f
}
