package refmodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Family and Release are the fingerprint's engine field of the reference engine.
const (
	Family  = "reference"
	Release = "1"
)

// DefaultSeed is the weights seed that an engine uses unless told otherwise.
const DefaultSeed = 1

// Special token ids; ids below 256 are bytes.
const (
	BOS = 256
	EOS = 257
)

// Weights names a way to make weights.
type Weights string

// The two sets of weights.
const (
	Seeded   Weights = "seeded"
	Reciting Weights = "reciting"
)

// Config is the shape of a model.
type Config struct {
	Layers      int     `json:"layers"`
	Hidden      int     `json:"hidden"`
	Heads       int     `json:"heads"`    // query heads
	KVHeads     int     `json:"kv_heads"` // divides Heads; 1 with latent attention
	HeadDim     int     `json:"head_dim"` // with latent attention that of values, and of queries without their position
	FFN         int     `json:"ffn"`      // inner size of the feed-forward part, or of each expert
	Windows     []int   `json:"windows"`  // a layer; 0 keeps and sees all tokens, n the last n, itself included
	Lags        []int   `json:"lags"`     // a layer, of reciting weights; empty otherwise
	Vocab       int     `json:"vocab"`
	RopeBase    float64 `json:"rope_base"`
	MaxPosition int     `json:"max_position"` // tokens of prompt and answer together
	Latent      Latent  `json:"latent,omitzero"`
	Experts     Experts `json:"experts,omitzero"`
}

// Latent says that layers keep one vector for all heads (multi-head latent
// attention): a compressed part, of which keys and values of all heads are linear
// functions, and a rotated part, which every head's key ends with. All windows are 0.
type Latent struct {
	Dim  int `json:"dim"`  // elements of the compressed part; 0 for a model without latent attention
	Rope int `json:"rope"` // elements of the rotated part
}

// Experts says that the feed-forward part is a mixture: a router picks Top of Count
// experts for each token.
type Experts struct {
	Count int `json:"count"` // 0 for one feed-forward part
	Top   int `json:"top"`
}

// Model is a named preset.
type Model struct {
	Name    string
	Weights Weights
	Config  Config
}

// Lag is the distance from which a reciting model fetches its next token: with
// tokens x[0..n-1], x[n] = x[n-1-Lag]. 0 for seeded weights.
func (m Model) Lag() int {
	n := 0
	for _, l := range m.Config.Lags {
		n += l
	}
	return n
}

// Names lists the presets.
func Names() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}

// Lookup finds a preset by name.
func Lookup(name string) (Model, error) {
	for _, p := range presets {
		if p.Name == name {
			p.Config.Windows = slices.Clone(p.Config.Windows)
			p.Config.Lags = slices.Clone(p.Config.Lags)
			return p, nil
		}
	}
	return Model{}, fmt.Errorf("the reference engine has no model %q, only %v", name, Names())
}

// Identity says what the model's KV is computed with. Weights are identified by
// what they are made from: the config, the set and the seed.
func (m Model) Identity(seed uint64) kvcache.Model {
	return kvcache.Model{
		Config: hash(m.Config),
		Weights: hash(struct {
			Config  Config  `json:"config"`
			Weights Weights `json:"weights"`
			Seed    uint64  `json:"seed"`
		}{m.Config, m.Weights, seed}),
		Tokenizer: hash("bytes, then BOS and EOS"),
	}
}

// hash is hex sha256 of the canonical JSON of v.
func hash(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // numbers and strings always encode
		panic(err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Fingerprint is the model's KV cache as an engine with the given format has it.
func (m Model) Fingerprint(seed uint64, f Format) (kvcache.Fingerprint, error) {
	if err := f.Check(m); err != nil {
		return kvcache.Fingerprint{}, err
	}
	fp := kvcache.Fingerprint{
		Version: kvcache.Version,
		Model:   m.Identity(seed),
		Engine:  kvcache.Engine{Family: Family, Release: Release},
		Storage: f.storage(m, seed),
		Groups:  m.Config.Groups(),
		Ranks:   kvcache.Ranks{Tensor: f.Tensor, Pipeline: 1},
	}
	if err := fp.Validate(); err != nil {
		return kvcache.Fingerprint{}, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return fp, nil
}

// Groups gives the config's KV groups: the full layers first, then one group a window size.
func (c Config) Groups() []kvcache.Group {
	if c.Latent.Dim > 0 {
		g := kvcache.Group{Kind: kvcache.GroupLatent, Heads: 1, KeyDim: c.Latent.Dim + c.Latent.Rope}
		for l := range c.Layers {
			g.Layers = append(g.Layers, l)
		}
		return []kvcache.Group{g}
	}
	var full, sliding []kvcache.Group
	for l, w := range c.Windows {
		groups, kind := &sliding, kvcache.GroupSliding
		if w == 0 {
			groups, kind = &full, kvcache.GroupFull
		}
		i := slices.IndexFunc(*groups, func(g kvcache.Group) bool { return g.Window == w })
		if i < 0 {
			*groups = append(*groups, kvcache.Group{Kind: kind, Window: w, Heads: c.KVHeads, KeyDim: c.HeadDim, ValueDim: c.HeadDim})
			i = len(*groups) - 1
		}
		(*groups)[i].Layers = append((*groups)[i].Layers, l)
	}
	return append(full, sliding...)
}
