package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
)

// hostFault is something wrong with hosts that only an apply can meet.
type hostFault struct {
	name  string
	hosts []string
	begin string // shell, as root
	end   string
	want  []string // in the errors of the apply
}

// hostFaults are met one after the other by applies onto fresh hosts, in the
// order in which an apply gets to them: each leaves what it made for the next.
var hostFaults = []hostFault{
	{
		name: "sudo is refused", hosts: []string{PrefillHost},
		// What undoes it must still be allowed.
		begin: "echo 'ubuntu ALL=(ALL) NOPASSWD: /usr/bin/tee /etc/sudoers.d/ubuntu' >/etc/sudoers.d/ubuntu",
		end:   "",
		want:  []string{"moai_node.h100", "sudo", "sudoers", "ubuntu"},
	},
	{
		name: "the marker of another fleet", hosts: []string{PrefillHost},
		begin: `mkdir /etc/moai && echo '{"fleet":"elsewhere","resource":"moai_node.a","writer":"ops"}' >/etc/moai/owner.json`,
		end:   "rm -r /etc/moai",
		want:  []string{"moai_node.h100", "elsewhere", "/etc/moai/owner.json"},
	},
	{
		name: "a marker that nobody can read", hosts: []string{PrefillHost},
		begin: `mkdir /etc/moai && echo 'not ours' >/etc/moai/owner.json`,
		end:   "rm -r /etc/moai",
		want:  []string{"moai_node.h100", "/etc/moai/owner.json"},
	},
	{
		name: "no space", hosts: []string{DecodeHost},
		begin: "mkdir -p /mnt/opt && mount --bind /opt /mnt/opt && mount -t tmpfs -o size=2m tmpfs /opt",
		end:   "umount /opt && umount /mnt/opt && rmdir /mnt/opt",
		want:  []string{"moai_node.mi300x", "/opt/moai/bin", "space"},
	},
	{
		name: "the daemon's port is taken", hosts: []string{DecodeHost},
		begin: "systemd-run --quiet --collect --unit=squatter systemd-socket-activate -l 0.0.0.0:9610 /bin/cat && " + listening(9610),
		end:   "systemctl stop squatter",
		want:  []string{"moai_node.mi300x", "9610", "in use"},
	},
	{
		// Their keys decide which of the two connects to the other.
		name: "a firewall refuses the daemon's port", hosts: []string{PrefillHost, DecodeHost},
		begin: "nft add table inet firewall && nft add chain inet firewall in '{ type filter hook input priority 0; }' && " +
			"nft add rule inet firewall in tcp dport 9610 reject with tcp reset",
		end:  "nft delete table inet firewall",
		want: []string{"moai_kv_link.main", "9610", "refused"},
	},
	{
		name: "the router's port is taken", hosts: []string{GatewayHost},
		begin: "systemd-run --quiet --collect --unit=squatter systemd-socket-activate -l 0.0.0.0:8000 /bin/cat && " + listening(8000),
		end:   "systemctl stop squatter",
		want:  []string{"moai_router.front", "8000", "in use"},
	},
}

// listening is shell that waits for a listener.
func listening(port int) string {
	return fmt.Sprintf("for i in $(seq 100); do ss -Hltn sport = :%d | grep -q . && exit 0; sleep 0.1; done; exit 1", port)
}

// asRoot runs shell on a host.
func (r *labRun) asRoot(ctx context.Context, host, script string) error {
	_, err := ssh(ctx, r.env, host, strings.NewReader(script), "sudo", "-n", "sh", "-eu", "-s")
	return err
}

// faultyHosts applies onto hosts with one thing wrong at a time. The error says
// what and where; what was made before it stays, and the next apply goes on.
func (r *labRun) faultyHosts(t *testing.T) {
	ctx := t.Context()
	quiet := r.tf
	quiet.Out = io.Discard
	for _, f := range hostFaults {
		t.Run(f.name, func(t *testing.T) {
			if f.end == "" && r.env.Tier == lab.TierG {
				t.Skip("the sudo of hosts of tier G is the lab's own and refuses nobody")
			}
			for _, host := range f.hosts {
				if err := r.asRoot(ctx, host, f.begin); err != nil {
					t.Fatal(err)
				}
			}
			out, err := quiet.Apply(ctx)
			for _, host := range f.hosts {
				if err := r.endFault(ctx, host, f.end); err != nil {
					t.Fatal(err)
				}
			}
			if err == nil {
				t.Fatalf("the apply succeeded:\n%s", out)
			}
			said := errorsOf(err)
			for _, want := range f.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in the errors:\n%s", want, said)
				}
			}
			t.Logf("the operator is told: %s", said)
		})
	}
	if _, err := quiet.Apply(ctx); err != nil {
		t.Fatalf("the apply after the faults: %v", err)
	}
	if changes, out, err := quiet.Plan(ctx); err != nil || changes {
		t.Errorf("the plan after the faults is not empty: %v\n%s", err, out)
	}
	if out, err := quiet.Destroy(ctx); err != nil {
		t.Fatalf("destroy: %v\n%s", err, out)
	}
}

// endFault undoes a fault. What refuses sudo is undone by the one command that it
// allows.
func (r *labRun) endFault(ctx context.Context, host, script string) error {
	if script != "" {
		return r.asRoot(ctx, host, script)
	}
	_, err := ssh(ctx, r.env, host, strings.NewReader("ubuntu ALL=(ALL) NOPASSWD:ALL\n"), "sudo", "-n", "/usr/bin/tee", "/etc/sudoers.d/ubuntu")
	return err
}
