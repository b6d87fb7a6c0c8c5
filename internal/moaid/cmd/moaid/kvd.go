package main

import (
	"context"
	"flag"
	"log/slog"
	"os"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd"
)

func init() {
	commands = append(commands, command{"kvd", "run the KV daemon of this host", runKVD})
}

func runKVD(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("kvd", flag.ContinueOnError)
	file := fs.String("config", "/etc/moai/kvd.json", "path of the daemon's configuration")
	check := fs.Bool("check", false, "only check the configuration")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	cfg, err := kvd.LoadConfig(*file)
	if err != nil {
		return fail("kvd", err)
	}
	if *check {
		return 0
	}
	sum, err := contentSHA256()
	if err != nil {
		return fail("kvd", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.Level()}))
	d, err := kvd.New(kvd.Options{Config: cfg, Drain: kvd.DrainTime, ContentSHA256: sum, Log: log})
	if err != nil {
		return fail("kvd", err)
	}
	if err := d.Run(ctx, nil); err != nil {
		return fail("kvd", err)
	}
	return 0
}
