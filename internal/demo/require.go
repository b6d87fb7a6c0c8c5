package demo

import (
	"context"
	"errors"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
)

// MissingError lists what the machine lacks; the demo then exits with status 3.
type MissingError struct{ Needs []string }

func (e *MissingError) Error() string { return "this machine lacks what the demo needs" }

// Require checks that this machine can have the run's lab, of whichever tier, and gets the CLI from find: FindCLI, or a
// function that builds one where there is none. It is asked to build only when nothing else is missing.
func Require(ctx context.Context, ws Workspace, find func(context.Context) (CLI, error)) (CLI, error) {
	var needs []string
	_, err := lab.Choose(ctx, lab.Config{Dir: lab.Dir(), Name: ws.labName()})
	var missing *lab.MissingError
	switch {
	case errors.As(err, &missing):
		needs = append(needs, err.Error())
	case err != nil:
		return CLI{}, err
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
