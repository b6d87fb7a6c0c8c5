package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

// namespaces is where iproute2 keeps named network namespaces.
const namespaces = "/run/netns"

// Path is the file by which a named namespace is entered.
func Path(namespace string) string { return filepath.Join(namespaces, namespace) }

// Namespaces lists the named network namespaces that belong to the lab.
func Namespaces(p plan.Plan) ([]string, error) {
	entries, err := os.ReadDir(namespaces)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var own []string
	for _, e := range entries {
		if p.Owns(e.Name()) {
			own = append(own, e.Name())
		}
	}
	return own, nil
}

// Exists reports whether the named namespace can be entered: after a crash of the machine its file may be left.
func Exists(namespace string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(Path(namespace), &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// Make makes the lab's namespace with its bridges and the empty filter, in place of what is there.
func Make(ctx context.Context, p plan.Plan) error {
	if err := Remove(ctx, p.Namespace()); err != nil {
		return err
	}
	if _, err := program.Run(ctx, program.Command{Args: []string{"ip", "netns", "add", p.Namespace()}}); err != nil {
		return err
	}
	if err := batch(ctx, p.Namespace(), labScript()); err != nil {
		return err
	}
	return nft(ctx, p, filter)
}

// Attach makes a host's namespace and lays its cables, in place of what is there.
func Attach(ctx context.Context, p plan.Plan, h plan.Host) error {
	ns := p.HostNamespace(h.Name)
	if err := Remove(ctx, ns); err != nil {
		return err
	}
	if _, err := program.Run(ctx, program.Command{Args: []string{"ip", "netns", "add", ns}}); err != nil {
		return err
	}
	for _, n := range plan.Nets {
		// The end of a cable of a namespace that was just removed can outlive it for a moment.
		_, _ = program.Run(ctx, program.Command{Args: []string{"ip", "-n", p.Namespace(), "link", "delete", "dev", h.Port(n)}})
		if _, err := program.Run(ctx, program.Command{Args: cable(p, h, n)}); err != nil {
			return err
		}
	}
	if err := batch(ctx, ns, hostScript(h)); err != nil {
		return err
	}
	return batch(ctx, p.Namespace(), portScript(h))
}

// Links sets a host's cables up or down at the bridge. A host without power must also lose its links: its namespace's
// kernel would go on answering pings and resetting connections.
func Links(ctx context.Context, p plan.Plan, h plan.Host, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return batch(ctx, p.Namespace(), linkScript(h, state))
}

// Cut drops all packets between every two of the hosts on the given networks; a single host is cut off from everything.
func Cut(ctx context.Context, p plan.Plan, hosts []plan.Host, nets []plan.Net) error {
	return nft(ctx, p, cutScript(false, hosts, nets))
}

// Heal takes back what Cut did for the same hosts and networks.
func Heal(ctx context.Context, p plan.Plan, hosts []plan.Host, nets []plan.Net) error {
	return nft(ctx, p, cutScript(true, hosts, nets))
}

// Remove deletes a named namespace; one that is not there is no error.
func Remove(ctx context.Context, namespace string) error {
	if _, err := os.Lstat(Path(namespace)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, err := program.Run(ctx, program.Command{Args: []string{"ip", "netns", "delete", namespace}})
	return err
}

// Tidy unmounts iproute2's folder of namespaces when it is empty: iproute2 mounts it anew when it needs it.
func Tidy() {
	if entries, err := os.ReadDir(namespaces); err == nil && len(entries) == 0 {
		_ = unix.Unmount(namespaces, 0) // not mounted, or taken into use in between: either is well
	}
}

// Dial connects to a TCP address from inside a named namespace.
func Dial(ctx context.Context, namespace, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread has changed its namespace for good: it is not unlocked, so the runtime ends it with this goroutine.
		runtime.LockOSThread()
		fd, err := unix.Open(Path(namespace), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- result{nil, fmt.Errorf("network namespace %s: %w", namespace, err)}
			return
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		if closeErr := unix.Close(fd); err == nil {
			err = closeErr
		}
		if err != nil {
			done <- result{nil, fmt.Errorf("enter network namespace %s: %w", namespace, err)}
			return
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp4", address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// Enter returns args run inside a namespace. nsenter and not `ip netns exec`: that one also remounts /sys.
func Enter(namespace string, args ...string) []string {
	return slices.Concat([]string{"nsenter", "--net=" + Path(namespace), "--"}, args)
}

func batch(ctx context.Context, namespace, script string) error {
	_, err := program.Run(ctx, program.Command{Args: []string{"ip", "-n", namespace, "-batch", "-"}, Stdin: script})
	return err
}

func nft(ctx context.Context, p plan.Plan, script string) error {
	_, err := program.Run(ctx, program.Command{Args: Enter(p.Namespace(), "nft", "-f", "-"), Stdin: script})
	return err
}
