// Package machine makes and powers one host: a disk (overlay on a size-limited tmpfs), what makes it itself (users,
// keys, names, stand-ins), and a systemd-nspawn container under a keeper in a cgroup of its own.
package machine

import (
	_ "embed"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// keeperScript boots the host again whenever it asks for a reboot. It is a shell script and not this program again:
// it outlives the command that started it, which may be a test binary or one that `go run` deletes.
//
//go:embed keeper.sh
var keeperScript string

// spawnEnv is what systemd-nspawn is told through its environment: the host sees a pure cgroup v2 tree, as production
// hosts do, also where the machine itself has a hybrid one; and its net.* sysctls are real, and its own.
var spawnEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1",
	"SYSTEMD_NSPAWN_API_VFS_WRITABLE=network",
}

// spawnCommand renders the command that boots a host. The namespace is entered by nsenter: with nspawn's own
// --network-namespace-path the host's /sys/class/net shows the machine's interfaces.
func spawnCommand(p plan.Plan, h plan.Host, root string) []string {
	return network.Enter(p.HostNamespace(h.Name),
		"systemd-nspawn", "--quiet", "--boot", "--directory="+root,
		"--machine="+p.HostNamespace(h.Name), "--hostname="+h.Name, "--uuid="+h.UUID,
		"--register=no", "--keep-unit", // no machined, D-Bus or systemd needed on the machine
		"--capability=CAP_NET_ADMIN,CAP_IPC_LOCK,CAP_SYSLOG",
		"--link-journal=no", "--resolv-conf=off", "--timezone=off")
}

// ownProcesses is put before the command that boots a host where this machine's process 1 is not ours to look at, as in a
// user namespace: nspawn reads limits and controllers off process 1, and gets a process namespace in which it is that itself.
var ownProcesses = "unshare --pid --fork --kill-child --mount-proc --"

// nested reports whether hosts get a process namespace more than their own, by ownProcesses.
func nested() bool {
	var limit unix.Rlimit
	return unix.Prlimit(1, unix.RLIMIT_NPROC, nil, &limit) != nil
}

// keeperEnv is the environment of the keeper.
func keeperEnv() []string {
	if nested() {
		return append(slices.Clip(spawnEnv), "OWN_PROCESSES="+ownProcesses)
	}
	return spawnEnv
}

// keeperCommand renders the keeper for a boot command. box is the cgroup in which the host runs.
func keeperCommand(name, box string, boot []string) []string {
	return append([]string{"/bin/sh", "-c", keeperScript, fmt.Sprintf("moai-lab-keeper-%s", name), box}, boot...)
}
