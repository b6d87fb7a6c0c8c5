package formats

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/worker"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

func TestMain(m *testing.M) {
	worker.ServeIfAsked()
	os.Exit(m.Run())
}

const (
	osl     = 4        // tokens of an answer
	staging = 16 << 20 // bytes of an engine
)

// recorder keeps rows, and writes them to a file if there is one.
type recorder struct {
	mu   sync.Mutex
	file *os.File
	rows []Row
}

func (r *recorder) add(t *testing.T, row Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
	if r.file == nil {
		return
	}
	if err := WriteRow(r.file, &row); err != nil {
		t.Fatal(err)
	}
}

// options are those of all nodes here. Ended transfers are remembered until their list
// is read, after all prompts of a pair.
func options() rig.Options {
	to := transfer.DefaultTimeouts()
	to.Retain = 3 * time.Minute
	return rig.Options{Timeouts: to, Log: rig.Log()}
}

// config is that of an engine of a format.
func config(name, model string, f Format) refengine.Config {
	c := rig.Config(name, model, refmodel.DefaultSeed)
	c.Format, c.DataParallel, c.Blocks = f.Format, f.Replicas, max(32, 16384/f.BlockSize)
	return c
}

// stage is two nodes with engines of one model: prefill on A, decode on B.
type stage struct {
	t          *testing.T
	rec        *recorder
	set, model string
	nodes      *rig.Pair
	prefill    map[string]*rig.Engine // by format
	decode     map[string]*rig.Engine
	answers    map[string][]rig.Answer // by decode format and prompts
}

func newStage(t *testing.T, rec *recorder, set, model string) *stage {
	t.Helper()
	return &stage{t: t, rec: rec, set: set, model: model, nodes: rig.New(t, options()),
		prefill: map[string]*rig.Engine{}, decode: map[string]*rig.Engine{}, answers: map[string][]rig.Answer{}}
}

// start enrolls and starts engines of all formats, on the sides that need them.
func (s *stage) start(prefill, decode []Format) {
	s.t.Helper()
	for _, side := range []struct {
		node    *rig.Node
		role    string
		formats []Format
		engines map[string]*rig.Engine
	}{{s.nodes.A, "prefill", prefill, s.prefill}, {s.nodes.B, "decode", decode, s.decode}} {
		for _, f := range side.formats {
			cfg := config(f.Name, s.model, f)
			side.node.Enroll(s.t, side.role, cfg, staging)
			side.engines[f.Name] = rig.StartEngine(s.t, side.node, cfg)
		}
	}
}

func names(formats []Format) []string {
	out := make([]string, len(formats))
	for i, f := range formats {
		out[i] = f.Name
	}
	return out
}

// prompt gives a prompt of so many tokens, another one for each number.
func prompt(tokens, number int) []int {
	return rig.Prompts(2, max(tokens, 2), uint64(number+1))[1][:tokens]
}

// prompts gives n prompts of a claim: those of reciting weights are longer than the
// lag, others are of 1 token and more, at the edges of blocks and beyond the window.
func (s *stage) prompts(claim Claim, n int) [][]int {
	s.t.Helper()
	if claim == ClaimBits {
		if n > 8 {
			return rig.Prompts(n, 400, 1)
		}
		var out [][]int
		for i, size := range []int{131, 1, 40, 17, 65, 2, 200, 16} {
			out = append(out, prompt(size, i))
		}
		return out[:n]
	}
	m, err := refmodel.Lookup(s.model)
	if err != nil {
		s.t.Fatal(err)
	}
	out := make([][]int, n)
	for i := range out {
		out[i] = prompt(m.Lag()+1+i*72/n, i)
	}
	return out
}

// alone gives the answers that are claimed of a decode engine: its own, without a
// transfer, or those that its weights are known to recite.
func (s *stage) alone(decode string, claim Claim, ps [][]int) []rig.Answer {
	s.t.Helper()
	if claim == ClaimRecites {
		m, err := refmodel.Lookup(s.model)
		if err != nil {
			s.t.Fatal(err)
		}
		out := make([]rig.Answer, len(ps))
		for i, p := range ps {
			if out[i].Tokens, err = m.Recite(p, osl); err != nil {
				s.t.Fatal(err)
			}
		}
		return out
	}
	key := fmt.Sprint(decode, ps)
	if s.answers[key] == nil {
		out := make([]rig.Answer, len(ps))
		rig.Each(s.t, ps, func(i int, p []int) (err error) {
			out[i], err = s.decode[decode].Complete(context.Background(), p, osl, nil)
			return err
		})
		s.answers[key] = out
	}
	return s.answers[key]
}

