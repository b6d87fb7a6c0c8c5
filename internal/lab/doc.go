// Package lab makes local Linux hosts to try the provider on: each has a real systemd as its process 1, a real sshd as
// its door, its own disk, users, keys and addresses. The hosts h100-N and mi300x-N answer the tools of accelerators
// through stand-ins; gateway has none.
//
// # Tiers
//
// A tier is a way to make hosts; all tiers are a Driver and answer to the same commands. Tier N makes hosts with
// systemd-nspawn, as root. Tier NR makes the same hosts with the same code for an ordinary user: this program enters namespaces
// of that user's own first (package rootless), and is root there. Tier G needs neither systemd-nspawn nor an image nor
// subordinate ids: its hosts are namespaces over the machine's own programs, with an SSH server and a service manager of the
// lab's (packages userns and guest). It proves less: no real systemd, no users apart, no sandbox of units. Choose says which tier a lab is, or would be, and why no better one.
//
// # Layout
//
// Package plan decides names, users and addresses; image, network, machine and manifest each do one thing and keep what
// they decide (a recipe, a script, a command line, a comparison) apart from running it; this package puts them
// together. State lies under one folder: images/ is shared, labs/NAME/ is one lab.
//
// # Invariants
//
// Each was paid for.
//
//   - A host lives in a cgroup of its own (v2), and is ended through cgroup.kill: killing systemd-nspawn alone leaves
//     the host's systemd running. Its keeper is born in that cgroup, so there is no moment at which Down could miss it.
//   - With --keep-unit, nspawn ends with status 133 when a host asks for a reboot; the keeper boots it again.
//   - nspawn is started under nsenter --net. Its own --network-namespace-path shows the machine's interfaces in the
//     host's /sys/class/net.
//   - A power cut also takes the links down: the namespace's kernel would go on answering pings and resetting
//     connections for a host that is gone.
//   - SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1: hosts see a pure cgroup v2 tree on hybrid machines too. There, nspawn
//     mirrors its cgroup in the v1 hierarchy named systemd, which is removed with the rest, and /proc/PID/cgroup in a
//     host has lines of v1 hierarchies before the one that counts, "0::/…".
//   - Limits of units (MemoryMax and the like) bind only where the machine has the controllers in v2; where it has
//     not, systemd accepts and ignores them. Tests ask `systemctl show`, not /proc/PID/limits.
//   - Nothing is added to the root network namespace, and no route leads out: cables are born with both ends in the
//     lab's namespaces. Addresses of hosts mean something there only; elsewhere they lead to somebody else's machines.
//   - Partitions go by hardware address in a bridge table that hosts cannot see, so that ARP is cut too.
//   - In a script for ip, a link's name stands behind `dev`: `link set a up` reads `a` as the start of `address`.
//   - /etc/machine-id, host key and user key are each host's own; no two hosts share a user's key.
//   - The image has no Python: a provider that counts on it fails here.
//   - The real sshd refuses some of many dials at once (MaxStartups 10:30:100) and non-root logins before the boot is
//     done. Ready therefore waits for a login that may use sudo, not for a banner, and then for systemd's own verdict.
//   - The plan is on disk before anything is made by it, and Make starts by taking away what an interrupted one left:
//     Up and Down work from any half state. What belongs to the lab is known by name, so nothing else is touched:
//     cgroup moai-lab-NAME, namespaces NAME-*, mounts under labs/NAME. A lab's name has no dash, so no lab's prefix is
//     another's.
//   - nspawn reads limits and controllers off process 1. Where that is not ours to look at (tier NR), each host's nspawn is
//     process 1 of a process namespace of its own, and hosts' processes are one level further down.
//   - Tier NR builds the image outside, where there is a network, and boots hosts inside, where there is none.
//   - A folder is deleted only when nothing is mounted below it.
package lab
