package diagnose

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// sshSummaries are in order of precedence: a dropped connection may wrap a timeout.
var sshSummaries = []struct {
	class   error
	summary string
}{
	{ssh.ErrInterrupted, "Interrupted"},
	{ssh.ErrHostKey, "SSH host key not accepted"},
	{ssh.ErrAuth, "SSH login refused"},
	{ssh.ErrConfig, "SSH settings are wrong"},
	{ssh.ErrSudo, "Cannot become root"},
	{ssh.ErrDropped, "SSH connection dropped"},
	{ssh.ErrCommand, "Command on the host failed"},
	{ssh.ErrOutput, "Too much output from the host"},
	{ssh.ErrTimeout, "Host did not answer in time"},
	{ssh.ErrUnreachable, "Host unreachable"},
	{ssh.ErrClosed, "SSH connections are closed"},
}

func sshText(e *ssh.Error, s Subject) (summary, fix string, at path.Path) {
	summary = "SSH failed"
	for _, c := range sshSummaries {
		if errors.Is(e.Class, c.class) {
			summary = c.summary
			break
		}
	}
	fix, at = e.Fix, s.At
	if s.Importing && errors.Is(e.Class, ssh.ErrHostKey) {
		fix = strings.TrimSuffix(fix, ".") + ". In an import, the host's key is a part of the import id: add ,host_key=<the key as above, without quotes> to it"
	}
	switch {
	case strings.HasPrefix(e.Attribute, "ssh.host"), e.Attribute == "ssh.port":
		at = dotted(s.Node, e.Attribute)
	case e.Attribute == "ssh.known_hosts":
		// The pin lives in the provider block, but the host concerned is this one's.
		at = dotted(s.Node, "ssh.host_key")
	case e.Attribute != "":
		// Keys, users and passwords live in the provider block, to which a resource's diagnostic cannot point: name it.
		at = dotted(s.Node, "ssh.profile")
		name := strings.TrimPrefix(e.Attribute, "ssh.")
		fix = fmt.Sprintf("This comes from ssh_profiles[%q].%s in the provider block. %s", s.Coordinates.Profile, name, fix)
	case e.Step == ssh.StepResolve, e.Step == ssh.StepConnect, e.Step == ssh.StepHandshake:
		at = dotted(s.Node, "ssh.host")
	}
	return summary, fix, at
}

func profileText(e *fleet.ProfileError, s Subject) (summary, fix string, at path.Path) {
	at = dotted(s.Node, "ssh.profile")
	if len(e.Unknown) > 0 {
		return "SSH profile is not known yet", "Give the provider block values that are known at plan, or apply in two steps with -target", at
	}
	return "Unknown SSH profile", "Use the name of an entry of ssh_profiles in the provider block, or add one", at
}
