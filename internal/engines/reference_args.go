package engines

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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

// freeFlags are the program's other flags, all of which take a value, with what
// reads one.
var freeFlags = map[string]func(string) error{
	"kv-blocks": isNumber, "max-batched-tokens": isNumber, "max-seqs": isNumber, "transfer-timeout": isDuration, "grace": isDuration,
}

func isNumber(v string) error {
	if _, err := strconv.Atoi(v); err != nil {
		return errors.New("a number")
	}
	return nil
}

func isDuration(v string) error {
	if _, err := time.ParseDuration(v); err != nil {
		return errors.New(`a duration such as "30s"`)
	}
	return nil
}

// checkExtra refuses arguments that belong to attributes, since the last of two
// would win without the plan's knowing, and those with which the program would
// not start.
func (reference) checkExtra(args []string) []Problem {
	var ps []Problem
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, given := strings.Cut(strings.TrimLeft(a, "-"), "=")
		attribute := fmt.Sprintf("extra_args.%d", i)
		switch at, owned := referenceFlags[name]; {
		case strings.ContainsAny(a, "\n\x00"):
			ps = append(ps, Problem{attribute, "Argument cannot be passed", fmt.Sprintf("%q holds a line break or a NUL byte.", a)})
		case strings.HasPrefix(a, "-") && owned && at == "":
			ps = append(ps, Problem{attribute, "Argument is set by the provider", fmt.Sprintf("--%s is what ties the engine to its host. It cannot be changed.", name)})
		case strings.HasPrefix(a, "-") && owned:
			ps = append(ps, Problem{attribute, "Argument has an attribute of its own", fmt.Sprintf("Set %s instead of passing --%s.", at, name)})
		case freeFlags[name] == nil || !strings.HasPrefix(a, "-"):
			ps = append(ps, Problem{attribute, "Unknown argument", fmt.Sprintf("The reference engine has no argument %q. Those that no attribute decides are %s.", a, quoted(freeFlagNames()))})
			if strings.HasPrefix(a, "-") {
				return ps // whether the next argument is a value is not known
			}
		}
		if !strings.HasPrefix(a, "-") {
			continue
		}
		if !given && i+1 < len(args) {
			i++
			value = args[i]
		}
		if valid := freeFlags[name]; valid != nil {
			if err := valid(value); err != nil {
				ps = append(ps, Problem{attribute, "Argument has no valid value", fmt.Sprintf("--%s needs %s, not %q.", name, err, value)})
			}
		}
	}
	return ps
}

func freeFlagNames() []string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(freeFlags)) {
		out = append(out, "--"+n)
	}
	return out
}
