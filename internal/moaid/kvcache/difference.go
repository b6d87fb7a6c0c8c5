package kvcache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Difference is an attribute in which two fingerprints differ. Its values are
// JSON, empty where an attribute is missing.
type Difference struct {
	Attribute string // path of its JSON names, such as "storage.block_size" or "groups.1.window"
	A, B      string
}

// Differences lists the attributes in which two fingerprints differ, in the order
// of their names.
func Differences(a, b Fingerprint) []Difference {
	return appendDifferences(nil, "", tree(a), tree(b))
}

// tree is the JSON of a fingerprint as maps, lists and literals.
func tree(f Fingerprint) any {
	b, err := json.Marshal(f)
	if err != nil { // a struct of strings and integers always encodes
		panic(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

func appendDifferences(out []Difference, path string, a, b any) []Difference {
	x, y := children(a), children(b)
	if x == nil || y == nil {
		if p, q := literal(a), literal(b); p != q {
			return append(out, Difference{strings.TrimPrefix(path, "."), p, q})
		}
		return out
	}
	names := make([]string, 0, len(x))
	for name := range x {
		names = append(names, name)
	}
	for name := range y {
		if _, both := x[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		out = appendDifferences(out, path+"."+name, x[name], y[name])
	}
	return out
}

// children are the members of an object, or of a list whose items are objects;
// nil for anything else. A list of literals is one value.
func children(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case []any:
		m := map[string]any{}
		for i, item := range v {
			if _, object := item.(map[string]any); !object {
				return nil
			}
			m[fmt.Sprint(i)] = item
		}
		return m
	}
	return nil
}

func literal(v any) string {
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil { // it came from JSON
		panic(err)
	}
	return string(b)
}
