package kvcache

import (
	"errors"
	"fmt"
	"strings"
)

// Validate reports why a fingerprint describes no cache.
func (f *Fingerprint) Validate() error {
	if f.Version != Version {
		return fmt.Errorf("fingerprint version %d is not supported, only %d", f.Version, Version)
	}
	for _, check := range []func() error{f.validateIdentity, f.validateStorage, f.validateRanks, f.validateGroups} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fingerprint) validateIdentity() error {
	for _, h := range []struct{ name, value string }{
		{"model.config", f.Model.Config}, {"model.weights", f.Model.Weights}, {"model.tokenizer", f.Model.Tokenizer},
		{"engine.family", f.Engine.Family}, {"engine.release", f.Engine.Release},
	} {
		if h.value == "" {
			return fmt.Errorf("%s is empty", h.name)
		}
	}
	for _, h := range []struct{ name, value string }{
		{"model.config", f.Model.Config}, {"model.weights", f.Model.Weights}, {"model.tokenizer", f.Model.Tokenizer}, {"model.chat_template", f.Model.ChatTemplate},
		{"engine.family", f.Engine.Family}, {"engine.release", f.Engine.Release}, {"engine.attention", f.Engine.Attention}, {"storage.scales.hash", f.Storage.Scales.Hash},
	} {
		if len(h.value) > 128 {
			return fmt.Errorf("%s is longer than 128 characters", h.name)
		}
	}
	if len(f.Features) > 64 {
		return fmt.Errorf("%d features are more than 64", len(f.Features))
	}
	for i, s := range f.Features {
		if s == "" || len(s) > 128 || i > 0 && s <= f.Features[i-1] {
			return fmt.Errorf("features are names of at most 128 characters in ascending order, not %q at %d", s, i)
		}
	}
	return nil
}

func (f *Fingerprint) validateStorage() error {
	s := &f.Storage
	switch {
	case s.DType.Size() == 0:
		return fmt.Errorf("storage.dtype %q is unknown", s.DType)
	case !s.Order.Known():
		return fmt.Errorf("storage.order %q is unknown", s.Order)
	case !s.Packing.Known() && !s.Packing.opaque():
		return fmt.Errorf("storage.packing %q is unknown", s.Packing)
	case s.BlockSize < 1 || s.BlockSize > 1<<12:
		return fmt.Errorf("storage.block_size %d is outside 1 to 4096", s.BlockSize)
	case s.KernelBlock < 1 || s.BlockSize%max(s.KernelBlock, 1) != 0:
		return fmt.Errorf("storage.kernel_block %d does not divide block_size %d", s.KernelBlock, s.BlockSize)
	case s.Padding < 0 || s.Padding > 1<<20 || s.Padding%16 != 0:
		return fmt.Errorf("storage.padding %d is no multiple of 16 up to 1048576", s.Padding)
	case s.Order.TokenMajor() && !s.Packing.tokenMajor():
		return fmt.Errorf("storage.packing %q has one head after the other, which order %s has not", s.Packing, s.Order)
	}
	switch s.Scales.Kind {
	case ScaleNone:
		if s.Scales.Hash != "" || s.Scales.Doubled {
			return errors.New("storage.scales of kind none have neither hash nor doubled")
		}
	case ScaleTensor, ScaleHead:
		if s.Scales.Hash == "" || !s.DType.FP8() {
			return fmt.Errorf("storage.scales of kind %s need a hash and an fp8 dtype", s.Scales.Kind)
		}
	case ScaleToken:
		if s.Scales.Hash != "" || s.Scales.Doubled || s.DType.Size() != 1 {
			return errors.New("storage.scales of kind token are of 8-bit elements and have neither hash nor doubled")
		}
	default:
		return fmt.Errorf("storage.scales.kind %q is unknown", s.Scales.Kind)
	}
	return nil
}

func (f *Fingerprint) validateRanks() error {
	switch r := f.Ranks; {
	case r.Tensor < 1 || r.Tensor > 64:
		return fmt.Errorf("ranks.tensor %d is outside 1 to 64", r.Tensor)
	case r.Pipeline < 1 || r.Pipeline > 64:
		return fmt.Errorf("ranks.pipeline %d is outside 1 to 64", r.Pipeline)
	case len(f.Groups) == 0 || len(f.Groups) > 16:
		return fmt.Errorf("%d groups are outside 1 to 16", len(f.Groups))
	}
	return nil
}

