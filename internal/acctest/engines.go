package acctest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

// Behaviour is how the engines of a fleet deal with KV that they were given.
type Behaviour string

// The behaviours.
const (
	Honest     Behaviour = "honest"      // load it and compute one token
	Recompute  Behaviour = "recompute"   // say that it arrived, and compute the prompt all the same
	NoOp       Behaviour = "no-op"       // say that it arrived, though nothing did
	WrongKV    Behaviour = "wrong"       // answer something else on it
	NotArrived Behaviour = "not arrived" // say that it did not arrive
	Inexact    Behaviour = "inexact"     // say that it holds values that do not fit
)

// Engines stand in for the engines behind the daemons of some hosts, and for the KV that crosses between them. An answer
// is a function of the prompt alone.
type Engines struct {
	mu        sync.Mutex
	behaviour Behaviour
	computed  map[string]int // prompt tokens, by engine
	requests  map[string]int
	transfers []api.Transfer
}

// NewEngines puts engines behind the daemons of all hosts of f.
func NewEngines(f *Fleet) *Engines {
	e := &Engines{behaviour: Honest, computed: map[string]int{}, requests: map[string]int{}}
	for _, h := range f.Hosts {
		h.Daemon.EngineHTTP = e.handler(h.Daemon)
		h.Daemon.TransferList = e.list
		h.SetProgram("id", func([]string, io.Reader) (string, string, int) { return "990\n", "", 0 })
		h.SetProgram("runuser", h.keygen)
	}
	return e
}

// Behave changes how all engines deal with KV.
func (e *Engines) Behave(b Behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.behaviour = b
}

func (e *Engines) list() []api.Transfer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]api.Transfer(nil), e.transfers...)
}

// keygen answers "runuser -u moai -- moaid keygen --key FILE".
func (h *Host) keygen(args []string, _ io.Reader) (stdout, stderr string, exit int) {
	if len(args) != 7 || args[4] != "keygen" || args[5] != "--key" {
		return "", "unexpected: " + strings.Join(args, " "), 2
	}
	file := args[6]
	if _, ok := h.File(file); !ok {
		h.SetFile(file, sshtest.Entry{Content: newSeed(), Mode: 0o600, Owner: "moai", Group: "moai"})
	}
	f, _ := h.File(file)
	return publicOf(f.Content) + "\n", "", 0
}

type completion struct {
	Model  string         `json:"model"`
	Prompt string         `json:"prompt"`
	Max    int            `json:"max_tokens"`
	KV     map[string]any `json:"kv_transfer_params"`
}

func (e *Engines) handler(d *Daemon) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		name := r.Header.Get("X-Test-Engine")
		_, _ = fmt.Fprintf(w, "reference_prompt_tokens_computed_total %d\nreference_requests_total %d\n", e.computed[name], e.requests[name]) // the client sees a cut answer
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var c completion
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			refuse(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
		e.complete(w, r, d, c)
	})
	return mux
}

func (e *Engines) complete(w http.ResponseWriter, r *http.Request, d *Daemon, c completion) {
	name, id := r.Header.Get("X-Test-Engine"), r.Header.Get("X-Moai-Transfer")
	d.mu.Lock()
	engine, node := d.engines[name], d.node
	d.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests[name]++
	words, computed := tokensOf(c.Prompt, c.Max), len(c.Prompt)
	answered := map[string]any{}
	if c.KV["do_remote_decode"] == true {
		answered["kv_transfer_params"] = map[string]any{
			"do_remote_prefill": true, "transfer_id": c.KV["transfer_id"], "source_node": node, "source_engine": name, "remote_num_tokens": len(c.Prompt),
		}
	}
	if id != "" {
		verdict := "ready"
		sent, got := e.transfer(d, node, id, engine, r.Header.Get("X-Moai-Source"), len(c.Prompt))
		computed = 1
		switch e.behaviour {
		case Honest:
		case Recompute:
			computed = len(c.Prompt)
		case NoOp:
			got.BytesMoved = 0
		case WrongKV:
			words = tokensOf(c.Prompt+"?", c.Max)
		case NotArrived:
			verdict, computed, got.State, got.BytesMoved = "failed; code=deadline", len(c.Prompt), "aborted", 0
		case Inexact:
			verdict, computed, got.State, got.BytesMoved = "failed; code=inexact", len(c.Prompt), "aborted", 0
		}
		e.transfers = append(e.transfers, sent, got)
		w.Header().Set("X-Moai-Transfer-Verdict", verdict)
	}
	e.computed[name] += computed
	answered["choices"] = []map[string]any{{"text": fmt.Sprint(words), "token_ids": words}}
	answered["usage"] = map[string]any{"prompt_tokens": len(c.Prompt), "completion_tokens": len(words)}
	answer(w, answered)
}

// lost is how many values a transfer between lossy formats changes.
const lost = 7

// transfer is both ends of a transfer of KV that went well, to an engine of d on here.
func (e *Engines) transfer(d *Daemon, here, id string, decode api.Engine, source string, tokens int) (sent, got api.Transfer) {
	node, name, _ := strings.Cut(source, "/")
	sent = api.Transfer{ID: id, Direction: "send", State: "committed", Engine: name, Peer: here + "/" + decode.Name, Tokens: tokens}
	got = api.Transfer{ID: id, Direction: "receive", State: "committed", Engine: decode.Name, Peer: source, Tokens: tokens}
	if p, err := decode.Fingerprint.PayloadFor(tokens); err == nil {
		n := decode.Fingerprint.WireBytes(p, 0)
		sent.BytesExpected, sent.BytesMoved, got.BytesExpected, got.BytesMoved = n, n, n, n
	}
	if from := d.net.find(node); from != nil {
		v := from.verdict(api.PeerEngine{Node: node, Engine: name}, api.PeerEngine{Node: here, Engine: decode.Name}, decode.Fingerprint)
		if sent.Conversion = v.Conversion(); v.Class == kvcompat.Lossy {
			sent.ValuesRounded = lost
		}
	}
	return sent, got
}

// verdict is what the daemon says of sending KV of its engine to another one, which
// keeps it as to says: what every pair that joins them allows is allowed.
func (d *Daemon) verdict(prefill, decode api.PeerEngine, to kvcache.Fingerprint) kvcompat.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := kvcompat.Options{AllowLossy: true, AllowReleases: true}
	for _, p := range d.pairs {
		if slices.Contains(p.Prefill, prefill) && slices.Contains(p.Decode, decode) {
			o.AllowLossy = o.AllowLossy && p.AllowLossy
			o.AllowReleases = o.AllowReleases && p.AllowReleases
		}
	}
	return kvcompat.Check(d.engines[prefill.Engine].Fingerprint, to, o)
}

func tokensOf(prompt string, n int) []int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(prompt)) // never fails
	out := make([]int, n)
	for i := range out {
		_, _ = h.Write([]byte{byte(i)}) // never fails
		out[i] = int(h.Sum64() % 256)
	}
	return out
}
