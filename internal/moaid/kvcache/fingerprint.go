package kvcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the version of [Fingerprint].
const Version = 1

// Fingerprint identifies the format and the meaning of an engine's KV cache.
// Engines with equal fingerprints may exchange payloads byte for byte; whether
// others may is what kvcompat decides. The vendor of the accelerator is not part
// of it.
type Fingerprint struct {
	Version int    `json:"version"` // [Version]
	Model   Model  `json:"model"`
	Engine  Engine `json:"engine"`
	// Features are what changes the meaning of the cache and is not said elsewhere,
	// ascending: "speculative:eagle3", "encoder_decoder", "state_space" …
	Features []string `json:"features,omitempty"`
	Storage  Storage  `json:"storage"`
	Groups   []Group  `json:"groups"` // in payload order: sliding groups last
	Ranks    Ranks    `json:"ranks"`
}

// Model is the identity of what the cache was computed with: hex sha256 each.
type Model struct {
	Config       string `json:"config"`        // of the model's configuration
	Weights      string `json:"weights"`       // of the index of its weights
	Tokenizer    string `json:"tokenizer"`     // of its tokenizer
	ChatTemplate string `json:"chat_template"` // empty for a model without one
}

// Engine is the program that has the cache.
type Engine struct {
	Family  string `json:"family"`  // "vllm", "reference": engines of a family have the same idea of a cache
	Release string `json:"release"` // such as "0.33.0+rocm700"
	// Attention is the name of the attention backend, empty where there is but one.
	Attention string `json:"attention,omitempty"`
}

// Storage is how the elements lie in memory.
type Storage struct {
	DType     DType   `json:"dtype"`
	Scales    Scales  `json:"scales"`
	Order     Order   `json:"order"`
	Packing   Packing `json:"packing"`
	BlockSize int     `json:"block_size"` // tokens of a block of the cache manager
	// KernelBlock is the tokens of a block as the attention kernel sees it. It divides
	// BlockSize: a page is BlockSize/KernelBlock kernel pages, one after the other.
	KernelBlock int `json:"kernel_block"`
	Padding     int `json:"padding,omitempty"` // unused bytes at the end of each page; a multiple of 16
}

// GroupKind says which tokens the layers of a group keep, and what of them.
type GroupKind string

const (
	// GroupFull keeps K and V of every token.
	GroupFull GroupKind = "full"
	// GroupSliding keeps K and V of the last Window tokens.
	GroupSliding GroupKind = "sliding"
	// GroupLatent keeps one vector for every token (multi-head latent attention),
	// which all ranks have alike.
	GroupLatent GroupKind = "latent"
)

// Group is a set of layers that keep the same of the same tokens.
type Group struct {
	Kind     GroupKind `json:"kind"`
	Window   int       `json:"window,omitempty"`    // tokens; of sliding groups only
	Layers   []int     `json:"layers"`              // model layer numbers, ascending
	Heads    int       `json:"heads"`               // KV heads of the whole model; 1 for latent
	KeyDim   int       `json:"key_dim"`             // elements of K a head and token; all of them for latent
	ValueDim int       `json:"value_dim,omitempty"` // elements of V; 0 for latent
}

// Ranks is how a cache is divided over worker processes.
type Ranks struct {
	// Tensor is the number of tensor-parallel ranks. Heads are divided over them in
	// order; where there are fewer heads than ranks, neighbours have the same head.
	Tensor int `json:"tensor"`
	// Pipeline is the number of pipeline-parallel stages; only 1 can be transferred.
	Pipeline int `json:"pipeline"`
}

// MaxTokens bounds the prompt lengths that geometry is computed for.
const MaxTokens = 1 << 22

// Hash identifies the fingerprint: hex sha256 of its canonical JSON.
func (f *Fingerprint) Hash() string {
	b, err := json.Marshal(f)
	if err != nil { // a struct of strings and integers always encodes
		panic(err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// ParseFingerprint decodes and validates a fingerprint's JSON. Unknown fields
// are refused: a field that one side does not know could change the meaning.
func ParseFingerprint(b []byte) (Fingerprint, error) {
	var f Fingerprint
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint: %w", err)
	}
	if dec.More() {
		return Fingerprint{}, errors.New("fingerprint: data after the JSON object")
	}
	if err := f.Validate(); err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint: %w", err)
	}
	return f, nil
}