func (f *Fingerprint) validateGroups() error {
	seen := map[int]bool{}
	slidingSeen := false
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Kind != GroupSliding && slidingSeen {
			return fmt.Errorf("group %d: sliding groups come last", i)
		}
		slidingSeen = slidingSeen || g.Kind == GroupSliding
		if err := g.validate(); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		if n := f.Ranks.Tensor; max(g.Heads, n)%min(g.Heads, n) != 0 {
			return fmt.Errorf("group %d: %d heads and %d tensor ranks do not divide one another", i, g.Heads, n)
		}
		if err := f.validatePacking(g); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
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

func (g *Group) validate() error {
	switch {
	case g.Kind != GroupFull && g.Kind != GroupSliding && g.Kind != GroupLatent:
		return fmt.Errorf("kind %q is unknown", g.Kind)
	case g.Kind == GroupSliding && (g.Window < 1 || g.Window > MaxTokens):
		return fmt.Errorf("window %d is outside 1 to %d", g.Window, MaxTokens)
	case g.Kind != GroupSliding && g.Window != 0:
		return fmt.Errorf("it keeps all tokens but has window %d", g.Window)
	case len(g.Layers) == 0 || len(g.Layers) > 1<<10:
		return fmt.Errorf("%d layers are outside 1 to 1024", len(g.Layers))
	case g.Heads < 1 || g.Heads > 1<<10:
		return fmt.Errorf("heads %d are outside 1 to 1024", g.Heads)
	case g.KeyDim < 1 || g.KeyDim > 1<<12:
		return fmt.Errorf("key_dim %d is outside 1 to 4096", g.KeyDim)
	case g.Kind == GroupLatent && (g.Heads != 1 || g.ValueDim != 0):
		return fmt.Errorf("a latent vector has one head and no value, not %d and %d", g.Heads, g.ValueDim)
	case g.Kind != GroupLatent && (g.ValueDim < 1 || g.ValueDim > 1<<12):
		return fmt.Errorf("value_dim %d is outside 1 to 4096", g.ValueDim)
	}
	return nil
}

// validatePacking reports a packing that the group's sizes do not allow.
func (f *Fingerprint) validatePacking(g *Group) error {
	s := &f.Storage
	n, x := s.KernelBlock, 16/max(s.DType.Size(), 1)
	bad := false
	switch s.Packing {
	case PackingX:
		bad = g.KeyDim%x != 0
	case PackingShuffled:
		bad = g.KeyDim%x != 0 || n%x != 0
	case PackingCPUAMX:
		bad = n%16 != 0 || g.KeyDim%2 != 0 || g.ValueDim%16 != 0
	case PackingPacked, PackingApart, PackingCPUVec, PackingCPUVec16: // fit any sizes
	}
	switch {
	case g.Kind == GroupLatent && s.Packing != PackingPacked && !s.Packing.opaque():
		return fmt.Errorf("a latent vector has no V to be kept as packing %q says", s.Packing)
	case bad:
		return fmt.Errorf("packing %q does not fit key_dim %d, value_dim %d and kernel blocks of %d tokens", s.Packing, g.KeyDim, g.ValueDim, n)
	}
	return nil
}

// Opaque reports whether pages can only be copied whole: what their elements mean, or
// where they lie, is not known.
func (s *Storage) Opaque() bool { return s.DType.Opaque() || !s.Packing.Known() }

// Known reports whether the positions of elements are known.
func (p Packing) Known() bool {
	switch p {
	case PackingPacked, PackingApart, PackingX, PackingShuffled, PackingCPUAMX, PackingCPUVec, PackingCPUVec16:
		return true
	}
	return false
}

func (p Packing) opaque() bool {
	return strings.HasPrefix(string(p), OpaquePrefix) && len(p) > len(OpaquePrefix) && len(p) <= 128
}

// tokenMajor reports whether the packing allows all heads of a token side by side.
func (p Packing) tokenMajor() bool { return p == PackingPacked || p == PackingApart || p.opaque() }
