package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// formatsGuide is the guide that is generated from the code of kvcache and
// kvcompat, relative to the templates and to the docs.
const formatsGuide = "guides/kv-formats.md"

// writeFormats writes the template of the guide; what renders the docs copies it.
func (r repo) writeFormats() error {
	page, err := formatsPage()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.root, "templates", filepath.FromSlash(formatsGuide)), []byte(page), 0o644)
}

// named is a named value of a format with what it means.
type named struct{ name, meaning string }

var dtypeMeanings = []named{
	{"bf16", "bfloat16"},
	{"fp16", "IEEE half precision"},
	{"fp32", "IEEE single precision"},
	{"fp8_e4m3fn", "OCP 8-bit, up to ±448: NVIDIA, and AMD from gfx950 on"},
	{"fp8_e4m3fnuz", "8-bit without negative zero, up to ±240: AMD gfx94x (MI300X, MI325X). The same byte is half as large as in fp8_e4m3fn"},
	{"fp8_e5m2", "OCP 8-bit with two bits of mantissa; only moved as it is"},
	{"fp8_ds_mla", "records of sparse latent attention; only moved as they are"},
	{"nvfp4", "4-bit values with block scales; only moved as they are"},
}

var packingMeanings = []named{
	{"packed", "K and V of a head and token side by side"},
	{"apart", "all K of a page before all V"},
	{"x_packed", "K in units of 16 bytes: paged attention of older ROCm"},
	{"shuffled", "K and V in units of 16 bytes (`VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=1`); refused"},
	{"cpu_amx", "tiles of vLLM's CPU kernels with AMX"},
	{"cpu_vec", "vLLM's CPU kernels without AMX"},
	{"cpu_vec16", "the positions of `cpu_vec`, of another kernel"},
}

// formatsPage renders the guide.
func formatsPage() (string, error) {
	var b strings.Builder
	b.WriteString(`---
page_title: "KV formats and conversion"
subcategory: ""
description: |-
  Which KV cache can be read by which engine, what is converted on the way, and what is refused.
---

<!-- Generated from the code (go run ./internal/gate generate): do not edit. -->

# KV formats and conversion

Engines store the same KV cache differently. What an engine has is told by its fingerprint, and one function says of two
fingerprints whether KV may cross, and what is converted: at plan, and again in the daemons. The prefill side converts, so that
what travels and is verified are already the bytes that the decode engine reads. A verdict is one of:

| verdict | meaning |
|---|---|
| exact | every value is kept, perhaps in another place or encoding |
| guarded | every value that both formats have is kept. A transfer that meets another one is given up, and the decode engine computes the prompt itself |
| lossy | values change. Needs ` + "`allow_lossy = true`" + ` on the pair; clipped and rounded values are counted |
| refused | no KV crosses. The reason names the attribute and what to change |

`)
	if err := formatsAttributes(&b); err != nil {
		return "", err
	}
	formatsDTypes(&b)
	if err := formatsPresets(&b); err != nil {
		return "", err
	}
	formatsRefusals(&b)
	return b.String(), nil
}

