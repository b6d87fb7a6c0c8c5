package kvcache

// DType names how one element of a page is encoded. The names are data: what is
// refused has a name too, so that the refusal can say it.
type DType string

// Element encodings that engines report. The FP8 variants differ in bias, range
// and NaN codes (OCP 8-bit floating point specification 1.0 for fn and e5m2, the
// *fnuz variants of gfx94x), so that equal bytes are unequal numbers.
const (
	BF16        DType = "bf16"
	FP16        DType = "fp16"
	FP32        DType = "fp32"
	FP8E4M3FN   DType = "fp8_e4m3fn"
	FP8E4M3FNUZ DType = "fp8_e4m3fnuz"
	FP8E5M2     DType = "fp8_e5m2"
	// FP8DSMLA is vLLM's mixed record of sparse MLA: 512 fp8 values, 4 scales and
	// 64 bf16 values in 656 bytes a token. Dimensions count its bytes.
	FP8DSMLA DType = "fp8_ds_mla"
	// NVFP4 is two 4-bit values a byte with block scales. Dimensions count its bytes.
	NVFP4 DType = "nvfp4"
)

// DTypes lists every named encoding.
func DTypes() []DType {
	return []DType{BF16, FP16, FP32, FP8E4M3FN, FP8E4M3FNUZ, FP8E5M2, FP8DSMLA, NVFP4}
}

// Size is the length of one element in bytes, 0 for an unknown encoding.
func (d DType) Size() int {
	switch d {
	case BF16, FP16:
		return 2
	case FP32:
		return 4
	case FP8E4M3FN, FP8E4M3FNUZ, FP8E5M2, FP8DSMLA, NVFP4:
		return 1
	}
	return 0
}

// FP8 reports whether elements are 8-bit floating point numbers, which an engine
// may multiply by a scale.
func (d DType) FP8() bool { return d == FP8E4M3FN || d == FP8E4M3FNUZ || d == FP8E5M2 }

// Opaque reports whether an element has no value of its own, so that pages can
// only be copied whole.
func (d DType) Opaque() bool { return d == FP8DSMLA || d == NVFP4 }

// ScaleKind says what an engine multiplies FP8 elements by when it reads them.
type ScaleKind string

// Kinds of scales.
const (
	// ScaleNone is a factor of one.
	ScaleNone ScaleKind = "none"
	// ScaleTensor is a factor for K and one for V in each layer, fixed by the checkpoint.
	ScaleTensor ScaleKind = "tensor"
	// ScaleHead is a factor for each KV head, fixed by the checkpoint.
	ScaleHead ScaleKind = "head"
	// ScaleToken is a factor for each token, computed while running and kept
	// outside the page.
	ScaleToken ScaleKind = "token"
)

// Scales are the factors of a cache's elements.
type Scales struct {
	Kind ScaleKind `json:"kind"`
	// Hash is hex sha256 over the checkpoint's factors as little-endian float32: by
	// layer, K before V, by head where there is one a head. Empty for none.
	Hash string `json:"hash,omitempty"`
	// Doubled says that the engine uses twice the checkpoint's factors, as vLLM does
	// where elements are fp8_e4m3fnuz: the same byte is half as large there.
	Doubled bool `json:"doubled,omitempty"`
}
