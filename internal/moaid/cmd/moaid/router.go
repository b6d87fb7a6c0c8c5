package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/sdnotify"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

func init() {
	commands = append(commands, command{"router", "serve OpenAI clients from prefill/decode pairs", runRouter})
}

func runRouter(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("router", flag.ContinueOnError)
	file := fs.String("config", "", "path of the router's configuration, /etc/moai/routers/<name>.json")
	check := fs.Bool("check", false, "only check the configuration")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if *file == "" || fs.NArg() > 0 {
		fs.Usage()
		return 2
	}
	cfg, err := readRouterConfig(*file)
	if err != nil {
		return fail("router", err)
	}
	if *check {
		return 0
	}
	if err := serveRouter(ctx, cfg); err != nil {
		return fail("router", err)
	}
	return 0
}

func readRouterConfig(file string) (_ *config.RouterConfig, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, config.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	cfg, err := config.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("the configuration %s is wrong: %w", file, err)
	}
	return cfg, nil
}

func serveRouter(ctx context.Context, cfg *config.RouterConfig) error {
	id, err := transport.LoadOrCreate(cfg.KeyFile)
	if err != nil {
		return err
	}
	cert, err := id.Certificate()
	if err != nil {
		return err
	}
	notify, err := sdnotify.FromEnv()
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Config: cfg, Certificate: cert, Notify: notify,
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for clients on %s: %w", cfg.Listen, err)
	}
	return g.Run(ctx, l)
}
