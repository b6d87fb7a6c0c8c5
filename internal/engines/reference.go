package engines

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// reference is a small transformer on the CPU. It needs no accelerator and its
// models are built in, so that a whole fleet can be tried out anywhere.
type reference struct{}

var _ Kind = reference{}

const (
	referenceProgram = "/usr/local/bin/moaid-lab"
	referenceStart   = time.Minute
)

// referenceBlockSizes are tokens a block.
var referenceBlockSizes = []int{16, 32, 64, 128, 256}

// referenceDTypes: "auto" is bf16.
var referenceDTypes = []string{"auto", string(kvcache.BF16)}

func (reference) Name() string { return "reference" }

func (reference) Defaults(s Spec) Spec {
	def := func(p *int, n int) {
		if *p == 0 {
			*p = n
		}
	}
	def(&s.Parallel.Tensor, 1)
	def(&s.Parallel.Data, 1)
	def(&s.Parallel.Expert, 1)
	def(&s.KVCache.BlockSize, refmodel.DefaultFormat().BlockSize)
	if s.KVCache.DType == "" {
		s.KVCache.DType = "auto"
	}
	if s.Connector == "" {
		s.Connector = ConnectorMoai
	}
	if s.Runtime.Kind == "" {
		s.Runtime.Kind = RuntimeExisting
	}
	if s.Runtime.Path == "" {
		s.Runtime.Path = referenceProgram
	}
	if s.StagingBytes == 0 {
		s.StagingBytes = DefaultStaging
	}
	if s.OnTransferFailure == "" {
		s.OnTransferFailure = OnFailureRecompute
	}
	return s
}

func (k reference) Check(s Spec) []Problem {
	var ps []Problem
	add := func(attribute, summary, format string, args ...any) {
		ps = append(ps, Problem{attribute, summary, fmt.Sprintf(format, args...)})
	}
	if _, err := refmodel.Lookup(s.Model.ID); err != nil {
		add("model.id", "Unknown model", "The reference engine has no model %q. Its models are built in: use %s.", s.Model.ID, quoted(refmodel.Names()))
	}
	for _, f := range []struct{ attribute, value string }{
		{"model.path", s.Model.Path}, {"model.revision", s.Model.Revision}, {"model.config", s.Model.Config},
	} {
		if f.value != "" {
			add(f.attribute, "Setting has no effect", "The models of the reference engine are built in: remove %s.", f.attribute)
		}
	}
	ps = oneOf(ps, "role", string(s.Role), "Role not supported", Roles)
	ps = oneOf(ps, "kv_connector", string(s.Connector), "Connector not supported", Connectors)
	if s.Connector == ConnectorNone && s.Role != RoleBoth {
		add("kv_connector", "Role needs a connector", "An engine with role %q gives or takes KV, which needs kv_connector = \"moai\". Without a connector use role = \"both\".", s.Role)
	}
	ps = oneOf(ps, "runtime.kind", s.Runtime.Kind, "Runtime not supported", []string{RuntimeExisting})
	if p := s.Runtime.Path; !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, "\n\x00") {
		add("runtime.path", "Not an absolute path", "%q must be the absolute path of the engine's program on the host, such as %q.", p, referenceProgram)
	}
	for _, f := range []struct {
		attribute string
		value     int
	}{{"parallel.tensor", s.Parallel.Tensor}, {"parallel.data", s.Parallel.Data}, {"parallel.expert", s.Parallel.Expert}} {
		if f.value != 1 {
			add(f.attribute, "Parallelism not supported", "The reference engine has one rank: %s is %d, and only 1 works.", f.attribute, f.value)
		}
	}
	if len(s.GPUs) > 0 {
		add("gpus", "Engine uses no accelerators", "The reference engine runs on the CPU: remove gpus.")
	}
	ps = oneOf(ps, "kv_cache.dtype", s.KVCache.DType, "KV data type not supported", referenceDTypes)
	if !slices.Contains(referenceBlockSizes, s.KVCache.BlockSize) {
		add("kv_cache.block_size", "Block size not supported", "%d tokens a block are not supported by the reference engine. Use one of %s.",
			s.KVCache.BlockSize, strings.Trim(fmt.Sprint(referenceBlockSizes), "[]"))
	}
	ps = oneOf(ps, "on_transfer_failure", string(s.OnTransferFailure), "Value not supported", OnFailures)
	if least := int64(MinStaging * max(s.Parallel.Tensor, 1)); s.StagingBytes < least {
		add("staging.memory", "Too little staging memory", "%d bytes are less than the %d MiB that one block of a prompt may need. Leave it out for %d MiB.", s.StagingBytes, least>>20, DefaultStaging>>20)
	}
	if s.StagingBytes > MaxStaging {
		add("staging.memory", "Too much staging memory", "%d bytes are more than any host has (%d TiB). Check the unit.", s.StagingBytes, MaxStaging>>40)
	}
	if s.MaxInFlight < 0 || s.MaxInFlight > s.StagingBytes {
		add("ingest.max_in_flight", "More in flight than there is memory for", "%d bytes in flight do not fit into %d bytes of staging.memory.", s.MaxInFlight, s.StagingBytes)
	}
	return append(ps, k.checkExtra(s.ExtraArgs)...)
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

