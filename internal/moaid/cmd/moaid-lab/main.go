// Command moaid-lab is what a lab host has and a real one does not need: the reference engine, and stand-ins for the
// tools of accelerators that are not there. It goes by the name it is called by, or by its first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/worker"
)

// command runs one subcommand. args do not hold its name; the result is the exit status.
type command func(args []string) int

// commands is the dispatch table, by name.
var commands = map[string]command{
	"amd-smi":    standIn("amd-smi"),
	"engine":     engine,
	rankCommand:  func([]string) int { return worker.Serve() },
	"faults":     faults,
	"lspci":      standIn("lspci"),
	"nvidia-smi": standIn("nvidia-smi"),
}

// rankCommand is what engines with several ranks start this program as. It is not
// for people.
const rankCommand = worker.Subcommand

func main() { os.Exit(dispatch(os.Args)) }

// dispatch picks the command by the base name of the program, then by the first argument.
func dispatch(args []string) int {
	if run, ok := commands[filepath.Base(args[0])]; ok {
		return run(args[1:])
	}
	if len(args) > 1 {
		if run, ok := commands[args[1]]; ok {
			return run(args[2:])
		}
	}
	var names []string
	for name := range commands {
		if name != rankCommand {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: moaid-lab %s ...\n", strings.Join(names, "|"))
	return 2
}
