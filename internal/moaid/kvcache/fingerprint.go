package kvcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// DType names how one element of a page is encoded.
type DType string

// Element encodings that engines report. FP8 variants differ in bias and in
// their NaN codes, so they are never equal to each other.
const (
	BF16       DType = "bf16"
	FP16       DType = "fp16"
	FP32       DType = "fp32"
	FP8E4M3FN  DType = "fp8_e4m3fn"
	FP8E4M3FNZ DType = "fp8_e4m3fnuz"
	FP8E5M2    DType = "fp8_e5m2"
)

// Size is the length of one element in bytes, 0 for an unknown encoding.
func (d DType) Size() int {
	switch d {
	case BF16, FP16:
		return 2
	case FP32:
		return 4
	case FP8E4M3FN, FP8E4M3FNZ, FP8E5M2:
		return 1
	}
	return 0
}

// Layout names the physical order inside a page. The letters are vLLM's: L
// layer, B block, H KV head, N token in block, C content (K then V of one head
// and token). Only orders whose page is contiguous can be transferred.
type Layout string

const (
	// LayoutLBHNC keeps a page as [KV head][token][K(D) | V(D)].
	LayoutLBHNC Layout = "LBHNC"
	// LayoutLBNHC keeps a page as [token][KV head][K(D) | V(D)].
	LayoutLBNHC Layout = "LBNHC"
)

// GroupKind says which tokens the layers of a group keep.
type GroupKind string

const (
	// GroupFull keeps every token.
	GroupFull GroupKind = "full"
	// GroupSliding keeps the last Window tokens.
	GroupSliding GroupKind = "sliding"
)

// Group is a set of layers that keep the same tokens.
type Group struct {
	Kind   GroupKind `json:"kind"`
	Window int       `json:"window,omitempty"` // tokens; 0 for GroupFull
	Layers []int     `json:"layers"`           // model layer numbers, ascending
}

// Fingerprint identifies the format and the meaning of an engine's KV cache.
// Two engines with equal fingerprints may exchange payloads byte for byte. The
// vendor of the accelerator is not part of it.
type Fingerprint struct {
	Version    int     `json:"version"`     // of this structure; 0
	ModelHash  string  `json:"model_hash"`  // hex sha256 over the model's config and weights identity
	Engine     string  `json:"engine"`      // kind and release, e.g. "reference/0"
	DType      DType   `json:"dtype"`       // of K and V
	Layout     Layout  `json:"layout"`      // order inside a page
	BlockSize  int     `json:"block_size"`  // tokens a block
	KVHeads    int     `json:"kv_heads"`    // of the whole model
	HeadDim    int     `json:"head_dim"`    // elements of K, and of V, a head and token
	Groups     []Group `json:"groups"`      // in payload order: full groups first
	TensorSize int     `json:"tensor_size"` // tensor-parallel ranks; KVHeads is divided over them
}

// MaxTokens bounds the prompt lengths that geometry is computed for.
const MaxTokens = 1 << 22

// Validate reports why a fingerprint describes no cache.
func (f *Fingerprint) Validate() error {
	switch {
	case f.Version != 0:
		return fmt.Errorf("fingerprint version %d is not supported, only 0", f.Version)
	case f.ModelHash == "" || len(f.ModelHash) > 128:
		return errors.New("model_hash is empty or longer than 128 characters")
	case f.DType.Size() == 0:
		return fmt.Errorf("dtype %q is unknown", f.DType)
	case f.Layout != LayoutLBHNC && f.Layout != LayoutLBNHC:
		return fmt.Errorf("layout %q is unknown", f.Layout)
	case f.BlockSize < 1 || f.BlockSize > 1<<12:
		return fmt.Errorf("block_size %d is outside 1 to 4096", f.BlockSize)
	case f.KVHeads < 1 || f.KVHeads > 1<<10:
		return fmt.Errorf("kv_heads %d is outside 1 to 1024", f.KVHeads)
	case f.HeadDim < 1 || f.HeadDim > 1<<12:
		return fmt.Errorf("head_dim %d is outside 1 to 4096", f.HeadDim)
	case f.TensorSize < 1 || f.TensorSize > 64:
		return fmt.Errorf("tensor_size %d is outside 1 to 64", f.TensorSize)
	case f.KVHeads%f.TensorSize != 0:
		return fmt.Errorf("kv_heads %d is no multiple of tensor_size %d", f.KVHeads, f.TensorSize)
	case len(f.Groups) == 0 || len(f.Groups) > 16:
		return fmt.Errorf("%d groups are outside 1 to 16", len(f.Groups))
	}
	seen := map[int]bool{}
	slidingSeen := false
	for i, g := range f.Groups {
		switch {
		case g.Kind == GroupFull && g.Window != 0:
			return fmt.Errorf("group %d keeps all tokens but has window %d", i, g.Window)
		case g.Kind == GroupFull && slidingSeen:
			return fmt.Errorf("group %d: full groups come before sliding ones", i)
		case g.Kind == GroupSliding && (g.Window < 1 || g.Window > MaxTokens):
			return fmt.Errorf("group %d: window %d is outside 1 to %d", i, g.Window, MaxTokens)
		case g.Kind != GroupFull && g.Kind != GroupSliding:
			return fmt.Errorf("group %d: kind %q is unknown", i, g.Kind)
		case len(g.Layers) == 0 || len(g.Layers) > 1<<10:
			return fmt.Errorf("group %d has %d layers, outside 1 to 1024", i, len(g.Layers))
		}
		slidingSeen = slidingSeen || g.Kind == GroupSliding
		last := -1
		for _, l := range g.Layers {
			if l <= last || l > 1<<14 || seen[l] {
				return fmt.Errorf("group %d: layer numbers must ascend and belong to one group only, at layer %d", i, l)
			}
			last, seen[l] = l, true
		}
	}
	return nil
}

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
