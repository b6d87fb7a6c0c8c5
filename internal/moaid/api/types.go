package api

import (
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// Status is the answer to GET /v1/status.
type Status struct {
	Node          string         `json:"node"`
	PublicKey     string         `json:"public_key"`     // "ed25519:" and base64 of 32 bytes
	Instance      string         `json:"instance"`       // 32 hex digits, new at each start
	ContentSHA256 string         `json:"content_sha256"` // of the running binary: its version
	StartedAt     time.Time      `json:"started_at"`
	Listen        []string       `json:"listen"`
	Trust         []Trust        `json:"trust"`
	Links         []LinkStatus   `json:"links"`
	Engines       []EngineStatus `json:"engines"`
	Pairs         []Pair         `json:"pairs"`
	Transfers     map[string]int `json:"transfers"` // live transfers by state
}

// Role says what a trusted key may do.
type Role string

// Roles of trusted keys.
const (
	RolePeer    Role = "peer"    // open KV control sessions
	RoleGateway Role = "gateway" // send requests to engines
)

// Trust pins a public key.
type Trust struct {
	Name      string `json:"name"`
	PublicKey string `json:"public_key"`
	Role      Role   `json:"role"`
	Node      string `json:"node,omitempty"` // of a peer: the node name that its HELLO must carry
}

// Encryption of KV on a link.
type Encryption string

// Encryption modes. Control is always encrypted and authenticated.
const (
	EncryptionAEAD Encryption = "aead"
	EncryptionNone Encryption = "none"
)

// Link is a connection to one peer.
type Link struct {
	Name       string     `json:"name"`
	Peer       string     `json:"peer"`       // node name
	PeerKey    string     `json:"peer_key"`   // public key; must also be trusted with RolePeer
	Addresses  []string   `json:"addresses"`  // host:port of the peer's daemon
	Dial       bool       `json:"dial"`       // exactly one end of a link dials
	Transport  string     `json:"transport"`  // "tcp"
	Encryption Encryption `json:"encryption"` // must be equal on both ends
	Streams    int        `json:"streams"`    // data streams, 1 to 16
}

// LinkStatus is a link and what became of it.
type LinkStatus struct {
	Link
	Up            bool    `json:"up"`
	LastError     string  `json:"last_error,omitempty"`
	Address       string  `json:"address,omitempty"` // remote address in use
	RTTMicros     int64   `json:"rtt_us,omitempty"`
	SinceSeconds  float64 `json:"since_seconds,omitempty"`
	BytesSent     int64   `json:"bytes_sent"`     // KV payload
	BytesReceived int64   `json:"bytes_received"` // KV payload, verified
}

// Probe asks for a probe transfer over a link.
type Probe struct {
	Bytes int64 `json:"bytes"` // 1 to 256 MiB
}

// ProbeResult is what a probe showed.
type ProbeResult struct {
	OK         bool       `json:"ok"`
	Reason     string     `json:"reason,omitempty"`
	Bytes      int64      `json:"bytes"`
	Seconds    float64    `json:"seconds"`
	Encryption Encryption `json:"encryption"`
	Transport  string     `json:"transport"`
}

// Engine registers an engine of this host.
type Engine struct {
	Name              string              `json:"name"`
	Unit              string              `json:"unit"`        // systemd unit whose processes may open sessions; "" means any process of UID
	UID               int                 `json:"uid"`         // user that the engine runs as
	HTTPSocket        string              `json:"http_socket"` // path of its OpenAI socket
	EngineRole        string              `json:"role"`        // prefill | decode | both
	Fingerprint       kvcache.Fingerprint `json:"fingerprint"`
	DataSize          int                 `json:"data_size"`           // data-parallel replicas, each with a scheduler, all tensor ranks and a cache of its own; 0 means 1
	StagingBytes      int64               `json:"staging_bytes"`       // over all ranks of all replicas
	MaxInFlight       int64               `json:"max_in_flight"`       // bytes granted and not yet verified, over all transfers; 0 means the default
	OnTransferFailure string              `json:"on_transfer_failure"` // recompute | fail; told to the connector
}

// EngineStatus is an engine and what the daemon knows of it.
type EngineStatus struct {
	Engine
	Ready       bool         `json:"ready"` // scheduler and all workers connected, HTTP socket answers /health
	Reason      string       `json:"reason,omitempty"`
	Refused     string       `json:"refused,omitempty"` // code of the engine socket with which sessions of the engine are being refused now; Reason says why
	Generation  string       `json:"generation,omitempty"`
	Draining    bool         `json:"draining"`
	Stats       *EngineStats `json:"stats,omitempty"`
	StagingFree int64        `json:"staging_free"`
	// Incompatible says, for each engine of a peer that a pair names and whose
	// fingerprint does not fit, why no KV may cross.
	Incompatible []string `json:"incompatible,omitempty"`
	// Conversions says, for each engine of a peer from or to which KV may cross, what
	// is converted on the way.
	Conversions []Conversion `json:"conversions,omitempty"`
}

// Conversion is what happens to KV between two engines.
type Conversion struct {
	Prefill PeerEngine     `json:"prefill"`
	Decode  PeerEngine     `json:"decode"`
	Class   kvcompat.Class `json:"class"`
	Text    string         `json:"text"` // "none", or what is changed, in one line
}

// EngineStats is the last load feedback of an engine.
type EngineStats struct {
	Waiting       int   `json:"waiting"`
	Running       int   `json:"running"`
	KVBlocksFree  int   `json:"kv_blocks_free"`
	KVBlocksTotal int   `json:"kv_blocks_total"`
	StepMicrosP50 int64 `json:"step_us_p50"`
	StepMicrosP99 int64 `json:"step_us_p99"`
}

// Drain asks that an engine takes no new work.
type Drain struct {
	Draining bool `json:"draining"`
}

// PeerEngine names an engine on a node.
type PeerEngine struct {
	Node   string `json:"node"`
	Engine string `json:"engine"`
}

// Pair allows KV transfers between engines. Each end registers it with the same
// lists; only engines of the local node are checked here.
type Pair struct {
	Name    string       `json:"name"`
	Prefill []PeerEngine `json:"prefill"`
	Decode  []PeerEngine `json:"decode"`
	kvcompat.Options
}

// Transfer is one live or recently ended transfer.
type Transfer struct {
	ID            string  `json:"id"`
	Direction     string  `json:"direction"` // send | receive
	State         string  `json:"state"`
	Engine        string  `json:"engine"` // local
	Peer          string  `json:"peer"`   // node/engine
	Tokens        int     `json:"tokens"`
	FromToken     int     `json:"from_token"`
	BytesExpected int64   `json:"bytes_expected"`
	BytesMoved    int64   `json:"bytes_moved"`
	Chunks        int64   `json:"chunks"`
	Encryption    string  `json:"encryption"`
	AgeSeconds    float64 `json:"age_seconds"`
	Reason        string  `json:"reason,omitempty"`
	DataRank      int     `json:"data_rank"`            // of the local engine
	Conversion    string  `json:"conversion,omitempty"` // "none", or what is changed; of sends
	// ValuesClipped and ValuesRounded count elements that a conversion could not
	// preserve. Sends know them; above zero only where a pair allows it.
	ValuesClipped int64 `json:"values_clipped"`
	ValuesRounded int64 `json:"values_rounded"`
	// Durations of the stages in seconds; 0 while unknown.
	OfferSeconds   float64 `json:"offer_seconds"`
	ReceiveSeconds float64 `json:"receive_seconds"`
	LoadSeconds    float64 `json:"load_seconds"`
}

// Error is the body of a failed request.
type Error struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Attribute string `json:"attribute,omitempty"`
}

func (e *Error) Error() string { return e.Message + " (" + e.Code + ")" }

// ErrorBody wraps Error on the wire.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Codes of 404 answers. Clients tell them apart: only CodeNotFound proves that
// an object is absent.
const (
	CodeNotFound    = "not_found"    // no object has this name
	CodeUnknownPath = "unknown_path" // this version of the daemon has no such path
)

// EngineSummary is what a gateway sees of an engine: an item of the answer to
// GET /engines over moai-http/1.
type EngineSummary struct {
	Name       string       `json:"name"`
	EngineRole string       `json:"role"`
	Ready      bool         `json:"ready"`
	Reason     string       `json:"reason,omitempty"` // why it is not ready
	Draining   bool         `json:"draining"`
	Stopping   bool         `json:"stopping,omitempty"` // its daemon ends, most likely to be started again
	Generation string       `json:"generation,omitempty"`
	Stats      *EngineStats `json:"stats,omitempty"`
	// Peers are the nodes with whose daemons the engine's daemon has a session
	// now, ascending: KV can come from there and go there. Nil says nothing.
	Peers []string `json:"peers"`
}
