package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

func init() {
	commands = append(commands, command{"keygen", "make a key unless there is one, and print its public half", runKeygen})
}

// runKeygen is what the provider runs before the owner of the key is started, so
// that peers trust it from its first connection. The key never leaves the host.
func runKeygen(_ context.Context, args []string) int {
	fs := flag.NewFlagSet("keygen", flag.ContinueOnError)
	file := fs.String("key", "", "absolute path of the private key")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if fs.NArg() > 0 || !filepath.IsAbs(*file) {
		return fail("keygen", errors.New("--key must be an absolute path, and there are no other arguments"))
	}
	id, err := transport.LoadOrCreate(*file)
	if err != nil {
		return fail("keygen", err)
	}
	fmt.Println(id.PublicString())
	return 0
}
