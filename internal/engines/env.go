package engines

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

var envNameRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ownedEnv are variables with which systemd tells a service where it is.
var ownedEnv = []string{"INVOCATION_ID", "LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "MAINPID", "NOTIFY_SOCKET", "RUNTIME_DIRECTORY"}

// checkEnv lists variables that cannot be passed, and values that would keep the
// engine's KV from crossing.
func checkEnv(s Spec) []Problem {
	var ps []Problem
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		attribute := "env." + name
		switch {
		case !envNameRE.MatchString(name):
			ps = append(ps, Problem{"env", "Variable cannot be passed", fmt.Sprintf("%.80q is no name of a variable: use letters, digits and _, and no digit first.", name)})
		case strings.ContainsRune(s.Env[name], 0):
			ps = append(ps, Problem{attribute, "Variable cannot be passed", fmt.Sprintf("The value of %s holds a NUL byte.", name)})
		case slices.Contains(ownedEnv, name):
			ps = append(ps, Problem{attribute, "Variable is set by systemd", fmt.Sprintf("%s is what ties the engine to its unit. Remove it.", name)})
		}
	}
	if s.Connector == ConnectorNone {
		return ps
	}
	for _, r := range kvcompat.Lint(kvcompat.Setup{Env: s.Env}) {
		ps = append(ps, Problem{r.Attribute, "Setting keeps KV from crossing", r.String()})
	}
	return ps
}
