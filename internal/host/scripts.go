package host

import (
	"embed"
	"fmt"
)

//go:embed scripts/*.sh
var scriptFiles embed.FS

// script returns the text of a verb as it is sent. Arguments $1 and $2 are the lock token (or "-") and the lock file;
// the prelude shifts them away.
func script(verb string) string {
	prelude, err := scriptFiles.ReadFile("scripts/prelude.sh")
	if err == nil {
		var body []byte
		if body, err = scriptFiles.ReadFile("scripts/" + verb + ".sh"); err == nil {
			return "# moai:" + verb + "\n" + string(prelude) + string(body)
		}
	}
	panic(fmt.Sprintf("host: no script for verb %q: %v", verb, err)) // verbs are constants of this package
}
