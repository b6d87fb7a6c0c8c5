package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Client is one session of a client under test. A request that the daemon
// refuses gives a *enginesock.Error; a session that has ended gives ErrClosed.
type Client interface {
	// Connect dials and says hello. After a session's end it may be called again;
	// the arena is kept.
	Connect(path string, hello enginesock.Hello) (*enginesock.OK, error)
	Request(r enginesock.Request) (*enginesock.OK, error)
	// Event waits for the next event; ErrTimeout when none comes.
	Event(within time.Duration) (enginesock.Reply, error)
	// Claim sends a claim and stores what is answered; Poll reads it, or the later
	// verdict, without I/O.
	Claim(c enginesock.Claim) (*enginesock.OK, error)
	Poll(id string) (enginesock.ClaimState, error)
	// OpenArena asks for the arena and maps it; Adopt gives it back.
	OpenArena() (*enginesock.OK, error)
	Adopt() error
	Read(offset, length int64) ([]byte, error)
	Write(offset int64, b []byte) error
	// Loaded reports once; a second report of an id is an error and sends nothing.
	Loaded(id string, ok bool) error
	Close() error
}

// Errors of clients.
var (
	ErrTimeout = errors.New("no event came")
	ErrClosed  = errors.New("the session has ended")
)

// Factory makes clients. The test's end may end them.
type Factory func(t testing.TB) Client

// Side is a daemon with one registered engine.
type Side struct {
	Node, Engine string
	Socket       string
	Restart      func() // the daemon, keeping its state on disk
}

// Pair is two linked daemons; Prefill's engine is paired with Decode's, both
// have the fingerprint and the replicas that were asked for, and recompute as
// on_transfer_failure.
type Pair struct{ Prefill, Decode Side }

// Options of a pair.
type Options struct {
	Fingerprint kvcache.Fingerprint // says how many ranks a replica has
	Replicas    int                 // data-parallel, of each engine; at least 1
	Staging     int64               // bytes an engine, over all its ranks and replicas
	// Fast asks for deadlines of about a second in every state, so that their end
	// can be awaited.
	Fast bool
}

// Harness brings up fresh daemons; the test's end stops them.
type Harness func(t testing.TB, o Options) Pair