// job is prompts for one pair of engines.
type job struct {
	kind            Kind
	claim           Claim
	prefill, decode string // formats
	engine          *rig.Engine
	expected        string // conversion
	ps              [][]int
	want            []rig.Answer
	osl             func(p []int) int // nil for the usual
	atOnce          bool              // other jobs run, so that sums are not the job's
}

const computedMetric = "reference_prompt_tokens_computed_total"

// run answers a job's prompts and records a row for each. Bytes and conversions are
// those that the daemons tell of each transfer; what decode computed is told by each
// answer. Both are counted again together, and a difference is given to the last row.
func (s *stage) run(j job) {
	s.t.Helper()
	ctx := context.Background()
	d := s.decode[j.decode]
	pair := &rig.EnginePair{Pair: s.nodes, P: j.engine, D: d}
	if j.engine == nil {
		pair.P = s.prefill[j.prefill]
	}
	rows := make([]Row, len(j.ps))
	ids := make([]string, len(j.ps))
	computed, link := d.Metric(ctx, computedMetric), pair.Received(ctx)
	rig.Each(s.t, j.ps, func(i int, p []int) error {
		r := &rows[i]
		*r = Row{Kind: j.kind, Set: s.set, Model: s.model, Prefill: j.prefill, Decode: j.decode, Claim: j.claim, PromptTokens: len(p),
			Want: j.want[i].Tokens, WantLogits: j.want[i].Hashes, BytesExpected: d.Payload(len(p)), Expected: j.expected}
		n := osl
		if j.osl != nil {
			n = j.osl(p)
		}
		a, tr, err := pair.Split(ctx, p, n)
		if err != nil {
			r.Error = err.Error()
			return nil //nolint:nilerr // the row tells it, and the figures count it
		}
		ids[i], r.Got, r.Computed = tr.TransferID, a.Tokens, len(p)-a.Cached
		if j.want[i].Hashes != nil {
			r.GotLogits = a.Hashes
		}
		r.MaxError, r.MeanError = logitError(a, j.want[i])
		return nil
	})
	s.transfers(ctx, rows, ids)
	defer func() {
		for _, r := range rows {
			s.rec.add(s.t, r)
		}
	}()
	if j.atOnce {
		return
	}
	all, left := int(d.Metric(ctx, computedMetric)-computed), pair.Received(ctx)-link
	for _, r := range rows {
		all, left = all-r.Computed, left-r.Bytes
	}
	rows[len(rows)-1].Computed += all
	rows[len(rows)-1].Bytes += left
}

