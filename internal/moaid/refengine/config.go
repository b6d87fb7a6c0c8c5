package refengine

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Role says what an engine is used for. It is told to operators only: every
// engine can send and receive.
type Role string

// Roles of an engine.
const (
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleBoth    Role = "both"
)

// Config is an engine's configuration.
type Config struct {
	Name             string // registered with the daemon
	Node             string // name of this host, if the daemon does not say it
	Role             Role
	Model            string            // preset of refmodel
	Seed             uint64            // of the weights
	ClaimSeed        uint64            // of the weights that the fingerprint claims; equal to Seed unless a test wants to be caught
	Format           refmodel.Format   // of the KV cache, with the tensor-parallel size
	ClaimScales      kvcache.ScaleKind // kind of scales that the fingerprint claims; "" for those of Format, unless a test wants to be caught
	DataParallel     int               // replicas, each with a scheduler, all ranks, and a cache of its own
	Blocks           int               // of KV in a replica; 0 for room for 131,072 tokens over all groups
	MaxBatchedTokens int
	MaxSeqs          int
	HTTPSocket       string        // path
	DaemonSocket     string        // path; "" for an engine without a connector
	FailTransfers    bool          // a failed transfer fails its request, unless the registration says otherwise
	TransferWait     time.Duration // how long a request waits for KV, beyond the daemon's own deadlines
	DownWait         time.Duration // how long a request waits for a daemon that is not there
	Stderr           io.Writer     // takes the log of worker processes; nil for none
}

// Default is a configuration that lacks only names and sockets.
func Default() Config {
	return Config{
		Role: RoleBoth, Model: "moai/reciting", Seed: refmodel.DefaultSeed, ClaimSeed: refmodel.DefaultSeed,
		Format: refmodel.DefaultFormat(), DataParallel: 1, MaxBatchedTokens: 512, MaxSeqs: 64,
		TransferWait: 60 * time.Second, DownWait: 3 * time.Second,
	}
}

const defaultCacheTokens = 131072

func (c *Config) check() error {
	if c.Blocks == 0 && c.Format.BlockSize > 0 {
		c.Blocks = max(8, defaultCacheTokens/c.Format.BlockSize)
	}
	switch {
	case c.Name == "":
		return errors.New("the engine needs a name")
	case c.Role != RolePrefill && c.Role != RoleDecode && c.Role != RoleBoth:
		return fmt.Errorf("role %q is none of prefill, decode, both", c.Role)
	case c.DataParallel < 1 || c.DataParallel > enginesock.MaxReplicas:
		return fmt.Errorf("data-parallel size %d is outside 1 to %d", c.DataParallel, enginesock.MaxReplicas)
	case c.Blocks < 2 || c.Blocks > 1<<20:
		return fmt.Errorf("%d KV blocks are outside 2 to 1048576", c.Blocks)
	case c.MaxBatchedTokens < 1 || c.MaxBatchedTokens > 1<<16:
		return fmt.Errorf("%d batched tokens are outside 1 to 65536", c.MaxBatchedTokens)
	case c.MaxSeqs < 1 || c.MaxSeqs > 4096:
		return fmt.Errorf("%d sequences are outside 1 to 4096", c.MaxSeqs)
	}
	return nil
}

// Processes reports whether the engine's ranks are processes of their own.
func (c *Config) Processes() bool { return c.Format.Tensor > 1 || c.DataParallel > 1 }

// Fingerprint is what the engine reports of its KV cache.
func (c *Config) Fingerprint() (kvcache.Fingerprint, error) {
	m, err := refmodel.Lookup(c.Model)
	if err != nil {
		return kvcache.Fingerprint{}, err
	}
	f := c.Format
	if c.ClaimScales != "" {
		f.Scales = c.ClaimScales
	}
	return m.Fingerprint(c.ClaimSeed, f)
}

// kept is the cache that the engine has, as far as its elements go: what it claims
// but for the scales.
func (c *Config) kept() (kvcache.Fingerprint, error) {
	own := *c
	own.ClaimScales = ""
	return own.Fingerprint()
}
