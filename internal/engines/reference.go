package engines

import (
	"fmt"
	"path"
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
	s = formatDefaults(s)
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
		s.StagingBytes = defaultStaging(s.Parallel)
	}
	if s.OnTransferFailure == "" {
		s.OnTransferFailure = OnFailureRecompute
	}
	return s
}

// defaultStaging is enough for each rank, in bytes.
func defaultStaging(p Parallel) int64 { return max(DefaultStaging, int64(MinStaging*p.Ranks())) }

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
	ps = append(ps, checkParallel(s)...)
	ps = append(ps, checkFormat(s)...)
	ps = oneOf(ps, "on_transfer_failure", string(s.OnTransferFailure), "Value not supported", OnFailures)
	if least := int64(MinStaging * s.Parallel.Ranks()); s.StagingBytes < least {
		add("staging.memory", "Too little staging memory", "%d bytes are less than %d MiB: each of the engine's %d ranks gets an equal part, and one block of a prompt may need %d MiB. Leave it out for %d MiB.",
			s.StagingBytes, least>>20, s.Parallel.Ranks(), MinStaging>>20, defaultStaging(s.Parallel)>>20)
	}
	if s.StagingBytes > MaxStaging {
		add("staging.memory", "Too much staging memory", "%d bytes are more than any host has (%d TiB). Check the unit.", s.StagingBytes, MaxStaging>>40)
	}
	if s.MaxInFlight < 0 || s.MaxInFlight > s.StagingBytes {
		add("ingest.max_in_flight", "More in flight than there is memory for", "%d bytes in flight do not fit into %d bytes of staging.memory.", s.MaxInFlight, s.StagingBytes)
	}
	ps = append(ps, checkEnv(s)...)
	return append(ps, k.checkExtra(s.ExtraArgs)...)
}

func (reference) Fingerprint(s Spec) (kvcache.Fingerprint, error) {
	m, err := refmodel.Lookup(s.Model.ID)
	if err != nil {
		return kvcache.Fingerprint{}, err
	}
	return m.Fingerprint(reportedSeed(s), formatOf(s))
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
	}
	args = append(args, formatArgs(s)...)
	args = append(args, "--http-socket="+p.HTTPSocket)
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
		Env:          s.Env,
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
