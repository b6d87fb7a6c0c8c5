// Package guest is what runs inside a host of tier G: a host that is no more than namespaces, made without root. It builds
// the host's root, is its process 1, its SSH server, its service manager (package supervisor), and, called by their names,
// the tools that a host must have and that would reach beyond it or need more than one user: systemctl, journalctl, sudo,
// useradd, chown and their kin.
//
// # What keeps the developer's machine safe
//
//   - The root is a tmpfs of the host's own. Of the machine it shows /usr and the folders of programs and libraries, bound
//     read-only, and a few device nodes; the rest of the machine is not there: its root was let go of with pivot_root.
//   - The user that is root inside is an ordinary user outside, in a user namespace: what the kernel keeps for the machine's
//     root (sysctls, mounts, clocks) is refused.
//   - There is no /sys, and /proc is that of the host's own processes.
//
// # One user
//
// An ordinary user can map one user id, his own, without help. So every account of a host is the same one to the kernel;
// /etc/passwd numbers them apart all the same. The host's chown and stat keep and tell owners by name, through the server,
// and `id -u NAME` tells the truth: 0. Nothing here keeps one account from another's files: that needs a better tier.
//
// # Which unit a process is of
//
// The daemon asks /proc/PID/cgroup which unit a process belongs to. Without a cgroup of one's own, the server, which is
// who starts units and so knows, lays that file over /proc/PID/cgroup for each process of a unit. What the daemon checks
// is as in production; who vouches for it is the lab.
package guest

// Names that the lab's program goes by inside a host.
const (
	InitName  = "moai-lab-host"  // process 1; the host's name follows after a dash
	serveName = "moai-lab-serve" // SSH server and service manager
	execName  = "moai-lab-exec"  // becomes a unit's or a session's program
)

// Program is where a host has the lab's program.
const Program = "/usr/local/lib/moai-lab/lab"

// Spec is a host, as its process 1 is told on its standard input.
type Spec struct {
	Lab       string            `json:"lab"`
	Host      string            `json:"host"`
	User      string            `json:"user"`      // the account that may log in
	Root      string            `json:"root"`      // the tmpfs that is to be its root
	Addresses []string          `json:"addresses"` // with prefix length, of eth0 and eth1
	Ports     []string          `json:"ports"`     // the other ends of their cables
	MACs      []string          `json:"macs"`
	SSHPort   int               `json:"ssh_port"`
	Files     []File            `json:"files"`
	Links     map[string]string `json:"links"`
}

// File is a file that makes a host itself.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Mode    uint32 `json:"mode"`
	Owned   bool   `json:"owned"` // by the host's user instead of root
}
