package diagnose

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// NotRemoved makes an error diagnostic of a failed removal. If a node could not be
// reached, it says that what (such as "The engine") stays in the state, and what to
// do. The sentence is part of the error, since the CLI prints warnings elsewhere.
func NotRemoved(s Subject, what string, err error) diag.Diagnostic {
	d := Error(s, err)
	if !ssh.Retryable(err) {
		return d
	}
	detail := fmt.Sprintf("%s stays in the state, because something of it is still on a node that could not be reached. Make the node reachable and destroy again. "+
		"If the node is gone for ever, take it out of the state: terraform state rm <address of this resource>.\n\n%s", what, d.Detail())
	if at, ok := d.(diag.DiagnosticWithPath); ok {
		return diag.NewAttributeErrorDiagnostic(at.Path(), d.Summary(), detail)
	}
	return diag.NewErrorDiagnostic(d.Summary(), detail)
}
