package transport

import (
	"crypto/ed25519"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Pins says which keys are trusted. It is asked at every handshake, and again
// for live sessions at PinsChanged; it must be safe for concurrent use.
type Pins interface {
	// Allowed says whether pub is pinned with the role; name is the pin's, node
	// the node name that a peer's HELLO must carry.
	Allowed(pub ed25519.PublicKey, role api.Role) (name, node string, ok bool)
}

// PeerConfig is a link to a peer, as this end has it.
type PeerConfig struct {
	Link       string
	Node       string
	Key        ed25519.PublicKey
	Addresses  []string // host:port, tried in order
	Dial       bool     // exactly one end of a link dials
	Encryption api.Encryption
	Streams    int // data streams, 1 to 16; the dialling end's number counts
}

func (c *PeerConfig) equal(d *PeerConfig) bool {
	return c.Link == d.Link && c.Node == d.Node && c.Key.Equal(d.Key) && slices.Equal(c.Addresses, d.Addresses) &&
		c.Dial == d.Dial && c.Encryption == d.Encryption && c.Streams == d.Streams
}

// Options configure a Mux. Node, Identity, Pins and Handler are required.
type Options struct {
	Node     string
	Instance wire.ID
	Identity Identity
	Pins     Pins
	Log      *slog.Logger // nil discards
	Handler  Handler
	HTTP     http.Handler         // serves gateways; nil refuses them
	Engines  func() []wire.Engine // what HELLO announces; nil announces none
	Timing   Timing               // zero fields take their defaults
	// MaxUnauthenticated bounds connections that have not shown a pinned key
	// or a valid opening; 0 means 64. One more closes the oldest.
	MaxUnauthenticated int
}

// Timing are the transport's durations. Zero means the default.
type Timing struct {
	Unauthenticated time.Duration // from accept to a pinned key or a valid opening; 2 s
	Setup           time.Duration // from there until HELLO and all streams; 5 s
	Ping            time.Duration // between PINGs; 2 s
	Idle            time.Duration // silence on the control connection that ends a session; 6 s
	Write           time.Duration // for one write, so that a stuck peer ends the session; 6 s
	Linger          time.Duration // for a GOODBYE to arrive; 500 ms
	Dial            time.Duration // for TCP to connect; 3 s
	BackoffMin      time.Duration // first wait between dials; 200 ms
	BackoffMax      time.Duration // longest wait between dials; 10 s
}

func (t Timing) withDefaults() Timing {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&t.Unauthenticated, 2*time.Second)
	set(&t.Setup, 5*time.Second)
	set(&t.Ping, 2*time.Second)
	set(&t.Idle, 6*time.Second)
	set(&t.Write, 6*time.Second)
	set(&t.Linger, 500*time.Millisecond)
	set(&t.Dial, 3*time.Second)
	set(&t.BackoffMin, 200*time.Millisecond)
	set(&t.BackoffMax, 10*time.Second)
	return t
}

const defaultMaxUnauthenticated = 64

// LinkState is what became of a link.
type LinkState struct {
	Up            bool
	LastError     string        // of the last attempt or session; empty while up
	Address       string        // remote address in use
	RTT           time.Duration // of the last PING
	Since         time.Time     // of the last change of Up; zero before the first session
	BytesSent     int64         // KV payload, over all sessions
	BytesReceived int64         // KV payload that was verified, over all sessions
	Encryption    api.Encryption
}

// ProbeResult is what a probe showed.
type ProbeResult = api.ProbeResult
