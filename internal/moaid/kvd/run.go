package kvd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/sdnotify"
)

// ManageSocket and EngineSocket are the names of the sockets in the run folder.
const (
	ManageSocket = "manage.sock"
	EngineSocket = "engine.sock"
)

// listeners are what the daemon answers on.
type listeners struct {
	peers  []net.Listener
	engine *net.UnixListener
	manage net.Listener
}

func (l *listeners) close() {
	for _, p := range l.peers {
		_ = p.Close()
	}
	if l.engine != nil {
		_ = l.engine.Close()
	}
	if l.manage != nil {
		_ = l.manage.Close()
	}
}

// Run serves until ctx ends, and then stops gracefully: peers are told, engines
// keep their arenas. ready, if not nil, is called with the peers' addresses once
// everything listens.
func (d *Daemon) Run(ctx context.Context, ready func(addrs []net.Addr)) error {
	notify, err := sdnotify.FromEnv()
	if err != nil {
		d.log.Warn("systemd is not notified", "error", err)
		notify = nil
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	d.ctx = runCtx
	ls, err := d.listen(ctx)
	if err != nil {
		ls.close()
		return err
	}
	var owner sync.WaitGroup
	ownCtx, stopOwner := context.WithCancel(runCtx)
	owner.Go(func() { d.own.run(ownCtx, d.tick, d.settle) })
	d.background(d.watchRoom)
	failed := make(chan error, len(ls.peers)+2)
	for _, l := range ls.peers {
		d.background(func() { failed <- d.mux.Serve(runCtx, l) })
	}
	d.background(func() { failed <- d.serveEngines(runCtx, ls.engine) })
	srv := &http.Server{Handler: d.manageHandler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return runCtx }}
	d.background(func() { failed <- srv.Serve(ls.manage) })
	d.restore() //nolint:contextcheck // what is started lives as long as the daemon
	if ready != nil {
		addrs := make([]net.Addr, len(ls.peers))
		for i, l := range ls.peers {
			addrs[i] = l.Addr()
		}
		ready(addrs)
	}
	d.log.Info("KV daemon started", "node", d.cfg.Node, "instance", d.instance, "public_key", d.identity.PublicString(), "listen", d.cfg.Listen)
	d.background(func() { d.tellSystemd(runCtx, notify) })
	select {
	case <-ctx.Done():
		err = nil
		_ = notify.Send(sdnotify.Stopping, sdnotify.Status("finishing forwarded requests"))
		d.drain(runCtx)
	case err = <-failed:
	}
	_ = notify.Send(sdnotify.Stopping, sdnotify.Status("stopping"))
	d.log.Info("KV daemon stopping")
	// The listeners close first: nothing new begins. Closing the transport tells
	// the peers and waits for their sessions, which need the owner.
	ls.close()
	closeErr := d.mux.Close()
	stopOwner()
	owner.Wait()
	cancel()
	_ = srv.Close()
	d.drainInbox()
	d.stopQueues()
	d.wg.Wait()
	return errors.Join(err, closeErr)
}

// drainInbox lets those who post in vain go on; the owner has ended.
func (d *Daemon) drainInbox() {
	for {
		select {
		case <-d.own.inbox:
		default:
			return
		}
	}
}

// stopQueues ends the chunk workers. The owner has ended, so its maps are ours.
func (d *Daemon) stopQueues() {
	for _, ps := range d.sessions {
		ps.queue.stop()
	}
	for _, e := range d.engines {
		if e.stopProbe != nil {
			e.stopProbe()
		}
	}
}

// restore brings back what the state says.
func (d *Daemon) restore() {
	d.owned(func() {
		for _, name := range slices.Sorted(maps.Keys(d.engines)) {
			d.startProbe(d.engines[name])
		}
	})
	s := d.store.Get()
	for _, name := range slices.Sorted(maps.Keys(s.Links)) {
		d.connect(s.Links[name])
	}
}

func (d *Daemon) listen(ctx context.Context) (*listeners, error) {
	ls := &listeners{}
	var lc net.ListenConfig // sets SO_REUSEADDR
	for _, a := range d.cfg.Listen {
		l, err := lc.Listen(ctx, "tcp", a)
		if err != nil {
			return ls, fmt.Errorf("listen for peers: %w", err)
		}
		ls.peers = append(ls.peers, l)
	}
	manage := filepath.Join(d.cfg.RunDir, ManageSocket)
	if err := removeStale(ctx, manage, "unix"); err != nil {
		return ls, err
	}
	var err error
	if ls.manage, err = lc.Listen(ctx, "unix", manage); err != nil {
		return ls, fmt.Errorf("listen for management: %w", err)
	}
	if err := os.Chmod(manage, 0o600); err != nil {
		return ls, fmt.Errorf("listen for management: %w", err)
	}
	engine := filepath.Join(d.cfg.RunDir, EngineSocket)
	if err := removeStale(ctx, engine, "unixpacket"); err != nil {
		return ls, err
	}
	if ls.engine, err = enginesock.Listen(engine); err != nil {
		return ls, fmt.Errorf("listen for engines: %w", err)
	}
	if err := os.Chmod(engine, 0o666); err != nil {
		return ls, fmt.Errorf("listen for engines: %w", err)
	}
	return ls, nil
}

// removeStale removes a socket that a killed daemon left, but not one that is
// answered.
func removeStale(ctx context.Context, path, network string) error {
	nd := net.Dialer{Timeout: time.Second}
	c, err := nd.DialContext(ctx, network, path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%s is in use: another KV daemon runs on this host", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}

// watchRoom turns freed pages into events.
func (d *Daemon) watchRoom() {
	for {
		select {
		case <-d.roomWake:
		case <-d.ctx.Done():
			return
		}
		d.roomMu.Lock()
		replicas := slices.Collect(maps.Keys(d.room))
		clear(d.room)
		d.roomMu.Unlock()
		if !d.own.post(func() {
			for _, r := range replicas {
				d.roomMade(r)
			}
		}) {
			return
		}
	}
}

// tellSystemd says that the daemon is ready, how it is, and that it is alive:
// the owner answers, not only this goroutine.
func (d *Daemon) tellSystemd(ctx context.Context, n *sdnotify.Notifier) {
	if !n.Enabled() {
		return
	}
	if err := n.Send(sdnotify.Ready); err != nil {
		d.log.Warn("systemd was not notified", "error", err)
	}
	every := statusInterval * time.Second
	if w := sdnotify.WatchdogInterval(); w > 0 {
		every = min(every, w)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	last := ""
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		var line string
		if err := d.own.call(ctx, func() {
			line = sdnotify.Status("%d peers, %d engines, %d transfers", len(d.peers), len(d.engines), len(d.sends)+len(d.recvs))
		}); err != nil {
			return
		}
		states := []string{sdnotify.Watchdog}
		if line != last {
			states, last = append(states, line), line
		}
		if err := n.Send(states...); err != nil {
			d.log.Warn("systemd was not notified", "error", err)
		}
	}
}
