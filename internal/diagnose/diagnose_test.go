package diagnose

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

type ownError struct{}

func (ownError) Error() string                  { return "raw" }
func (ownError) Explain() (summary, fix string) { return "Own summary", "Own fix" }
func (ownError) DiagnosticAttribute() string    { return "expect.gpu" }

func TestError(t *testing.T) {
	coords := fleet.Coordinates{Name: "h100-0", Host: "192.0.2.11", Profile: "nvidia"}
	own := Subject{Doing: "install moaid", Coordinates: coords}
	passed := Subject{Doing: "start the engine", Coordinates: coords, Node: path.Root("node"), At: path.Root("name")}
	sshErr := func(class error, step ssh.Step, attr, fix string) error {
		return fmt.Errorf("probe: %w", &ssh.Error{Class: class, Target: "ops@192.0.2.11:22", Step: step, Attribute: attr, Fix: fix, Err: errors.New("cause")})
	}
	for _, c := range []struct {
		name    string
		subject Subject
		err     error
		summary string
		at      path.Path
		detail  []string
	}{
		{"host key", own, sshErr(ssh.ErrHostKey, ssh.StepHandshake, "ssh.host_key", "Compare it"), "SSH host key not accepted", path.Root("ssh"),
			[]string{"Compare it.", "cause", "Node: h100-0", "Host: 192.0.2.11", "Port: 22", "Step: handshake", "Attribute: ssh.host_key"}},
		{"host key in known_hosts", own, sshErr(ssh.ErrHostKey, ssh.StepHandshake, "ssh.known_hosts", ""), "SSH host key not accepted", path.Root("ssh"), []string{"Attribute: ssh.host_key"}},
		{"passed node", passed, sshErr(ssh.ErrUnreachable, ssh.StepConnect, "ssh.host", ""), "Host unreachable", path.Root("node"), []string{"Attribute: node.ssh.host"}},
		{"credentials name the profile", own, sshErr(ssh.ErrAuth, ssh.StepAuthenticate, "ssh.private_key", "Check it"), "SSH login refused", path.Root("ssh"),
			[]string{`ssh_profiles["nvidia"].private_key`, "Check it.", "Attribute: ssh.profile"}},
		{"bastion", own, sshErr(ssh.ErrUnreachable, ssh.StepConnect, "ssh.bastions[0].host", ""), "Host unreachable", path.Root("ssh"), []string{`ssh_profiles["nvidia"].bastions[0].host`}},
		{"host key in an import", Subject{Doing: "read the machine", Importing: true}, sshErr(ssh.ErrHostKey, ssh.StepHandshake, "ssh.host_key", "Fix it"),
			"SSH host key not accepted", path.Root("ssh"), []string{"Fix it. In an import", "add ,host_key=<"}},
		{"interrupted", own, sshErr(ssh.ErrInterrupted, ssh.StepRun, "", ""), "Interrupted", path.Empty(), nil},
		{"unknown profile", own, &fleet.ProfileError{Profile: "x", Known: []string{"amd"}}, "Unknown SSH profile", path.Root("ssh"), []string{`"x"`, "amd", "Attribute: ssh.profile"}},
		{"another machine", own, &fleet.IdentityError{Name: "h100-0", Want: "1", Got: "2"}, "Another machine answers", path.Root("ssh"), []string{"Attribute: ssh.host"}},
		{"daemon", passed, &client.Error{Method: "PUT", Path: "/v1/links/x", Status: 400, API: api.Error{Code: "bad_name", Message: "no such name", Attribute: "peer"}},
			"Could not start the engine", path.Root("name"), []string{"no such name", "Code: bad_name", "Daemon's attribute: peer"}},
		{"own", own, fmt.Errorf("wrapped: %w", ownError{}), "Own summary", path.Root("expect"), []string{"Could not install moaid. Own fix.", "wrapped: raw", "Attribute: expect.gpu"}},
		{"anything", own, errors.New("odd"), "Could not install moaid", path.Empty(), []string{"odd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Error(c.subject, c.err)
			at := path.Empty()
			if p, ok := d.(diag.DiagnosticWithPath); ok {
				at = p.Path()
			}
			if d.Summary() != c.summary || !at.Equal(c.at) {
				t.Errorf("summary %q at %s, want %q at %s", d.Summary(), at, c.summary, c.at)
			}
			for _, want := range c.detail {
				if n := strings.Count(d.Detail(), want); n != 1 {
					t.Errorf("detail has %q %d times, want once:\n%s", want, n, d.Detail())
				}
			}
			if w := Warning(c.subject, c.err, "Kept."); w.Severity() != diag.SeverityWarning || !strings.HasPrefix(w.Detail(), "Kept.\n\n") {
				t.Errorf("warning is %v: %s", w.Severity(), w.Detail())
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	s := Subject{Coordinates: fleet.Coordinates{Name: "h100-0", Host: "192.0.2.11", Profile: "nvidia"}}
	const labels = "Why.\n\nNode: h100-0\nHost: 192.0.2.11\nPort: 22\nSSH profile: nvidia"
	if d := Refusal(s, "Sum", "Why."); d.Summary() != "Sum" || d.Detail() != labels || d.Severity() != diag.SeverityError {
		t.Errorf("%+v", d)
	}
	if d := Notice(s, "Sum", "Why."); d.Detail() != labels || d.Severity() != diag.SeverityWarning {
		t.Errorf("%+v", d)
	}
	s.At = path.Root("node").AtName("ssh")
	for _, d := range []diag.Diagnostic{Refusal(s, "Sum", "Why."), Notice(s, "Sum", "Why.")} {
		at, ok := d.(diag.DiagnosticWithPath)
		if !ok || !at.Path().Equal(path.Root("node")) || d.Detail() != labels+"\nAttribute: node.ssh" {
			t.Errorf("%+v", d)
		}
	}
	if d := Refusal(Subject{}, "Sum", "Why."); d.Detail() != "Why." {
		t.Errorf("%+v", d)
	}
}
