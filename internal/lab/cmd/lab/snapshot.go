package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
)

func snapshot(ctx context.Context, l lab.Driver, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	m, err := l.Snapshot(ctx, args[0])
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	return out.Encode(m)
}

func diff(args []string) error {
	f := flag.NewFlagSet("diff", flag.ContinueOnError)
	all := f.Bool("all", false, "also what is tolerated, with the reason")
	if err := f.Parse(args); err != nil || f.NArg() != 2 {
		return errUsage
	}
	var two [2]manifest.Manifest
	for i, name := range f.Args() {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &two[i]); err != nil {
			return fmt.Errorf("%s is no snapshot: %w", name, err)
		}
	}
	different, tolerated := 0, 0
	for _, c := range manifest.Diff(two[0], two[1]) {
		switch {
		case c.Reason == "":
			different++
			fmt.Println(c)
		case *all:
			fmt.Printf("%s  (tolerated: %s)\n", c, c.Reason)
			fallthrough
		default:
			tolerated++
		}
	}
	say("%d files, %d differences, %d tolerated", len(two[1].Files), different, tolerated)
	if different > 0 {
		return errDiffer
	}
	return nil
}
