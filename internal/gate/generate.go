package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// generate renders docs from the provider's schema, templates, examples and the
// code of KV formats.
func (r repo) generate(ctx context.Context, check bool) error {
	before, err := pages(filepath.Join(r.root, "docs"))
	if err != nil {
		return err
	}
	bin := filepath.Join(r.root, "bin", "tfplugindocs")
	if err := r.exec(ctx, "tools/tfplugindocs", "go", "build", "-o", bin, "github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs"); err != nil {
		return err
	}
	if err := r.writeFormats(); err != nil {
		return err
	}
	if err := r.render(ctx, bin); err != nil {
		return err
	}
	if !check {
		return nil
	}
	after, err := pages(filepath.Join(r.root, "docs"))
	if err != nil {
		return err
	}
	return differences(before, after)
}

// pages reads the generated pages: every .md below dir but those in folders
// that people write.
func pages(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "protocols" || d.Name() == "decisions") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, err := fs.ReadFile(os.DirFS(dir), filepath.ToSlash(rel))
		out[rel] = string(b)
		return err
	})
	return out, err
}

func differences(before, after map[string]string) error {
	var diffs []string
	for name, text := range after {
		if was, ok := before[name]; !ok {
			diffs = append(diffs, name+" is missing")
		} else if was != text {
			diffs = append(diffs, name+" is out of date")
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			diffs = append(diffs, name+" documents nothing any more")
		}
	}
	if len(diffs) > 0 {
		return errors.New("docs differ from the schema (run make generate and commit): " + strings.Join(diffs, ", "))
	}
	fmt.Printf("%d pages are up to date\n", len(after))
	return nil
}
