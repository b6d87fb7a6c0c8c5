//go:build moai_damage

package kvd

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// differences counts the bits in which a ready claim differs from what was sent.
func (f *fake) differences(id string, v enginesock.ClaimState) (bits, zeros int) {
	_, inst := f.sched.Poll(id)
	for rank, w := range f.work {
		_ = w.Arena(inst, func(mem []byte) error {
			i := int64(0)
			for _, e := range v.Extents[rank] {
				for _, b := range mem[e.Offset : e.Offset+e.Length] {
					for x := b ^ slot(id, rank, i); x != 0; x &= x - 1 {
						bits++
					}
					if b == 0 {
						zeros++
					}
					i++
				}
			}
			return nil
		})
	}
	return bits, zeros
}

func TestFlipChangesOneBit(t *testing.T) {
	t.Setenv(faultEnv, "flip")
	_, _, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	for _, tokens := range []int{2, 17, 300} {
		id, hash := newID(), tokenHash(tokens, "a")
		pe.prefill(id, tokens, hash, true)
		de.claim(id, tokens, hash, 0)
		if bits, _ := de.differences(id, de.verdict(id)); bits != 1 {
			t.Errorf("%d tokens: %d bits differ", tokens, bits)
		}
		de.load(id, true)
	}
}

func TestNoopWritesNothing(t *testing.T) {
	t.Setenv(faultEnv, "noop")
	_, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(300, "a")
	fp := testFingerprint()
	p := must[kvcache.Payload](t, "payload")(fp.PayloadFor(300))
	pe.prefill(id, 300, hash, true)
	de.claim(id, 300, hash, 0)
	if _, zeros := de.differences(id, de.verdict(id)); int64(zeros) != 2*p.Bytes {
		t.Errorf("%d of %d bytes are zero", zeros, 2*p.Bytes)
	}
	if x, _ := d.find(id); x.BytesMoved != 2*p.Bytes {
		t.Errorf("the no-op must look like a transfer: %+v", x)
	}
}
