package main

import (
	"context"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
)

func snapshot(ctx context.Context, l *lab.Lab, args []string) error { return nil }
func diff(args []string) error                                      { return nil }
