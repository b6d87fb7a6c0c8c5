package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
)

// readyPoll is how often a starting daemon is asked for its status.
const readyPoll = 300 * time.Millisecond

// journalLines are shown of a daemon that does not come up.
const journalLines = 20

// installer does things to one machine.
type installer struct {
	fleet   *fleet.Fleet
	node    *fleet.Node
	host    *host.Host
	payload *payload.Source
	name    string
	fresh   bool // nothing is in the state: what is there without a marker is somebody else's
}

// openInstaller reaches the machine and makes sure that it is the expected one.
func openInstaller(ctx context.Context, f *fleet.Fleet, n *fleet.Node, p *payload.Source) (*installer, error) {
	h, err := n.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &installer{fleet: f, node: n, host: h, payload: p, name: n.Coordinates().Name}, nil
}

func (i *installer) lockOwner() string { return i.fleet.Writer(resourceName(i.name)) }

// observe looks at everything that belongs to the node. daemon tells whether to ask the daemon too.
func (i *installer) observe(ctx context.Context) (observed, error) {
	files, units, err := i.host.Inspect(ctx, []string{host.MoaidPath, unitPath, configPath, keyPath}, []string{unitName})
	if err != nil {
		return observed{}, err
	}
	o := observed{binary: files[0], unit: files[1], config: files[2], key: files[3], show: units[0]}
	if o.marker, err = i.host.ReadMarker(ctx); err != nil {
		return observed{}, err
	}
	if o.show.Active() {
		asked, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if s, err := i.node.Manage().Status(asked); err == nil {
			o.daemon = s
		} else if ctx.Err() != nil {
			return observed{}, err
		}
	}
	return o, nil
}

// install brings the machine to what it shall be and returns the running daemon's status. claimed is called once, after
// the first change to the machine.
func (i *installer) install(ctx context.Context, arch string, claimed func()) (*api.Status, string, error) {
	bin, err := i.payload.For(arch)
	if err != nil {
		return nil, "", err
	}
	d, err := desire(i.fleet.Name(), i.node.Coordinates())
	if err != nil {
		return nil, "", err
	}
	if err := i.claim(ctx); err != nil {
		return nil, "", err
	}
	var running *api.Status
	err = i.host.WithLock(ctx, i.lockOwner(), func(ctx context.Context, _ *host.Lock) error {
		running, err = i.converge(ctx, bin, d, claimed)
		return err
	})
	return running, bin.Version(), err
}

func (i *installer) converge(ctx context.Context, bin payload.Binary, d desired, claimed func()) (*api.Status, error) {
	// Again, under the lock: whoever held it before may have claimed the machine.
	if err := i.claim(ctx); err != nil {
		return nil, err
	}
	before, err := i.observe(ctx)
	if err != nil {
		return nil, err
	}
	own := owner(i.fleet.Name(), i.name)
	created, err := i.creates(ctx, before.marker)
	if err != nil {
		return nil, err
	}
	marker := host.Marker{Fleet: own.Fleet, Resource: own.Resource, Writer: own.Writer, MoaidSHA256: bin.SHA256, Created: created}
	restart := before.binary.SHA256 != bin.SHA256 || before.judge(own.Fleet, i.name, d).needsRestart()
	// The marker comes before anything else, so that whatever happens next, what is there has an owner. While a change is
	// under way it has no hash: a run that ends between writing a file and restarting the daemon leaves a trace.
	begun := marker
	if restart {
		begun.MoaidSHA256 = ""
	}
	if err := i.host.WriteMarker(ctx, begun); err != nil {
		return nil, err
	}
	claimed()
	for _, u := range users() {
		if _, err := i.host.EnsureUser(ctx, u); err != nil {
			return nil, err
		}
	}
	if err := i.putFiles(ctx, bin, d, before); err != nil {
		return nil, err
	}
	if err := i.start(ctx, restart, before); err != nil {
		return nil, err
	}
	running, err := i.waitReady(ctx, bin)
	if err != nil {
		return nil, err
	}
	return running, i.host.WriteMarker(ctx, marker)
}

// creates are the users and groups that are made for the node, by this run or by earlier ones.
func (i *installer) creates(ctx context.Context, m *host.Marker) ([]host.Account, error) {
	missing, err := i.host.Missing(ctx, accounts()...)
	if err != nil {
		return nil, err
	}
	created := missing
	if m != nil {
		created = append(created, m.Created...)
	}
	slices.Sort(created)
	return slices.Compact(created), nil
}

// putFiles writes binary, configuration and unit, as far as they differ.
func (i *installer) putFiles(ctx context.Context, bin payload.Binary, d desired, before observed) error {
	files := []host.File{d.config, d.unit}
	if before.binary.SHA256 != bin.SHA256 || before.binary.Mode != 0o755 || before.binary.Owner != "root" {
		content, err := bin.Content()
		if err != nil {
			return err
		}
		files = append(files, host.File{Path: host.MoaidPath, Content: content, Mode: 0o755})
	}
	for _, f := range files {
		if _, err := i.host.PutFile(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// start makes the daemon run what is on disk. A daemon that already does is left alone.
func (i *installer) start(ctx context.Context, restart bool, before observed) error {
	if restart {
		if err := i.host.DaemonReload(ctx); err != nil {
			return err
		}
	}
	if restart && before.show.Found() {
		// A start limit that was hit must not hold the healed service back; that there is none to forget is no failure.
		_ = i.host.ResetFailed(ctx, unitName)
	}
	if restart && before.show.Active() {
		if err := i.host.Restart(ctx, unitName); err != nil {
			return err
		}
	}
	return i.host.EnableNow(ctx, unitName)
}

// waitReady asks the daemon until it answers as the binary that was installed, or ctx ends.
func (i *installer) waitReady(ctx context.Context, bin payload.Binary) (*api.Status, error) {
	var last error
	for {
		asked, cancel := context.WithTimeout(ctx, 10*time.Second)
		s, err := i.node.Manage().Status(asked)
		cancel()
		switch {
		case err == nil && s.Node == i.name && (s.ContentSHA256 == "" || s.ContentSHA256 == bin.SHA256):
			return s, nil
		case err == nil:
			last = fmt.Errorf("the daemon answers as node %q with content %s, not as node %q with content %s", s.Node, payload.Version(s.ContentSHA256), i.name, bin.Version())
		case ctx.Err() == nil || last == nil:
			last = err
		}
		timer := time.NewTimer(readyPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, i.notReady(ctx, errors.Join(last, ctx.Err()))
		}
		if _, units, err := i.host.Inspect(ctx, nil, []string{unitName}); err == nil && units[0].ActiveState == "failed" {
			return nil, i.notReady(ctx, fmt.Errorf("%s failed: %s", unitName, units[0].Result))
		}
	}
}

// notReady adds the daemon's last words.
func (i *installer) notReady(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	said, jerr := i.host.JournalTail(ctx, unitName, journalLines)
	if jerr != nil || strings.TrimSpace(said) == "" {
		return &notReadyError{err: err}
	}
	return &notReadyError{err: fmt.Errorf("%w\nIts last words:\n%s", err, strings.TrimSpace(said))}
}

type notReadyError struct{ err error }

// Error implements error.
func (e *notReadyError) Error() string { return e.err.Error() }

// Unwrap implements the protocol of errors.Is.
func (e *notReadyError) Unwrap() error { return e.err }

// Explain implements diagnose.Explained.
func (e *notReadyError) Explain() (summary, fix string) {
	return "KV daemon does not come up", "moaid is installed and " + unitName + " was started, but it does not answer. Look at its last words, correct the cause and apply again"
}
