package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/moai-dev/terraform-provider-moai/internal/demo"
)

// render runs tfplugindocs on the schema that the built provider reports to the
// CLI at hand, so that nothing is downloaded.
func (r repo) render(ctx context.Context, tfplugindocs string) error {
	schema, err := r.schema(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(r.root, "build", "schema.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(file, schema, 0o600); err != nil {
		return err
	}
	return r.exec(ctx, ".", tfplugindocs, "generate",
		"--provider-dir", r.root, "--provider-name", "moai", "--rendered-provider-name", "MoAI", "--providers-schema", file)
}

// schema asks the CLI for the provider's schema, under the key that tfplugindocs looks for.
func (r repo) schema(ctx context.Context) ([]byte, error) {
	cli, err := demo.FindCLI(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.ws.Build(ctx); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "moai-schema-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the temporary folder harms nothing
	config := "terraform {\n  required_providers {\n    moai = { source = \"moai-dev/moai\" }\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(tmp, "main.tf"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	var out []byte
	for _, args := range [][]string{{"init", "-input=false", "-no-color"}, {"providers", "schema", "-json", "-no-color"}} {
		cmd := exec.CommandContext(ctx, cli.Path, args...)
		cmd.Dir, cmd.Env, cmd.Stderr = tmp, demo.CLIEnv(r.ws.CLIConfig()), os.Stderr
		if out, err = cmd.Output(); err != nil {
			return nil, fmt.Errorf("%s %s: %w\n%s", cli.Path, args[0], err, out)
		}
	}
	return renameKey(out)
}

// renameKey moves the one provider schema under the short name.
func renameKey(raw []byte) ([]byte, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("providers schema: %w", err)
	}
	var schemas map[string]json.RawMessage
	if err := json.Unmarshal(doc["provider_schemas"], &schemas); err != nil {
		return nil, fmt.Errorf("providers schema: %w", err)
	}
	if len(schemas) != 1 {
		return nil, fmt.Errorf("the CLI reports %d provider schemas, expected 1", len(schemas))
	}
	for _, s := range schemas {
		b, err := json.Marshal(map[string]json.RawMessage{"moai": s})
		if err != nil {
			return nil, err
		}
		doc["provider_schemas"] = b
	}
	return json.Marshal(doc)
}
