package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/intake"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/sdnotify"
)

const (
	// headerTimeout bounds the reading of a request's header.
	headerTimeout = 10 * time.Second
	// clientIdle is how long a kept connection of a client may be silent.
	clientIdle = 2 * time.Minute
	// firstPolls bounds the wait for daemons before clients are served.
	firstPolls = 3 * time.Second
	// defaultPoll is the time between two polls of a daemon.
	defaultPoll = time.Second
	// cancelTimeout bounds telling a daemon that a client has gone.
	cancelTimeout = 5 * time.Second
	// lastWords bounds telling clients that the router stops.
	lastWords = 2 * time.Second
)

// Options of New.
type Options struct {
	Config      *config.RouterConfig
	Certificate tls.Certificate    // of the key that daemons pin
	Log         *slog.Logger       // nil discards
	Notify      *sdnotify.Notifier // nil notifies nobody
	Poll        time.Duration      // between two polls of a daemon; 0 is 1 s
	DecodeWait  time.Duration      // for decode engines that restart, over all of a request; 0 is 10 s
}

// Gateway serves clients. Make it with New, run it with Run.
type Gateway struct {
	cfg        *config.RouterConfig
	timeouts   config.Timeouts
	fleet      *fleet
	bodies     *intake.Budget
	metrics    *metrics
	log        *slog.Logger
	notify     *sdnotify.Notifier
	poll       time.Duration
	decodeWait time.Duration
	started    time.Time
	stopping   atomic.Bool
	handlers   sync.WaitGroup // completion requests
	cancels    sync.WaitGroup // tell daemons that clients have gone
}

// New checks the configuration. It connects to nothing.
func New(o Options) (*Gateway, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("router configuration: %w", err)
	}
	f, err := newFleet(o.Config, o.Certificate)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		cfg: o.Config, timeouts: o.Config.Timeouts.WithDefaults(), fleet: f, bodies: intake.NewBudget(maxBodies), metrics: newMetrics(f),
		log: o.Log, notify: o.Notify, poll: o.Poll, decodeWait: o.DecodeWait, started: time.Now(),
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.poll == 0 {
		g.poll = defaultPoll
	}
	if g.decodeWait == 0 {
		g.decodeWait = defaultDecodeWait
	}
	return g, nil
}

// Run serves clients on l until ctx ends, then lets running requests finish for
// the drain time. It returns when everything that it started has ended, nil if
// only ctx ended it.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	// What serves clients must outlive ctx by the drain time.
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	var tasks sync.WaitGroup
	defer func() { abort(nil); tasks.Wait(); g.fleet.close() }()

	polled := make(chan struct{})
	tasks.Go(func() {
		g.fleet.keepPolling(base, g.poll, func(node string, err error) {
			g.log.Warn("a node's daemon cannot be polled", "node", node, "err", err)
		}, func() { close(polled) })
	})
	select {
	case <-polled:
	case <-time.After(firstPolls):
	case <-ctx.Done():
	}

	srv := &http.Server{
		Handler:           g.handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       clientIdle,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	tasks.Go(func() { served <- srv.Serve(l) })
	g.tell(sdnotify.Ready)
	tasks.Go(func() { g.showStatus(base) })
	g.log.Info("serving", "router", g.cfg.Name, "listen", l.Addr().String(), "fleet", g.fleet.summary())

	select {
	case err := <-served:
		return fmt.Errorf("serve clients on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	return g.stop(base, srv, abort)
}

var errStopped = errors.New("the router was stopped")

// stop lets requests finish for the drain time, then ends them.
func (g *Gateway) stop(ctx context.Context, srv *http.Server, abort context.CancelCauseFunc) error {
	g.stopping.Store(true)
	g.tell(sdnotify.Stopping, sdnotify.Status("finishing running requests"))
	g.log.Info("stopping", "drain", time.Duration(g.timeouts.Drain).String())
	drain, cancel := context.WithTimeout(ctx, time.Duration(g.timeouts.Drain))
	defer cancel()
	err := srv.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		g.log.Warn("requests did not finish in time and are cut off")
		abort(errStopped)
		g.settle()
		err = srv.Close()
	}
	g.handlers.Wait()
	g.cancels.Wait()
	if err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

// settle gives requests that were cut off time to tell their clients so.
func (g *Gateway) settle() {
	told := make(chan struct{})
	go func() {
		g.handlers.Wait()
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(lastWords):
	}
}

// showStatus keeps systemd's status line up to date.
func (g *Gateway) showStatus(ctx context.Context) {
	for {
		changed := g.fleet.watch()
		if !g.stopping.Load() {
			g.tell(sdnotify.Status("%s", g.fleet.summary()))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (g *Gateway) tell(states ...string) {
	if err := g.notify.Send(states...); err != nil {
		g.log.Warn("systemd was not told", "err", err)
	}
}

// cancelTransfer tells daemons that the client of a transfer has gone. It does
// not wait; Run does before it returns.
func (g *Gateway) cancelTransfer(ctx context.Context, id string, leases ...*lease) {
	told := map[string]bool{}
	for _, l := range leases {
		if l == nil || told[l.e.Node] {
			continue
		}
		told[l.e.Node] = true
		g.cancels.Go(func() {
			// The request's context has ended: that is why we are here.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
			defer cancel()
			result := "ok"
			if err := l.node().Cancel(ctx, id); err != nil {
				result = "failed"
				g.log.Warn("a daemon was not told that a client has gone: its pages are held until their deadline",
					"id", id, "node", l.e.Node, "err", err)
			}
			g.metrics.cancels.WithLabelValues(l.e.Node, result).Inc()
		})
	}
}
