package demo

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// MissingError lists what the machine lacks; the demo then exits with status 3.
type MissingError struct{ Needs []string }

func (e *MissingError) Error() string { return "this machine lacks what the demo needs" }

// Require checks the machine and gets the CLI from find: FindCLI, or a function
// that builds one where there is none. It is asked to build only when nothing else is missing.
func Require(ctx context.Context, find func(context.Context) (CLI, error)) (CLI, error) {
	var needs []string
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		needs = append(needs, fmt.Sprintf("Linux on x86-64: the lab's hosts are Debian for amd64 (this is %s/%s)", runtime.GOOS, runtime.GOARCH))
	}
	if os.Geteuid() != 0 {
		needs = append(needs, "root: the lab's hosts are containers with network namespaces of their own (try: sudo make demo)")
	}
	if len(needs) > 0 {
		find = FindCLI
	}
	cli, err := find(ctx)
	if err != nil {
		needs = append(needs, err.Error())
	}
	if len(needs) > 0 {
		return CLI{}, &MissingError{Needs: needs}
	}
	return cli, nil
}
