package kvd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

// Config is the daemon's static configuration, kvd.json.
type Config struct {
	Node     string   `json:"node"`      // name of this node in the fleet
	Listen   []string `json:"listen"`    // address:port, for peers and gateways
	StateDir string   `json:"state_dir"` // node.key and state.json
	RunDir   string   `json:"run_dir"`   // manage.sock and engine.sock
	LogLevel string   `json:"log_level"` // debug, info (default), warn or error
}

// Defaults of the configuration.
const (
	DefaultListen   = "0.0.0.0:9610"
	DefaultStateDir = "/var/lib/moai/kvd"
	DefaultRunDir   = "/run/moai"
)

// LoadConfig reads and checks a configuration file; unknown fields are refused.
func LoadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	c := Config{Listen: []string{DefaultListen}, StateDir: DefaultStateDir, RunDir: DefaultRunDir}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := c.Check(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Check reports what is wrong with a configuration.
func (c Config) Check() error {
	switch {
	case !validName(c.Node):
		return fmt.Errorf("node %q is no name: 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit", c.Node)
	case len(c.Listen) == 0 || len(c.Listen) > 16:
		return errors.New("listen needs 1 to 16 addresses")
	case c.StateDir == "" || c.RunDir == "":
		return errors.New("state_dir and run_dir are needed")
	}
	_, err := c.level()
	return err
}

func (c Config) level() (slog.Level, error) {
	var l slog.Level
	if c.LogLevel == "" {
		return slog.LevelInfo, nil
	}
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return l, fmt.Errorf("log_level %q is none of debug, info, warn, error", c.LogLevel)
	}
	return l, nil
}

// Level is the level of the log; info if the configuration is wrong.
func (c Config) Level() slog.Level {
	l, _ := c.level()
	return l
}

// Limits of the daemon, each with its reason.
const (
	maxEngines      = 64       // each has sessions, arenas and a prober
	maxLinks        = 256      // each has connections
	maxTrust        = 1024     // looked at in every handshake
	maxPairs        = 1024     // looked at for every claim
	maxSessions     = 512      // of engines: 64 ranks and a scheduler, eight engines
	maxUserSessions = 384      // of one user's processes
	maxTransfers    = 4096     // live or remembered, of one engine and direction
	maxEarly        = 4096     // claims and cancellations of ids that are not here yet
	maxEarlyPeer    = 1024     // of these, claims of one peer
	maxBody         = 64 << 20 // of forwarded requests, in bytes
	maxBodies       = 1 << 30  // of all forwarded requests together, in bytes
	maxManageBody   = 1 << 20
	maxForwards     = 4096    // requests being forwarded or held
	maxExtents      = 1200    // of one answer on the engine socket: must fit its packet
	sendWindow      = 8       // chunks of one transfer that are queued to the streams
	defaultIngest   = 1 << 30 // bytes in flight to an engine, if its registration says nothing
	minShare        = 1 << 20 // bytes in flight that one transfer may have, however small the budget
	maxWaiting      = 4       // requests that an engine should hold early
	statusInterval  = 1       // seconds between STATUS lines to systemd
)

// clientPatience must be more than a router's with its own clients, one minute
// unless configured.
const clientPatience = 5 * time.Minute

// DrainTime is how long requests that are being forwarded may go on when the
// daemon is asked to end. The daemon's unit must give more (TimeoutStopSec).
const DrainTime = 20 * time.Second

// Options are what tests change.
type Options struct {
	Config
	Drain         time.Duration     // for forwarded requests at the end; 0: they are cut off
	Timeouts      transfer.Timeouts // zero: the protocol's
	LeaseMillis   int64             // of engine sessions; 0: 10,000
	ContentSHA256 string
	Timing        transport.Timing
	Log           *slog.Logger
}
