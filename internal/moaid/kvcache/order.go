package kvcache

// Order is the physical order of an engine's cache, slowest index first. The
// letters are vLLM's: L layer, B block, H KV head, N token in block, C content
// (K then V of one head and token).
type Order string

// Orders that engines have. LBHNC was called HND, LBNHC was called NHD.
const (
	OrderLBHNC Order = "LBHNC"
	OrderLBNHC Order = "LBNHC"
	OrderLHBNC Order = "LHBNC"
	OrderBLHNC Order = "BLHNC"
	OrderBLNHC Order = "BLNHC"
	OrderBHLNC Order = "BHLNC"
)

// Orders lists every named order.
func Orders() []Order {
	return []Order{OrderLBHNC, OrderLBNHC, OrderLHBNC, OrderBLHNC, OrderBLNHC, OrderBHLNC}
}

// Known reports whether o is a named order.
func (o Order) Known() bool {
	switch o {
	case OrderLBHNC, OrderLBNHC, OrderLHBNC, OrderBLHNC, OrderBLNHC, OrderBHLNC:
		return true
	}
	return false
}

// TokenMajor reports whether, within a page, all heads of a token come before the
// next token. Where layers, blocks and heads lie in the engine's memory does not
// matter for a payload: an engine's connector gathers pages.
func (o Order) TokenMajor() bool { return o == OrderLBNHC || o == OrderBLNHC }

// Packing says how K and V of the heads and tokens of a page are interleaved.
type Packing string

// Packings with known positions. N is the kernel block in tokens, D the dimension
// of K or of V, x the elements of 16 bytes.
const (
	// PackingPacked keeps K and V of a head and token side by side.
	PackingPacked Packing = "packed"
	// PackingApart keeps all of a page's K before all of its V.
	PackingApart Packing = "apart"
	// PackingX is K as [H][D/x][N][x] and V as [H][D][N]: the paged-attention kernels
	// of older ROCm releases.
	PackingX Packing = "x_packed"
	// PackingShuffled is K as [H][D/x][N][x] and V as [H][N/x][D][x]
	// (VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=1).
	PackingShuffled Packing = "shuffled"
	// PackingCPUAMX is, a head, K as [N/16][D/2][16 tokens][2 dims] and V as
	// [D/16][N/2][16 dims][2 tokens]: vLLM's CPU kernels with AMX.
	PackingCPUAMX Packing = "cpu_amx"
	// PackingCPUVec is, a head, K as [D][N] and V as [N][D]: vLLM's CPU kernels
	// without AMX.
	PackingCPUVec Packing = "cpu_vec"
	// PackingCPUVec16 has the positions of PackingCPUVec, of another kernel.
	PackingCPUVec16 Packing = "cpu_vec16"
)

// OpaquePrefix begins the name of a packing whose positions are not known: such
// pages can only be copied whole, to an engine that has the same.
const OpaquePrefix = "opaque:"

// Packings lists the packings with known positions.
func Packings() []Packing {
	return []Packing{PackingPacked, PackingApart, PackingX, PackingShuffled, PackingCPUAMX, PackingCPUVec, PackingCPUVec16}
}
