package diagnose

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Subject says what was being done, to what, and where the resource keeps the settings that errors speak of.
type Subject struct {
	// Doing completes the sentence "Could not …", for example "install moaid".
	Doing string
	// Coordinates of the node concerned; zero when there is none.
	Coordinates fleet.Coordinates
	// Node is the path of the node's attributes: empty in moai_node itself, path.Root("node") where it is passed.
	Node path.Path
	// At is the path to blame when the error itself names no attribute; empty means the whole resource.
	At path.Path
	// Importing says that the coordinates come from an import id, so that this is where to correct them.
	Importing bool
}

// Attributed is implemented by errors that know which attribute of the resource has to change, as a dotted name such as
// "expect.gpu_count".
type Attributed interface {
	error
	DiagnosticAttribute() string
}

// Explained is implemented by errors that bring a summary and the sentence for the operator.
type Explained interface {
	error
	Explain() (summary, fix string)
}

// Error makes an error diagnostic of err.
func Error(s Subject, err error) diag.Diagnostic {
	summary, detail, at := s.explain(err)
	if len(at.Steps()) == 0 {
		return diag.NewErrorDiagnostic(summary, detail)
	}
	return AtError(at, summary, detail)
}

// AtError makes an error diagnostic that points at an attribute, however deep.
func AtError(at path.Path, summary, detail string) diag.Diagnostic {
	shown, label := visible(at)
	return diag.NewAttributeErrorDiagnostic(shown, summary, detail+label)
}

// AtWarning is [AtError] for warnings.
func AtWarning(at path.Path, summary, detail string) diag.Diagnostic {
	shown, label := visible(at)
	return diag.NewAttributeWarningDiagnostic(shown, summary, detail+label)
}

// visible is the part of a path that a CLI can find in the configuration: for anything below a top-level attribute,
// Terraform and OpenTofu show the first line of the whole resource, and for the attribute itself its own line. What is cut
// off is said in words.
func visible(at path.Path) (shown path.Path, label string) {
	steps := at.Steps()
	if len(steps) < 2 {
		return at, ""
	}
	shown = path.Empty()
	if name, ok := steps[0].(path.PathStepAttributeName); ok {
		shown = path.Root(string(name))
	}
	return shown, "\nAttribute: " + at.String()
}

// Warning makes a warning of err. consequence is a sentence that says what it means for this run.
func Warning(s Subject, err error, consequence string) diag.Diagnostic {
	summary, detail, at := s.explain(err)
	if consequence != "" {
		detail = consequence + "\n\n" + detail
	}
	if len(at.Steps()) == 0 {
		return diag.NewWarningDiagnostic(summary, detail)
	}
	return AtWarning(at, summary, detail)
}

// Interrupted reports whether err only says that the run was stopped.
func Interrupted(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled)
}

// Refusal makes an error diagnostic of what a package above has found out itself about the subject's node. It points at
// the subject's At.
func Refusal(s Subject, summary, detail string) diag.Diagnostic {
	if detail += s.where(); len(s.At.Steps()) == 0 {
		return diag.NewErrorDiagnostic(summary, detail)
	}
	return AtError(s.At, summary, detail)
}

// Notice is [Refusal] for warnings.
func Notice(s Subject, summary, detail string) diag.Diagnostic {
	if detail += s.where(); len(s.At.Steps()) == 0 {
		return diag.NewWarningDiagnostic(summary, detail)
	}
	return AtWarning(s.At, summary, detail)
}

// labels are where the subject is.
func (s Subject) labels(label func(name, value string)) {
	label("Node", s.Coordinates.Name)
	if s.Coordinates.Host != "" {
		label("Host", s.Coordinates.Host)
		label("Port", fmt.Sprint(sshPort(s.Coordinates.Port)))
		label("SSH profile", s.Coordinates.Profile)
	}
}

// where is the labels as the end of a text.
func (s Subject) where() string {
	var lines []string
	s.labels(func(name, value string) {
		if value != "" {
			lines = append(lines, name+": "+value)
		}
	})
	if len(lines) == 0 {
		return ""
	}
	return "\n\n" + strings.Join(lines, "\n")
}

func (s Subject) explain(err error) (summary, detail string, at path.Path) {
	summary, fix := "Could not "+s.Doing, ""
	at = s.At
	var labels []string
	label := func(name, value string) {
		if value != "" {
			labels = append(labels, name+": "+value)
		}
	}
	s.labels(label)

	var (
		silent     *fleet.SilentError
		sshErr     *ssh.Error
		profile    *fleet.ProfileError
		daemon     *api.Error
		identity   *fleet.IdentityError
		attributed Attributed
		explained  Explained
	)
	switch {
	case errors.As(err, &profile):
		summary, fix, at = profileText(profile, s)
	case errors.As(err, &silent): // by an error of SSH, perhaps, which is then not about the connection
	case errors.As(err, &sshErr):
		summary, fix, at = sshText(sshErr, s)
		label("Step", string(sshErr.Step))
	case errors.As(err, &identity):
		at = dotted(s.Node, "ssh.host")
	case errors.As(err, &daemon):
		label("Code", daemon.Code)
		label("Daemon's attribute", daemon.Attribute)
	}
	if errors.As(err, &explained) {
		summary, fix = explained.Explain()
	}
	if errors.As(err, &attributed) {
		at = dotted(path.Empty(), attributed.DiagnosticAttribute())
	}

	var b strings.Builder
	if summary != "Could not "+s.Doing {
		b.WriteString("Could not " + s.Doing + ". ")
	}
	if fix != "" {
		b.WriteString(strings.TrimSuffix(fix, ".") + ".")
	}
	if b.Len() > 0 {
		b.WriteString("\n\n")
	}
	raw := err.Error()
	if sshErr != nil && sshErr.Fix != "" {
		raw = strings.Replace(raw, ". "+sshErr.Fix, "", 1) // it is the sentence already
	}
	b.WriteString(raw)
	if len(labels) > 0 {
		b.WriteString("\n\n" + strings.Join(labels, "\n"))
	}
	return summary, b.String(), at
}

func sshPort(p int) int {
	if p == 0 {
		return fleet.DefaultSSHPort
	}
	return p
}

// dotted appends the steps of a name such as "ssh.host_key" to base.
func dotted(base path.Path, name string) path.Path {
	for step := range strings.SplitSeq(name, ".") {
		if step != "" {
			base = base.AtName(step)
		}
	}
	return base
}