// formatsAttributes lists what a format consists of.
func formatsAttributes(b *strings.Builder) error {
	b.WriteString("## What a format is\n\n`storage.dtype`, the encoding of one element:\n\n| name | bytes | meaning |\n|---|---|---|\n")
	dtypes := kvcache.DTypes()
	if len(dtypes) != len(dtypeMeanings) {
		return fmt.Errorf("%d of %d dtypes are described", len(dtypeMeanings), len(dtypes))
	}
	for i, d := range dtypes {
		if string(d) != dtypeMeanings[i].name {
			return fmt.Errorf("dtype %s is not described", d)
		}
		fmt.Fprintf(b, "| `%s` | %d | %s |\n", d, d.Size(), dtypeMeanings[i].meaning)
	}
	b.WriteString("\n`storage.order`, slowest first (L layer, B block, H head, N token, C content). Within a page only the order of H and N matters:\n\n| name | in a page |\n|---|---|\n")
	for _, o := range kvcache.Orders() {
		within := "all tokens of a head, then the next head"
		if o.TokenMajor() {
			within = "all heads of a token, then the next token"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", o, within)
	}
	b.WriteString("\n`storage.packing`, how K and V are interleaved. Packings named `" + kvcache.OpaquePrefix + "…` have positions that are not known: pages are moved whole.\n\n| name | meaning |\n|---|---|\n")
	packings := kvcache.Packings()
	if len(packings) != len(packingMeanings) {
		return fmt.Errorf("%d of %d packings are described", len(packingMeanings), len(packings))
	}
	for i, p := range packings {
		if string(p) != packingMeanings[i].name {
			return fmt.Errorf("packing %s is not described", p)
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", p, packingMeanings[i].meaning)
	}
	fmt.Fprintf(b, `
Further: `+"`storage.block_size`"+` and `+"`storage.kernel_block`"+` (tokens), `+"`storage.padding`"+` (bytes at the end of a page), `+"`ranks.tensor`"+`
(heads are divided over ranks; what ranks have alike travels once), `+"`storage.scales`"+` (factors of fp8 elements: `+"`%s`, `%s`, `%s`, or `%s`"+`,
doubled where an fnuz engine doubles those of the checkpoint), and `+"`groups`"+`: layers that keep all tokens (`+"`%s`"+`), the last ones
(`+"`%s`"+`), or one latent vector a token (`+"`%s`"+`).

`, kvcache.ScaleNone, kvcache.ScaleTensor, kvcache.ScaleHead, kvcache.ScaleToken, kvcache.GroupFull, kvcache.GroupSliding, kvcache.GroupLatent)
	return nil
}

var anything = kvcompat.Options{AllowLossy: true, AllowReleases: true}

// formatsDTypes is the matrix of encodings without scales.
func formatsDTypes(b *strings.Builder) {
	b.WriteString("## Encodings\n\nFrom the prefill engine's dtype (rows) to the decode engine's, without scales:\n\n| |")
	dtypes := kvcache.DTypes()
	for _, d := range dtypes {
		fmt.Fprintf(b, " `%s` |", d)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(dtypes)) + "\n")
	plain := func(d kvcache.DType) kvcache.Fingerprint {
		f := cases.H100()
		f.Storage.DType, f.Storage.Scales = d, kvcache.Scales{Kind: kvcache.ScaleNone}
		return f
	}
	for _, from := range dtypes {
		fmt.Fprintf(b, "| `%s` |", from)
		for _, to := range dtypes {
			cell := string(kvcompat.Check(plain(from), plain(to), anything).Class)
			if from == to {
				cell = "as it is"
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWith scales, both engines need fp8 and the same factors. `fp8_e4m3fn` to `fp8_e4m3fnuz` with doubled factors is exact: only the codes of\n-0 and NaN are rewritten.\n\n")
}

// formatsPresets is what is converted between the reference engine's presets,
// and between caches as vLLM keeps them.
func formatsPresets(b *strings.Builder) error {
	b.WriteString("## Pairs\n\nBetween the presets of the reference engine:\n\n")
	m, err := refmodel.Lookup("moai/seeded")
	if err != nil {
		return err
	}
	var presets []preset
	for _, name := range refmodel.FormatNames() {
		format, err := refmodel.LookupFormat(name)
		if err != nil {
			return err
		}
		f, err := m.Fingerprint(refmodel.DefaultSeed, format)
		if err != nil {
			return err
		}
		presets = append(presets, preset{name, f})
	}
	formatsPairs(b, presets)
	b.WriteString("\nBetween caches as vLLM keeps them (4 ranks; fp8 with the checkpoint's factors; MI300X with blocks of 64):\n\n")
	bf16 := func(f kvcache.Fingerprint) kvcache.Fingerprint {
		f.Storage.DType, f.Storage.Scales = kvcache.BF16, kvcache.Scales{Kind: kvcache.ScaleNone}
		return f
	}
	cpu := bf16(cases.MI300X())
	cpu.Storage.Packing, cpu.Storage.BlockSize, cpu.Storage.KernelBlock, cpu.Ranks.Tensor = kvcache.PackingCPUAMX, 128, 128, 1
	formatsPairs(b, []preset{{"H100 fp8", cases.H100()}, {"MI300X fp8", cases.MI300X()}, {"H100 bf16", bf16(cases.H100())}, {"MI300X bf16", bf16(cases.MI300X())}, {"CPU bf16, 1 rank", cpu}})
	return nil
}

type preset struct {
	name        string
	fingerprint kvcache.Fingerprint
}

func formatsPairs(b *strings.Builder, presets []preset) {
	b.WriteString("| prefill | decode | verdict | what is converted, or why not |\n|---|---|---|---|\n")
	for _, p := range presets {
		for _, d := range presets {
			if p.name == d.name {
				continue
			}
			v := kvcompat.Check(p.fingerprint, d.fingerprint, anything)
			var parts []string
			for _, s := range v.Steps {
				parts = append(parts, fmt.Sprintf("`%s` %s → %s", s.Attribute, s.From, s.To))
			}
			for _, r := range v.Reasons {
				parts = append(parts, fmt.Sprintf("`%s`: %s", r.Attribute, r.Why))
			}
			if len(parts) == 0 {
				parts = []string{"nothing"}
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", p.name, d.name, v.Class, strings.Join(parts, "; "))
		}
	}
}

// formatsRefusals lists each reason that a case of the table is refused for once.
func formatsRefusals(b *strings.Builder) {
	b.WriteString("\n## What is refused\n\n| attribute | for example | why | what to do |\n|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, c := range cases.All() {
		if c.Class != kvcompat.Refused {
			continue
		}
		for _, r := range kvcompat.Check(c.Prefill, c.Decode, c.Options).Reasons {
			key := r.Attribute + r.Why
			if seen[key] {
				continue
			}
			seen[key] = true
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", r.Attribute, c.Name, r.Why, r.Fix)
		}
	}
	b.WriteString("\nOf one engine alone, the plan refuses variables in `env` with which its KV could not cross:\n\n| variable | why | what to do |\n|---|---|---|\n")
	for _, v := range []struct{ name, value string }{
		{"PYTORCH_ALLOC_CONF", "expandable_segments:True"}, {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"},
		{"PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True"}, {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "1"},
	} {
		for _, r := range kvcompat.Lint(kvcompat.Setup{Env: map[string]string{v.name: v.value}}) {
			fmt.Fprintf(b, "| `%s=%s` | %s | %s |\n", v.name, v.value, r.Why, r.Fix)
		}
	}
}