// transfers fills in what the daemons tell of transfers.
func (s *stage) transfers(ctx context.Context, rows []Row, ids []string) {
	s.t.Helper()
	for _, n := range []*rig.Node{s.nodes.B, s.nodes.A} {
		list, err := n.Manage.Transfers(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range list {
			x := &list[i]
			at := slices.Index(ids, x.ID)
			if at < 0 || x.ID == "" {
				continue
			}
			r := &rows[at]
			if x.Direction == "receive" {
				r.Bytes = x.BytesMoved
			} else {
				r.Said, r.Clipped, r.Rounded = x.Conversion, x.ValuesClipped, x.ValuesRounded
			}
			if ended := x.State == string(transfer.Aborted) || x.State == string(transfer.Expired); ended && r.End == "" {
				r.End = x.State + ": " + x.Reason
			}
		}
	}
}

// logitError compares the logits of two answers as long as their tokens agree.
func logitError(got, want rig.Answer) (most, mean float64) {
	n := 0
	for i := range min(len(got.Logits), len(want.Logits)) {
		for k, x := range got.Logits[i] {
			e := math.Abs(float64(x) - float64(want.Logits[i][k]))
			most, mean, n = max(most, e), mean+e, n+1
		}
		if got.Tokens[i] != want.Tokens[i] {
			break
		}
	}
	return most, mean / float64(max(n, 1))
}

// verdicts waits until both daemons know all formats and records what they say of
// each pair of them that expected names.
func (s *stage) verdicts(expected map[[2]string]string) {
	s.t.Helper()
	said := map[[2]string][]string{}
	rig.Eventually(s.t, 30*time.Second, func() error {
		clear(said)
		for _, n := range []*rig.Node{s.nodes.A, s.nodes.B} {
			st, err := n.Manage.Status(context.Background())
			if err != nil {
				return err
			}
			for i := range st.Engines {
				for _, c := range st.Engines[i].Conversions {
					key := [2]string{c.Prefill.Engine, c.Decode.Engine}
					said[key] = append(said[key], string(c.Class)+": "+c.Text)
				}
				for _, why := range st.Engines[i].Incompatible {
					pair, text, _ := strings.Cut(why, ": ")
					p, d, _ := strings.Cut(pair, " → ")
					key := [2]string{strings.TrimPrefix(p, s.nodes.A.Name+"/"), strings.TrimPrefix(d, s.nodes.B.Name+"/")}
					said[key] = append(said[key], text)
				}
			}
		}
		for key := range expected {
			if len(said[key]) < 2 {
				return fmt.Errorf("of %v only %v is said", key, said[key])
			}
		}
		return nil
	})
	for key, want := range expected {
		r := Row{Kind: KindVerdict, Set: s.set, Model: s.model, Prefill: key[0], Decode: key[1], Expected: want, Said: said[key][0]}
		for _, other := range said[key][1:] {
			if other != r.Said {
				r.Said += " | " + other
			}
		}
		s.rec.add(s.t, r)
	}
}

// told is how a daemon's status says a verdict.
func told(class kvcompat.Class, conversion string) string { return string(class) + ": " + conversion }

// wrongPrefill starts an engine of other weights, which claims to have the right ones,
// until done is called.
func (s *stage) wrongPrefill(t *testing.T, f Format) *rig.Engine {
	t.Helper()
	cfg := config("wrong-"+f.Name, s.model, f)
	cfg.Seed = refmodel.DefaultSeed + 1
	s.nodes.A.Enroll(t, "prefill", cfg, staging)
	return rig.StartEngine(t, s.nodes.A, cfg)
}

// allow makes the pair of all engines, and that of those with wrong weights, which
// need not be there yet.
func (s *stage) allow(prefill, decode []Format) {
	s.t.Helper()
	all := names(prefill)
	for _, f := range prefill {
		all = append(all, "wrong-"+f.Name)
	}
	s.nodes.Allow(s.t, api.Pair{Name: "all"}, all, names(decode))
}

// silent records a prompt that decode answers without a transfer, as if one had been
// asked for.
func (s *stage) silent(decode string, expected string, ps [][]int) {
	s.t.Helper()
	want := s.alone(decode, ClaimBits, ps)
	d := s.decode[decode]
	for i, p := range ps {
		r := Row{Kind: KindSilent, Set: s.set, Model: s.model, Prefill: DefaultPrefill, Decode: decode, Claim: ClaimBits, PromptTokens: len(p),
			Want: want[i].Tokens, WantLogits: want[i].Hashes, BytesExpected: d.Payload(len(p)), Expected: expected, Said: expected}
		a, err := d.Complete(context.Background(), p, osl, (*sched.TransferParams)(nil))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Got, r.GotLogits, r.Computed = a.Tokens, a.Hashes, len(p)-a.Cached
		s.rec.add(s.t, r)
	}
}

// cross runs the prompts from every prefill engine to every decode engine, all ways
// at once. What decode computed is told by each answer, and not counted again.
func (s *stage) cross(prefill, decode []Format, ps [][]int) {
	s.t.Helper()
	var wg sync.WaitGroup
	for _, d := range decode {
		want := s.alone(d.Name, ClaimBits, ps)
		for _, p := range prefill {
			v, err := verdict(s.model, p, d)
			if err != nil {
				s.t.Fatal(err)
			}
			j := job{kind: KindPlain, claim: ClaimBits, prefill: p.Name, decode: d.Name, expected: v.Conversion(), ps: ps, want: want, atOnce: true}
			wg.Go(func() { s.run(j) })
		}
	}
	wg.Wait()
}
