package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/sdnotify"
)

// engineFlags reads the command line of the reference engine.
func engineFlags(args []string) (refengine.Config, time.Duration, error) {
	c := refengine.Default()
	f := flag.NewFlagSet("moaid-lab engine", flag.ContinueOnError)
	f.StringVar(&c.Name, "name", "", "`name` of the engine, as registered with the KV daemon")
	f.StringVar(&c.Node, "node", "", "`name` of this host, if the KV daemon does not say it")
	role := f.String("role", string(c.Role), "prefill, decode or both")
	f.StringVar(&c.Model, "model", c.Model, "one of "+strings.Join(refmodel.Names(), ", "))
	f.Uint64Var(&c.Seed, "weights-seed", c.Seed, "seed of the weights")
	claim := f.String("claim-fingerprint-of", "", "report the fingerprint of weights of this `seed`; for tests that must notice")
	format := formatFlags(f)
	f.IntVar(&c.DataParallel, "data-parallel", c.DataParallel, "replicas, each with a scheduler, all ranks and a cache of its own")
	f.IntVar(&c.Blocks, "kv-blocks", 0, "KV blocks of a replica; 0 for 131072 tokens")
	f.IntVar(&c.MaxBatchedTokens, "max-batched-tokens", c.MaxBatchedTokens, "tokens computed in a step")
	f.IntVar(&c.MaxSeqs, "max-seqs", c.MaxSeqs, "requests in a batch")
	for _, name := range []string{"listen", "http-socket"} {
		f.StringVar(&c.HTTPSocket, name, "", "`path` of the unix socket for HTTP")
	}
	for _, name := range []string{"engine-socket", "daemon-socket"} {
		f.StringVar(&c.DaemonSocket, name, enginesock.DefaultPath, "`path` of the KV daemon's engine socket")
	}
	connector := f.String("connector", "moai", "moai, or none for an engine on its own")
	without := f.Bool("no-kv-connector", false, "the same as --connector=none")
	onFailure := f.String("on-transfer-failure", "recompute", "recompute the prompt, or fail the request; what the engine was registered with goes first")
	f.DurationVar(&c.TransferWait, "transfer-timeout", c.TransferWait, "how long a request waits for KV")
	grace := f.Duration("grace", 5*time.Second, "how long running requests may go on after SIGTERM")
	if err := f.Parse(args); err != nil {
		return c, 0, err
	}
	c.Role, c.ClaimSeed, c.FailTransfers = refengine.Role(*role), c.Seed, *onFailure == "fail"
	if *claim != "" {
		if _, err := fmt.Sscan(*claim, &c.ClaimSeed); err != nil {
			return c, 0, fmt.Errorf("--claim-fingerprint-of %q is no seed", *claim)
		}
	}
	var err error
	if c.Format, err = format(c.Model); err != nil {
		return c, 0, err
	}
	if *without || *connector == "none" {
		c.DaemonSocket = ""
	}
	switch {
	case f.NArg() > 0:
		return c, 0, fmt.Errorf("argument %q is not expected", f.Arg(0))
	case c.DataParallel < 1 || c.DataParallel > enginesock.MaxReplicas:
		return c, 0, fmt.Errorf("--data-parallel %d is outside 1 to %d", c.DataParallel, enginesock.MaxReplicas)
	case c.HTTPSocket == "":
		return c, 0, errors.New("--listen is missing: the path of the unix socket for HTTP")
	case *connector != "moai" && *connector != "none":
		return c, 0, fmt.Errorf("--connector %q is neither moai nor none", *connector)
	case *onFailure != "recompute" && *onFailure != "fail":
		return c, 0, fmt.Errorf("--on-transfer-failure %q is neither recompute nor fail", *onFailure)
	}
	return c, *grace, nil
}

// engine runs the reference engine until SIGTERM.
func engine(args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, grace, err := engineFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = serveEngine(cfg, grace, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "moaid-lab engine:", err)
		return 1
	}
	return 0
}

func serveEngine(cfg refengine.Config, grace time.Duration, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cfg.Stderr = os.Stderr
	e, err := refengine.New(cfg, log)
	if err != nil {
		return err
	}
	if err := os.Remove(cfg.HTTPSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", cfg.HTTPSocket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(cfg.HTTPSocket, 0o660); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	notify, err := sdnotify.FromEnv()
	if err != nil {
		return err
	}
	if err := notify.Send(sdnotify.Ready, sdnotify.Status("%s, %s", cfg.Model, cfg.Role)); err != nil {
		log.Warn("systemd was not told", "err", err)
	}
	log.Info("engine is up", "name", cfg.Name, "model", cfg.Model, "role", cfg.Role, "socket", cfg.HTTPSocket, "connector", cfg.DaemonSocket != "",
		"ranks", cfg.Format.Tensor, "replicas", cfg.DataParallel)
	return e.Serve(ctx, l, grace)
}
