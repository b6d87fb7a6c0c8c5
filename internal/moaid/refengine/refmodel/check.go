package refmodel

import (
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// DTypes lists the encodings that the reference engine can keep elements in.
func DTypes() []kvcache.DType {
	return []kvcache.DType{kvcache.BF16, kvcache.FP16, kvcache.FP32, kvcache.FP8E4M3FN, kvcache.FP8E4M3FNUZ}
}

// ScaleKinds lists the kinds of factors that the reference engine has.
func ScaleKinds() []kvcache.ScaleKind {
	return []kvcache.ScaleKind{kvcache.ScaleNone, kvcache.ScaleTensor, kvcache.ScaleHead}
}

// MaxTensor bounds the tensor-parallel ranks of an engine.
const MaxTensor = 8

// Check reports why an engine cannot keep the model's KV in the format. The error
// begins with the flag of the engine that has to change.
func (f Format) Check(m Model) error {
	if err := f.checkStorage(); err != nil {
		return err
	}
	if err := f.checkTensor(m); err != nil {
		return err
	}
	return f.checkPacking(m)
}

func (f Format) checkStorage() error {
	switch {
	case !slices.Contains(DTypes(), f.DType):
		return fmt.Errorf("--kv-dtype %s: the reference engine keeps elements as one of %v", f.DType, DTypes())
	case !slices.Contains(ScaleKinds(), f.Scales):
		return fmt.Errorf("--kv-scales %s: the reference engine has scales of one of %v", f.Scales, ScaleKinds())
	case f.Scales != kvcache.ScaleNone && !f.DType.FP8():
		return fmt.Errorf("--kv-scales %s: scales belong to fp8 elements, and --kv-dtype is %s; use --kv-scales none, or an fp8 dtype", f.Scales, f.DType)
	case !f.Order.Known():
		return fmt.Errorf("--kv-order %s: use one of %v", f.Order, kvcache.Orders())
	case !f.Packing.Known():
		return fmt.Errorf("--kv-packing %s: use one of %v", f.Packing, kvcache.Packings())
	case f.Order.TokenMajor() && f.Packing != kvcache.PackingPacked && f.Packing != kvcache.PackingApart:
		return fmt.Errorf("--kv-packing %s: it keeps one head after the other, and --kv-order %s all heads of a token together; use packing packed or apart, or order LBHNC", f.Packing, f.Order)
	case f.BlockSize < 1 || f.BlockSize > 4096:
		return fmt.Errorf("--block-size %d: it is outside 1 to 4096 tokens", f.BlockSize)
	case f.KernelBlock < 0 || f.KernelBlock > 0 && f.BlockSize%f.KernelBlock != 0:
		return fmt.Errorf("--kernel-block %d: it does not divide --block-size %d", f.KernelBlock, f.BlockSize)
	case f.Padding < 0 || f.Padding > 1<<20 || f.Padding%16 != 0:
		return fmt.Errorf("--kv-padding %d: it is no multiple of 16 bytes up to 1048576", f.Padding)
	}
	return nil
}

// checkTensor reports a number of ranks over which the model cannot be split.
func (f Format) checkTensor(m Model) error {
	c, n := m.Config, f.Tensor
	if n < 1 || n > MaxTensor {
		return fmt.Errorf("--tensor-parallel %d: it is outside 1 to %d", n, MaxTensor)
	}
	for _, d := range []struct {
		what string
		size int
	}{{"query heads", c.Heads}, {"hidden elements", c.Hidden}, {"inner elements of the feed-forward part", c.FFN}} {
		if d.size%n != 0 {
			return fmt.Errorf("--tensor-parallel %d: model %s has %d %s, which cannot be split over so many ranks", n, m.Name, d.size, d.what)
		}
	}
	if max(c.KVHeads, n)%min(c.KVHeads, n) != 0 {
		return fmt.Errorf("--tensor-parallel %d: model %s has %d KV heads, which neither divide nor are divided by so many ranks", n, m.Name, c.KVHeads)
	}
	return nil
}

// checkPacking reports a packing that the model's dimensions do not allow.
func (f Format) checkPacking(m Model) error {
	n, x := f.KernelBlock, 16/f.DType.Size()
	tokens := "--kernel-block"
	if n == 0 {
		n, tokens = f.BlockSize, "--block-size"
	}
	for _, g := range m.Config.Groups() {
		switch p := f.Packing; {
		case g.Kind == kvcache.GroupLatent && p != kvcache.PackingPacked:
			return fmt.Errorf("--kv-packing %s: model %s keeps one latent vector a token and no V; use packing packed", p, m.Name)
		case (p == kvcache.PackingX || p == kvcache.PackingShuffled) && g.KeyDim%x != 0:
			return fmt.Errorf("--kv-packing %s: it needs heads of a multiple of %d elements of %s, and model %s has %d", p, x, f.DType, m.Name, g.KeyDim)
		case p == kvcache.PackingShuffled && n%x != 0:
			return fmt.Errorf("%s %d: packing %s needs a multiple of %d tokens of %s", tokens, n, p, x, f.DType)
		case p == kvcache.PackingCPUAMX && n%16 != 0:
			return fmt.Errorf("%s %d: packing %s needs a multiple of 16 tokens", tokens, n, p)
		case p == kvcache.PackingCPUAMX && (g.KeyDim%2 != 0 || g.ValueDim%16 != 0):
			return fmt.Errorf("--kv-packing %s: it needs heads of a multiple of 16 elements, and model %s has %d", p, m.Name, g.ValueDim)
		}
	}
	return nil
}
