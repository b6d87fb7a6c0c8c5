package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fault is something that a gate must catch: a change of one file in a copy of
// the checkout, and the gate, which must then fail and say why.
type fault struct {
	name string
	file string // in the copy
	old  string // what text replaces; "": text comes behind what there is
	text string
	gate func(ctx context.Context, r repo, copy string) error
	want string // part of what the gate must say
}

const rootPath = "github.com/moai-dev/terraform-provider-moai/internal/"

func faults(linter string) []fault {
	// One linter alone, on one package: a fault is caught by its own rule, and soon.
	lint := func(name, module, pkg string) func(context.Context, repo, string) error {
		return func(ctx context.Context, _ repo, copy string) error {
			return quiet(ctx, filepath.Join(copy, module), linter, "run", "--allow-parallel-runners",
				"--config", filepath.Join(copy, ".golangci.yml"), "--enable-only", name, pkg)
		}
	}
	arrow := func(name, module, pkg, imports, want string) fault {
		return fault{
			name: name, file: filepath.Join(module, pkg, "bad.go"),
			text: fmt.Sprintf("package %s\n\nimport _ %q\n", filepath.Base(pkg), imports),
			gate: lint("depguard", module, "./"+pkg+"/..."), want: want,
		}
	}
	return []fault{
		arrow("moaid imports Terraform", "internal/moaid", "kvcompat", "github.com/hashicorp/go-cleanhttp", "nothing in moaid imports Terraform"),
		arrow("moaid imports the provider's side", "internal/moaid", "kvcompat", rootPath+"facts", "nothing in moaid imports the root module"),
		arrow("facts import Terraform", ".", "internal/facts", "github.com/hashicorp/terraform-plugin-framework/types", "know Terraform"),
		arrow("the payload imports what objects share", ".", "internal/payload", rootPath+"noderef", "never back"),
		arrow("an object imports the daemon", ".", "internal/node", rootPath+"moaid/kvd", "the provider imports moaid's API types"),
		arrow("a pure package opens sockets", "internal/moaid", "kvcache", "net", "does no I/O"),
		arrow("a pure package throws dice", "internal/moaid", "pacing", "math/rand/v2", "is deterministic"),
		{
			name: "a state machine looks at the clock", file: "internal/moaid/transfer/bad.go",
			text: "package transfer\n\nimport \"time\"\n\nvar _ = time.Now()\n",
			gate: lint("forbidigo", "internal/moaid", "./transfer/..."), want: "the instant is an argument",
		},
		{
			name: "an unchecked error", file: "internal/moaid/kvcache/bad.go",
			text: "package kvcache\n\nfunc bad() { (&Fingerprint{}).Validate() }\n\nvar _ = bad\n",
			gate: lint("errcheck", "internal/moaid", "./kvcache/..."), want: "errcheck",
		},
		{
			name: "a test that fails", file: "internal/moaid/kvcompat/bad_test.go",
			text: "package kvcompat\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Fatal(\"bad\") }\n",
			gate: func(ctx context.Context, _ repo, copy string) error {
				return quiet(ctx, filepath.Join(copy, "internal/moaid"), "go", "test", "./kvcompat/...")
			}, want: "--- FAIL: TestBad",
		},
		{
			name: "a conversion that turns heads round", file: "internal/moaid/kvcache/convert/rows.go",
			old: "(b.srcHead+h)*l.at.head[part]", text: "(b.srcHead+b.heads-1-h)*l.at.head[part]",
			gate: func(ctx context.Context, _ repo, copy string) error {
				return quiet(ctx, filepath.Join(copy, "internal/moaid"), "go", "test", "-count=1", "-run", "^TestFormats$", "./e2e/formats")
			}, want: "the logits differ",
		},
		{
			name: "an example with another format", file: "examples/provider/bad.tf",
			text: "locals {\n      a =    1\n}\n",
			gate: func(ctx context.Context, _ repo, copy string) error { return exampleFormat(ctx, copy) }, want: "bad.tf",
		},
		{
			name: "an example with an unknown attribute", file: "examples/resources/moai_node/resource.tf",
			old: "resource \"moai_node\" \"h100\" {\n", text: "resource \"moai_node\" \"h100\" {\n  colour = \"red\"\n",
			gate: func(ctx context.Context, r repo, copy string) error {
				return r.validate(ctx, filepath.Join(copy, "examples/resources/moai_node"))
			}, want: `An argument named "colour" is not expected here`,
		},
		{
			name: "a page that is out of date", file: "docs/resources/node.md", text: "\nIt also makes coffee.\n",
			gate: func(_ context.Context, r repo, copy string) error {
				spoiled, err := pages(filepath.Join(copy, "docs"))
				if err != nil {
					return err
				}
				right, err := pages(filepath.Join(r.root, "docs"))
				if err != nil {
					return err
				}
				return differences(spoiled, right)
			}, want: "resources/node.md is out of date",
		},
	}
}

// quiet runs argv; what it printed is in the error.
func quiet(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}
