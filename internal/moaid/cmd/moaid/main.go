// Command moaid is everything that runs on a node: the KV daemon, the gateway,
// and the small commands that the provider runs over SSH. See `moaid help`.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// command is one subcommand. A file that adds one appends to commands in its
// init function; run returns the exit status.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, args []string) int
}

var commands []command

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := dispatch(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// dispatch runs the subcommand that args begin with.
func dispatch(ctx context.Context, args []string, errOut io.Writer) int {
	if len(args) == 0 {
		usage(errOut)
		return 2
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:])
		}
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(errOut)
		return 0
	}
	_, _ = fmt.Fprintf(errOut, "moaid: there is no command %q\n", args[0])
	usage(errOut)
	return 2
}

func usage(w io.Writer) {
	sorted := slices.SortedFunc(slices.Values(commands), func(a, b command) int { return strings.Compare(a.name, b.name) })
	_, _ = fmt.Fprintln(w, "usage: moaid <command> [flags]")
	for _, c := range sorted {
		_, _ = fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
}

// fail reports an error to the operator and gives the exit status of failure.
func fail(command string, err error) int {
	_, _ = fmt.Fprintf(os.Stderr, "moaid %s: %v\n", command, err)
	return 1
}
