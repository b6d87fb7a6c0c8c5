// Command demo runs the main job in a local lab: `demo up`, then `demo down`.
// The other two words are those parts of them that run inside the lab's network
// namespace.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/demo"
	"github.com/moai-dev/terraform-provider-moai/internal/lab"
)

// exitMissing says that the machine lacks something that the demo needs.
const exitMissing = 3

func main() {
	lab.Main(os.Args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var missing *demo.MissingError
	switch {
	case errors.As(err, &missing):
		fmt.Fprintln(os.Stderr, "demo: "+missing.Error()+":")
		for _, n := range missing.Needs {
			fmt.Fprintln(os.Stderr, "  - "+n)
		}
		os.Exit(exitMissing)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: demo up | down")
	}
	start, err := startTime()
	if err != nil {
		return err
	}
	ws, err := demo.FindWorkspace()
	if err != nil {
		return err
	}
	if args[0] != "up" {
		if err := ws.UseRememberedCLI(); err != nil {
			return err
		}
	}
	narrator := demo.Narrator{Out: os.Stdout, Start: start}
	cli, err := demo.Require(ctx, ws, func(ctx context.Context) (demo.CLI, error) { return ws.EnsureCLI(ctx, narrator.Say) })
	if err != nil {
		return err
	}
	d := demo.Demo{WS: ws, CLI: cli, N: narrator}
	switch args[0] {
	case "up":
		return d.Up(ctx)
	case "down":
		return d.Down(ctx)
	case "drive":
		report, err := d.Drive(ctx)
		report.Seconds = time.Since(start).Seconds()
		return errors.Join(err, d.Close(report, err == nil))
	case "destroy":
		return d.Destroy(ctx)
	}
	return fmt.Errorf("unknown word %q; usage: demo up | down", args[0])
}

// startTime is handed on to the part that runs in the namespace, so that both
// show the time since the same start.
func startTime() (time.Time, error) {
	s := os.Getenv(demo.StartVariable)
	if s == "" {
		return time.Now(), nil
	}
	return time.Parse(time.RFC3339Nano, s)
}
