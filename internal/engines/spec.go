package engines

import (
	"fmt"
	"regexp"
)

// Role says what an engine does in a pair.
type Role string

// Roles of engines.
const (
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleBoth    Role = "both"
)

// Roles lists the roles that this version installs.
var Roles = []string{string(RolePrefill), string(RoleDecode), string(RoleBoth)}

// Prefills reports whether an engine of this role may be used for prefill.
func (r Role) Prefills() bool { return r == RolePrefill || r == RoleBoth }

// Decodes reports whether an engine of this role may be used for decode.
func (r Role) Decodes() bool { return r == RoleDecode || r == RoleBoth }

// Connector says how KV leaves and enters an engine.
type Connector string

// Connectors.
const (
	ConnectorMoai Connector = "moai"
	ConnectorNone Connector = "none" // aggregated: prefill and decode in the engine itself
)

// Connectors lists the connectors that this version installs.
var Connectors = []string{string(ConnectorMoai), string(ConnectorNone)}

// OnFailure says what a decode engine does when KV does not arrive.
type OnFailure string

// Ways to go on after a failed transfer.
const (
	OnFailureRecompute OnFailure = "recompute"
	OnFailureFail      OnFailure = "fail"
)

// OnFailures lists them.
var OnFailures = []string{string(OnFailureRecompute), string(OnFailureFail)}

// Spec is what an operator asks of an engine, with every default filled in by
// [Defaults]. It is stored on the host beside the engine.
type Spec struct {
	Name              string            `json:"name"`
	Kind              string            `json:"kind"`
	Role              Role              `json:"role"`
	Model             Model             `json:"model"`
	Preset            string            `json:"preset"`
	Parallel          Parallel          `json:"parallel"`
	GPUs              []int             `json:"gpus,omitempty"` // indexes of accelerators of the node
	KVCache           KVCache           `json:"kv_cache"`
	Connector         Connector         `json:"kv_connector"`
	Runtime           Runtime           `json:"runtime"`
	StagingBytes      int64             `json:"staging_bytes"`
	MaxInFlight       int64             `json:"max_in_flight,omitempty"` // bytes; 0 means the daemon's default
	OnTransferFailure OnFailure         `json:"on_transfer_failure"`
	ExtraArgs         []string          `json:"extra_args,omitempty"`
	Env               map[string]string `json:"env,omitempty"`
	Reference         Reference         `json:"reference,omitzero"`
}

// Model says what an engine runs.
type Model struct {
	ID       string `json:"id"`
	Path     string `json:"path,omitempty"`
	Revision string `json:"revision,omitempty"`
	Config   string `json:"config,omitempty"` // JSON of the model's config.json
}

// Parallel says over how many accelerators an engine is spread.
type Parallel struct {
	Tensor int `json:"tensor"`
	Data   int `json:"data"`
	Expert int `json:"expert"`
}

// Ranks is the number of accelerators: each data-parallel replica has every
// tensor-parallel rank.
func (p Parallel) Ranks() int { return max(p.Tensor, 1) * max(p.Data, 1) }

// KVCache says how an engine keeps its KV.
type KVCache struct {
	DType     string `json:"dtype"`
	BlockSize int    `json:"block_size"` // tokens
	Layout    string `json:"layout"`     // a kvcache.Order
}

// Runtime says where an engine's program comes from.
type Runtime struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
}

// RuntimeExisting is a program that the host already has.
const RuntimeExisting = "existing"

// Reference holds settings that only the kind "reference" has. Seeds choose
// weights; ClaimFingerprintOf makes an engine report the fingerprint of another
// seed, for the control that proves that transferred KV is used. The others are
// parts of the format that other kinds do not let one choose.
type Reference struct {
	WeightsSeed        *uint64 `json:"weights_seed,omitempty"`
	ClaimFingerprintOf *uint64 `json:"claim_fingerprint_of,omitempty"`
	Packing            string  `json:"packing,omitempty"`           // a kvcache.Packing
	Scales             string  `json:"scales,omitempty"`            // a kvcache.ScaleKind
	KernelBlockSize    int     `json:"kernel_block_size,omitempty"` // tokens
	Padding            int     `json:"padding,omitempty"`           // bytes a page
}

// DefaultStaging is the host memory for KV on its way, in bytes.
const DefaultStaging = 256 << 20

// MinStaging is the least that is of use, in bytes a rank: the pages of one block in every layer of a large model, an
// own page for each, need about that much, and less would refuse every transfer. The daemon itself takes less.
const MinStaging = 16 << 20

// MaxStaging is more than any host has, in bytes: it catches a mistyped unit where nothing is known of the host.
const MaxStaging = 64 << 40

// nameRE is the management API's rule for names.
var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckName says why a name cannot be one of an engine, pair or router.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%q is no valid name: use 1 to 63 of a-z, 0-9 and -, beginning with a letter or a digit", name)
	}
	return nil
}
