package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/image"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/rootless"
)

// TierNR is the name of the tier that makes the hosts of tier N for an ordinary user, inside namespaces of that user's own.
const TierNR = "NR"

func tierNR() Tier {
	return Tier{
		Name: TierNR, What: "systemd-nspawn in a user namespace, with real systemd and sshd", Available: availableNR,
		Open: openNR, Enter: enterNR, Leave: leaveNR,
	}
}

func availableNR(ctx context.Context) error {
	if err := onLinux(); err != nil {
		return err
	}
	if err := rootless.Check(ctx); err != nil {
		return &MissingError{strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	if missing := missingPackages(lookup); len(missing) > 0 {
		return &MissingError{fmt.Sprintf("it needs the programs of these Debian packages: %s", strings.Join(missing, " "))}
	}
	return nil
}

// labNR is a lab of tier N seen from inside the user's namespaces. Outside, it can build only.
type labNR struct {
	*Lab
	config Config
	inside bool
}

func openNR(c Config) (Driver, error) {
	if c.place().Inside() {
		l, err := Open(c)
		return labNR{Lab: l, config: c, inside: true}, err
	}
	return labNR{Lab: &Lab{base: c.Dir, say: c.Say}, config: c}, nil
}

// Build builds the image outside: inside there is no network to fetch packages by.
func (l labNR) Build(ctx context.Context) (string, error) {
	path := image.Path(l.images(), recipe())
	if l.inside {
		return path, nil
	}
	return path, rootlessImage(ctx, l.config)
}

// Env describes the lab to users inside and outside: to both, this program's word exec leads to the hosts.
func (l labNR) Env() (plan.Env, error) {
	e, err := l.Lab.Env()
	if err != nil {
		return plan.Env{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return plan.Env{}, err
	}
	e.Tier = TierNR
	e.Enter = append(append([]string{"env"}, l.variables()...), self, "exec")
	return e, nil
}

// Here is what leads to the hosts from inside.
func (l labNR) Here() []string { return network.Enter(l.Plan.Namespace()) }

func (l *Lab) images() string { return filepath.Join(l.base, "images") }

// variables say which lab is meant to a program that is called as another user, as one inside is.
func (l *Lab) variables() []string { return Config{Dir: l.base, Name: l.Plan.Name}.variables() }

func (c Config) variables() []string {
	return []string{"MOAI_LAB_DIR=" + c.Dir, "MOAI_LAB_NAME=" + c.Name}
}

// place is where a lab of this tier lives. What is written down of it lies beside the lab's folder, which Down removes.
func (c Config) place() rootless.Place {
	return rootless.Place{Name: c.Name, File: filepath.Join(c.Dir, "places", c.Name)}
}

// enterNR returns what is put before this program and its arguments to run it inside. For the words that make something, it
// first makes the image and the namespaces.
func enterNR(ctx context.Context, c Config, word string) ([]string, error) {
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	p := c.place()
	if word == "build" || p.Inside() {
		return nil, nil
	}
	if word == "up" {
		if err := rootlessImage(ctx, c); err != nil {
			return nil, err
		}
		if err := p.Make(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	there, err := p.Exists()
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, fmt.Errorf("lab %s is not up: %w", c.Name, ErrGone)
	}
	enter, err := p.Enter(ctx, dir)
	if err != nil {
		return nil, err
	}
	return slices.Concat(enter, []string{"env", TierVariable + "=" + TierNR}, c.variables()), nil
}

// ErrGone says that the place of a lab's hosts is gone, and all that was in it.
var ErrGone = errors.New("its place is gone")

// leaveNR ends what is left when a lab is down: the namespaces, and what an ended holder left of a lab.
func leaveNR(ctx context.Context, c Config) error {
	if err := c.place().End(ctx); err != nil {
		return err
	}
	// Disks were mounts inside: what is left is the user's own.
	return os.RemoveAll(filepath.Join(c.Dir, "labs", c.Name))
}

// rootlessImage makes the hosts' image when it is not there. Its files belong to the user's range of ids.
func rootlessImage(ctx context.Context, c Config) error {
	way := image.Way{
		Make: func(ctx context.Context, r image.Recipe, target string, sources, options []string) error {
			// As an archive first: mmdebstrap's own namespace maps the ids of the range differently from ours.
			archive := target + ".tar"
			defer func() { _ = os.Remove(archive) }() // the next build would replace it
			args := r.Command(archive, sources, append(options, `APT::Sandbox::User "root"`))
			args = append([]string{args[0], "--mode=unshare", "--format=tar"}, args[1:]...)
			if _, err := program.Run(ctx, program.Command{Args: args}); err != nil {
				return err
			}
			// Device nodes cannot be made here, and systemd-nspawn makes its own.
			unpack := `mkdir "$1" && tar --extract --preserve-permissions --numeric-owner --xattrs --exclude="./dev/*" --file="$0" --directory="$1" && chmod 755 "$1"`
			_, err := program.Run(ctx, program.Command{Args: rootless.AsRoot("sh", "-c", unpack, archive, target)})
			return err
		},
		Remove: func(ctx context.Context, dir string) error {
			_, err := program.Run(ctx, program.Command{Args: rootless.AsRoot("rm", "-rf", "--one-file-system", "--", dir)})
			return err
		},
	}
	_, err := image.Ensure(ctx, filepath.Join(c.Dir, "images"), recipe(), way, c.Say)
	return err
}
