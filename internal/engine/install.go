package engine

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

const (
	// readyWait is how long the daemon is asked to wait for an engine at a time: an engine that dies meanwhile is
	// noticed afterwards.
	readyWait = 2 * time.Second
	// readyPause is between two questions to a daemon that answers at once.
	readyPause = 250 * time.Millisecond
	// reserve is left of a timeout for what has to be done after waiting for an engine.
	reserve = 10 * time.Second
	// drainLimit is how long running requests may take to end before an engine is stopped.
	drainLimit = 30 * time.Second
	// daemonLimit bounds one question to a daemon that may not be there.
	daemonLimit = 10 * time.Second
	// journalLines are read of an engine that died, of which [lastWords] shows the end.
	journalLines = 40
)

// installer does things for one engine on one machine.
type installer struct {
	fleet *fleet.Fleet
	node  *fleet.Node
	host  *host.Host
}

func openInstaller(ctx context.Context, f *fleet.Fleet, n *fleet.Node) (*installer, error) {
	h, err := n.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &installer{fleet: f, node: n, host: h}, nil
}

// outcome is what an installation came to. Reason says why an engine is not ready.
type outcome struct {
	ready  bool
	reason string
}

// install brings the host to what d says and waits for the engine, for as long as
// ctx allows less a reserve. began is called once, after the first change.
func (i *installer) install(ctx context.Context, d desired, began func()) (outcome, error) {
	var base int
	err := i.host.WithLock(ctx, i.fleet.Writer(d.service.Owner.Resource), func(ctx context.Context, _ *host.Lock) error {
		var err error
		base, err = i.converge(ctx, d, began)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	return i.waitReady(ctx, d, base)
}

// converge writes what is missing, registers the engine and has it running. It
// returns how often systemd had restarted the unit by then.
func (i *installer) converge(ctx context.Context, d desired, began func()) (restarts int, err error) {
	if err := service.RequireNode(ctx, i.host, i.fleet.Name()); err != nil {
		return 0, err
	}
	found, err := d.service.Inspect(ctx, i.host)
	if err != nil {
		return 0, err
	}
	if err := d.service.CheckOwner(ctx, i.host, found); err != nil {
		return 0, err
	}
	want, anew, err := i.registration(ctx, d)
	if err != nil {
		return 0, err
	}
	restart := found.Unit.Active() && (anew || d.service.Stale(found, false))
	began()
	if restart {
		if err := d.service.Begin(ctx, i.host); err != nil {
			return 0, err
		}
		i.drain(ctx, d.spec.Name)
	}
	if err := d.service.Install(ctx, i.host); err != nil {
		return 0, err
	}
	m := i.node.Manage()
	if _, err := m.PutEngine(ctx, want); err != nil {
		return 0, err
	}
	if err := d.service.Start(ctx, i.host, restart); err != nil {
		return 0, i.died(ctx, d, err)
	}
	// Drained for the restart, or by a removal that was interrupted.
	if _, err := m.Drain(ctx, want.Name, false); err != nil {
		return 0, err
	}
	if restart || found.Pending.Exists() {
		if err := d.service.Finish(ctx, i.host); err != nil {
			return 0, err
		}
	}
	if found, err = d.service.Inspect(ctx, i.host); err != nil {
		return 0, err
	}
	return found.Unit.NRestarts, nil
}

// registration is what the daemon shall know, with the user's id on this host. anew
// reports that sessions opened under the present registration will be of no use.
func (i *installer) registration(ctx context.Context, d desired) (want api.Engine, anew bool, err error) {
	out, err := i.host.Exec(ctx, "id", "-u", userEngine)
	if err != nil {
		return want, false, err
	}
	want = d.registration
	if want.UID, err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil {
		return want, false, fmt.Errorf("id -u %s on %s: %w", userEngine, i.host, err)
	}
	old, err := i.node.Manage().GetEngine(ctx, want.Name, 0)
	switch {
	case client.IsNotFound(err):
		return want, false, nil
	case err != nil:
		return want, false, err
	}
	return want, needsRestart(old.Engine, want) || old.UID != want.UID, nil
}

// waitReady waits until the engine serves, has died or can never serve, or the time is up. Time that
// is up is no error: a large engine may take longer.
func (i *installer) waitReady(ctx context.Context, d desired, base int) (outcome, error) {
	deadline, bounded := ctx.Deadline()
	var refused refusals
	for {
		a, err := i.ask(ctx, d)
		if err != nil {
			return outcome{}, err
		}
		if a.ready {
			return outcome{ready: true}, nil
		}
		if refused.lasted(a, time.Now()) {
			return outcome{}, &refusedError{name: d.spec.Name, host: i.host.String(), code: a.refused, reason: a.reason}
		}
		found, err := d.service.Inspect(ctx, i.host)
		if err != nil {
			return outcome{}, err
		}
		if dying(found, base) {
			return outcome{}, i.died(ctx, d, nil)
		}
		if bounded && time.Until(deadline) < reserve+readyWait {
			return outcome{reason: a.reason}, nil
		}
		pause := time.NewTimer(readyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return outcome{}, ctx.Err()
		}
	}
}

// answer is what the daemon says of an engine that is starting.
type answer struct {
	ready   bool
	reason  string // why it is not
	refused string // code of the engine socket, while its sessions are refused
}

// ask asks the daemon once whether the engine serves. An engine without connector
// opens no session, so it is asked itself.
func (i *installer) ask(ctx context.Context, d desired) (answer, error) {
	m := i.node.Manage()
	if d.spec.Connector == engines.ConnectorMoai {
		st, err := m.GetEngine(ctx, d.spec.Name, readyWait)
		if err != nil {
			return answer{}, err
		}
		return answer{st.Ready, st.Reason, st.Refused}, nil
	}
	resp, err := m.EngineHTTP(ctx, d.spec.Name, http.MethodGet, d.launch.HealthPath, nil, nil)
	if err != nil {
		return answer{}, err
	}
	if err := resp.Body.Close(); err != nil {
		return answer{}, err
	}
	return answer{ready: resp.StatusCode == http.StatusOK, reason: fmt.Sprintf("%s answers with status %d", d.launch.HealthPath, resp.StatusCode)}, nil
}

// died stops a unit that does not stay up, so that it does not start over and
// over, and says what it said last. cause may be nil.
func (i *installer) died(ctx context.Context, d desired, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemonLimit)
	defer cancel()
	e := &diedError{name: d.spec.Name, host: i.host.String(), unit: d.service.Unit, cause: cause}
	if found, err := d.service.Inspect(ctx, i.host); err == nil {
		e.exit, e.result = found.Unit.ExecMainStatus, found.Unit.Result
	}
	if log, err := i.host.JournalTail(ctx, d.service.Unit, journalLines); err == nil {
		e.log = strings.TrimSpace(log)
	}
	e.attribute = blame(d.spec, e.exit, e.log)
	// Best effort: a unit that cannot be stopped is no worse than one that nobody tried to stop.
	_ = i.host.Stop(ctx, d.service.Unit)
	return e
}

// observe looks at everything that belongs to the engine. registered is nil when
// the daemon provably knows no such engine; asked is false when it did not answer.
func (i *installer) observe(ctx context.Context, d desired) (found service.Found, registered *api.EngineStatus, asked bool, err error) {
	if found, err = d.service.Inspect(ctx, i.host); err != nil {
		return found, nil, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	st, err := i.node.Manage().GetEngine(bounded, d.spec.Name, 0)
	switch {
	case err == nil:
		return found, st, true, nil
	case client.IsNotFound(err):
		return found, nil, true, nil
	case ctx.Err() != nil:
		return found, nil, false, err
	}
	return found, nil, false, nil
}

// uninstall leaves the host without the engine. It works from every partial
// state. note receives what a person should know.
func (i *installer) uninstall(ctx context.Context, d desired, note func(string)) error {
	found, err := d.service.Inspect(ctx, i.host)
	if err != nil {
		return err
	}
	if err := d.service.CheckOwner(ctx, i.host, found); err != nil {
		note(fmt.Sprintf("%s. Nothing of it was touched.", err))
		return nil
	}
	i.drain(ctx, d.spec.Name)
	err = i.host.WithLock(ctx, i.fleet.Writer(d.service.Owner.Resource), func(ctx context.Context, _ *host.Lock) error {
		return d.service.Remove(ctx, i.host)
	})
	if err != nil {
		i.resume(ctx, d.spec.Name)
		return err
	}
	if err := i.unregister(ctx, d.spec.Name, d.service.Owner.Resource); err != nil {
		if ctx.Err() != nil {
			return err
		}
		note(fmt.Sprintf("The engine is removed, but the KV daemon of the node did not answer (%s), so that it still has the engine's registration. "+
			"It goes with the node, or when an engine of this name is made again.", err))
	}
	return nil
}

// unregister makes the daemon forget the engine. A daemon that is provably gone has
// forgotten; one that sleeps is woken, since what it holds would come back with it.
func (i *installer) unregister(ctx context.Context, name, why string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*daemonLimit)
	defer cancel()
	state, err := i.node.Daemon(ctx)
	if err != nil {
		return err
	}
	switch state {
	case fleet.DaemonAbsent:
		return nil
	case fleet.DaemonRunning:
	case fleet.DaemonStopped:
		if err := i.node.Wake(ctx, why); err != nil {
			return err
		}
	}
	return i.node.Manage().DeleteEngine(ctx, name)
}

// resume takes a drain back after a removal that failed or was interrupted: the engine stays, so it should serve. It is
// best effort, since whatever still drains shows in the next plan.
func (i *installer) resume(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemonLimit)
	defer cancel()
	_, _ = i.node.Manage().Drain(ctx, name, false)
}

// drain lets running requests end. It is a courtesy with a limit: an engine that
// nobody can ask is stopped as it is.
func (i *installer) drain(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	m := i.node.Manage()
	st, err := m.Drain(ctx, name, true)
	for err == nil && st.Ready && st.Stats != nil && st.Stats.Running+st.Stats.Waiting > 0 {
		pause := time.NewTimer(readyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		st, err = m.GetEngine(ctx, name, 0)
	}
}
