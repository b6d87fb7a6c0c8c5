package engines

import (
	"fmt"
	"strings"
)

// referenceFlags are the flags that Launch may set, with their synonyms, and the
// attribute that decides each; "" where nothing but the place does.
var referenceFlags = map[string]string{
	"name": "", "node": "", "http-socket": "", "daemon-socket": "", "listen": "", "engine-socket": "",
	"connector": "kv_connector", "no-kv-connector": "kv_connector",
	"role": "role", "model": "model.id",
	"preset": "preset", "kv-dtype": "kv_cache.dtype", "kv-order": "kv_cache.layout", "block-size": "kv_cache.block_size",
	"kv-scales": "reference.scales", "kv-packing": "reference.packing", "kernel-block": "reference.kernel_block_size", "kv-padding": "reference.padding",
	"tensor-parallel": "parallel.tensor", "data-parallel": "parallel.data",
	"on-transfer-failure": "on_transfer_failure", "weights-seed": "reference.weights_seed",
	"claim-fingerprint-of": "reference.claim_fingerprint_of",
}

// checkExtra refuses arguments that belong to attributes, since the last of two
// would win without the plan's knowing.
func (reference) checkExtra(args []string) []Problem {
	var ps []Problem
	for i, a := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		attribute := fmt.Sprintf("extra_args.%d", i)
		switch at, owned := referenceFlags[name]; {
		case strings.ContainsAny(a, "\n\x00"):
			ps = append(ps, Problem{attribute, "Argument cannot be passed", fmt.Sprintf("%q holds a line break or a NUL byte.", a)})
		case strings.HasPrefix(a, "-") && owned && at == "":
			ps = append(ps, Problem{attribute, "Argument is set by the provider", fmt.Sprintf("--%s is what ties the engine to its host. It cannot be changed.", name)})
		case strings.HasPrefix(a, "-") && owned:
			ps = append(ps, Problem{attribute, "Argument has an attribute of its own", fmt.Sprintf("Set %s instead of passing --%s.", at, name)})
		}
	}
	return ps
}
