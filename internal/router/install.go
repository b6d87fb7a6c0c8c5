package router

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// putBackLimit is how long a router that was changed in vain may take to run as before.
const putBackLimit = time.Minute

// stopLimit bounds the stop of a router that does not come up: its unit's own limit (45 s) and a connection.
const stopLimit = time.Minute

// installer does things for one router on one machine.
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

// install brings the host to what d says, and the nodes of the pairs to trust it,
// and returns the router's public key. began is called once, after the first
// change. left are nodes of the pairs as they were.
func (i *installer) install(ctx context.Context, s spec, d desired, left []engineref.Ref, began func()) (key string, err error) {
	err = i.host.WithLock(ctx, i.fleet.Writer(d.service.Owner.Resource), func(ctx context.Context, _ *host.Lock) error {
		key, err = i.converge(ctx, s, d, left, began)
		return err
	})
	return key, err
}

func (i *installer) converge(ctx context.Context, s spec, d desired, left []engineref.Ref, began func()) (string, error) {
	if err := service.RequireNode(ctx, i.host, i.fleet.Name()); err != nil {
		return "", err
	}
	found, err := d.service.Inspect(ctx, i.host)
	if err != nil {
		return "", err
	}
	if err := d.service.CheckOwner(ctx, i.host, found); err != nil {
		return "", err
	}
	hadKey, err := i.hasKey(ctx, s.name)
	if err != nil {
		return "", err
	}
	restart := found.Unit.Active() && (!hadKey || d.service.Stale(found, true))
	former := d.service
	if restart {
		if former, err = d.service.Former(ctx, i.host); errors.Is(err, fs.ErrNotExist) {
			former, err = d.service, nil // half of it is gone: there is nothing to put back
		}
		if err != nil {
			return "", err
		}
	}
	began()
	if restart {
		if err := d.service.Begin(ctx, i.host); err != nil {
			return "", err
		}
	}
	if err := d.service.Install(ctx, i.host); err != nil {
		return "", err
	}
	if err := i.host.MakeDir(ctx, stateDir(s.name), 0o700, userDaemon, groupMoai); err != nil {
		return "", err
	}
	key, err := i.publicKey(ctx, s.name)
	if err != nil {
		return "", err
	}
	// The nodes trust the key before the router starts, so that its first connection is not refused.
	if err := i.pin(ctx, s, key, left); err != nil {
		return "", err
	}
	if err := d.service.Start(ctx, i.host, restart); err != nil {
		return "", &startError{unit: d.service.Unit, listen: s.listen, err: err, before: i.putBack(ctx, former, d.service)}
	}
	if restart || found.Pending.Exists() {
		return key, d.service.Finish(ctx, i.host)
	}
	return key, nil
}

// putBack has a router that was changed run as before, and says what came of it. One that cannot run as before, or was not
// there before, is stopped: systemd would start it over and over.
func (i *installer) putBack(ctx context.Context, former, failed service.Service) string {
	if former.UnitText == failed.UnitText && bytes.Equal(former.Config.Content, failed.Config.Content) {
		return i.stop(ctx, failed, "The unit was stopped, so that it does not start over and over")
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackLimit)
	defer cancel()
	if err := former.PutBack(bounded, i.host); err != nil {
		return i.stop(ctx, failed, "The router as it was before could not be started again either: it is stopped")
	}
	return "The router runs as it did before the change"
}

// stop stops a unit that does not come up, and gives done, or says that it does not stop either.
func (i *installer) stop(ctx context.Context, s service.Service, done string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := i.host.Stop(ctx, s.Unit); err != nil {
		return fmt.Sprintf("The unit could not be stopped (%s), and systemd goes on starting it: stop it by hand (systemctl stop %s)", err, s.Unit)
	}
	return done
}

func (i *installer) hasKey(ctx context.Context, name string) (bool, error) {
	files, _, err := i.host.Inspect(ctx, []string{keyPath(name)}, nil)
	if err != nil {
		return false, err
	}
	return files[0].Exists(), nil
}

// publicKey has the router's user make the key, unless there is one, and returns
// its public half.
func (i *installer) publicKey(ctx context.Context, name string) (string, error) {
	out, err := i.host.Exec(ctx, "runuser", "-u", userDaemon, "--", host.MoaidPath, "keygen", "--key", keyPath(name))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(out))
	if !validKey(key) {
		return "", fmt.Errorf("%s: moaid keygen printed %.80q, which is no public key", i.host, key)
	}
	return key, nil
}

// validKey checks the text form of a public key.
func validKey(s string) bool {
	rest, ok := strings.CutPrefix(s, "ed25519:")
	b, err := base64.StdEncoding.Strict().DecodeString(rest)
	return ok && err == nil && len(b) == ed25519.PublicKeySize
}

// uninstall leaves the host without the router. It works from every partial state.
func (i *installer) uninstall(ctx context.Context, s spec, d desired, note func(string)) error {
	found, err := d.service.Inspect(ctx, i.host)
	if err != nil {
		return err
	}
	if err := d.service.CheckOwner(ctx, i.host, found); err != nil {
		note(fmt.Sprintf("%s. Nothing of it was touched.", err))
		return nil
	}
	return i.host.WithLock(ctx, i.fleet.Writer(d.service.Owner.Resource), func(ctx context.Context, _ *host.Lock) error {
		if err := d.service.Remove(ctx, i.host); err != nil {
			return err
		}
		_, err := i.host.RemoveTree(ctx, stateDir(s.name))
		return err
	})
}

// startError says that the router does not come up.
type startError struct {
	unit, listen string
	err          error
	before       string // what became of the router as it was; a sentence
}

// Error implements error.
func (e *startError) Error() string { return e.err.Error() }

// Unwrap implements the protocol of errors.Is.
func (e *startError) Unwrap() error { return e.err }

// Explain implements diagnose.Explained.
func (e *startError) Explain() (summary, fix string) {
	summary, fix = "Router does not come up", "Its last log lines are below. Correct the cause and apply again"
	if e.busy() {
		summary, fix = "Router cannot listen", fmt.Sprintf("Something else on the node listens on %s already, or the node has no such address: choose another one", e.listen)
	}
	return summary, fix + ". " + e.before
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *startError) DiagnosticAttribute() string {
	if e.busy() {
		return "listen"
	}
	return "node"
}

func (e *startError) busy() bool {
	return strings.Contains(e.err.Error(), "listen for clients") || strings.Contains(e.err.Error(), "address already in use")
}