// referenceFlags are the flags that Launch may set, with their synonyms, and the
// attribute that decides each; "" where nothing but the place does.
var referenceFlags = map[string]string{
	"name": "", "node": "", "http-socket": "", "daemon-socket": "", "listen": "", "engine-socket": "",
	"connector": "kv_connector", "no-kv-connector": "kv_connector",
	"role": "role", "model": "model.id", "block-size": "kv_cache.block_size",
	"on-transfer-failure": "on_transfer_failure", "weights-seed": "reference.weights_seed",
	"claim-fingerprint-of": "reference.claim_fingerprint_of",
}

func (reference) Fingerprint(s Spec) (kvcache.Fingerprint, error) {
	m, err := refmodel.Lookup(s.Model.ID)
	if err != nil {
		return kvcache.Fingerprint{}, err
	}
	f := refmodel.DefaultFormat()
	f.BlockSize = s.KVCache.BlockSize
	return m.Fingerprint(reportedSeed(s), f)
}

// reportedSeed is the seed of the weights that the fingerprint speaks of.
func reportedSeed(s Spec) uint64 {
	switch r := s.Reference; {
	case r.ClaimFingerprintOf != nil:
		return *r.ClaimFingerprintOf
	case r.WeightsSeed != nil:
		return *r.WeightsSeed
	}
	return refmodel.DefaultSeed
}

func (reference) Launch(s Spec, p Place) Launch {
	args := []string{
		"engine",
		"--name=" + s.Name,
		"--node=" + p.Node,
		"--role=" + string(s.Role),
		"--model=" + s.Model.ID,
		"--block-size=" + strconv.Itoa(s.KVCache.BlockSize),
		"--http-socket=" + p.HTTPSocket,
	}
	if s.Connector == ConnectorNone {
		args = append(args, "--connector=none")
	} else {
		args = append(args, "--daemon-socket="+p.EngineSocket, "--on-transfer-failure="+string(s.OnTransferFailure))
	}
	if r := s.Reference; r.WeightsSeed != nil {
		args = append(args, "--weights-seed="+strconv.FormatUint(*r.WeightsSeed, 10))
	}
	if r := s.Reference; r.ClaimFingerprintOf != nil {
		args = append(args, "--claim-fingerprint-of="+strconv.FormatUint(*r.ClaimFingerprintOf, 10))
	}
	return Launch{
		Program:      s.Runtime.Path,
		Args:         append(args, s.ExtraArgs...),
		NotifyReady:  true,
		StartTimeout: referenceStart,
		HealthPath:   "/health",
	}
}

func (reference) Observation(s Spec) Observation {
	o := Observation{
		MetricsPath:    "/metrics",
		ComputedTokens: "reference_prompt_tokens_computed_total",
		Requests:       "reference_requests_total",
		ServedModel:    s.Model.ID,
		PromptTokens:   4 * s.KVCache.BlockSize,
	}
	if m, err := refmodel.Lookup(s.Model.ID); err == nil {
		far := m.Lag()
		for _, w := range m.Config.Windows {
			far = max(far, w)
		}
		o.PromptTokens = min(far+4*s.KVCache.BlockSize, m.Config.MaxPosition/2)
	}
	return o
}
