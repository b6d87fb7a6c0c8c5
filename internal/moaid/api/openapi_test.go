package api_test

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// description is the API as docs/protocols has it.
func description(t *testing.T) *v3.Document {
	t.Helper()
	b, err := os.ReadFile("../../../docs/protocols/management-api.openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(b)
	if err != nil {
		t.Fatal(err)
	}
	if v := doc.GetVersion(); !strings.HasPrefix(v, "3.1") {
		t.Errorf("it is OpenAPI %s", v)
	}
	m, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	return &m.Model
}

// anyMethod are what a path item of OpenAPI can say of a request of any method.
var anyMethod = []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

func TestDescriptionHasTheRoutes(t *testing.T) {
	var want, got []string
	for _, r := range api.Routes() {
		path := strings.Replace(r.Path, "...}", "}", 1)
		if r.Method != "" {
			want = append(want, r.Method+" "+path)
			continue
		}
		for _, m := range anyMethod {
			want = append(want, m+" "+path)
		}
	}
	ids := map[string]bool{}
	for path, item := range description(t).Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			got = append(got, strings.ToUpper(method)+" "+path)
			if op.OperationId == "" || ids[op.OperationId] {
				t.Errorf("%s %s: operationId %q is missing or another's", method, path, op.OperationId)
			}
			ids[op.OperationId] = true
			parameters(t, path, item)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("described: %q\nserved:    %q", got, want)
	}
}

// parameters checks that the parts of a path are described.
func parameters(t *testing.T, path string, item *v3.PathItem) {
	t.Helper()
	in := map[string]bool{}
	for _, p := range item.Parameters {
		if p.In == "path" {
			in["{"+p.Name+"}"] = true
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") && !in[part] {
			t.Errorf("%s: %s is not described", path, part)
		}
		delete(in, part)
	}
	if len(in) > 0 {
		t.Errorf("%s: %v is not in the path", path, in)
	}
}

// types are what the schemas describe.
var types = map[string]any{
	"Status": api.Status{}, "Trust": api.Trust{}, "Link": api.Link{}, "LinkStatus": api.LinkStatus{}, "Probe": api.Probe{}, "ProbeResult": api.ProbeResult{},
	"Engine": api.Engine{}, "EngineStatus": api.EngineStatus{}, "EngineStats": api.EngineStats{}, "Conversion": api.Conversion{}, "Drain": api.Drain{},
	"PeerEngine": api.PeerEngine{}, "Pair": api.Pair{}, "Transfer": api.Transfer{}, "Error": api.Error{}, "ErrorBody": api.ErrorBody{},
	"Fingerprint": kvcache.Fingerprint{}, "Model": kvcache.Model{}, "Program": kvcache.Engine{}, "Storage": kvcache.Storage{}, "Scales": kvcache.Scales{},
	"Group": kvcache.Group{}, "Ranks": kvcache.Ranks{},
}

func TestSchemasAreTheTypes(t *testing.T) {
	names := map[reflect.Type]string{}
	for name, v := range types {
		names[reflect.TypeOf(v)] = name
	}
	described := map[string]bool{}
	for name, proxy := range description(t).Components.Schemas.FromOldest() {
		described[name] = true
		v, ok := types[name]
		if !ok {
			if name != "Name" {
				t.Errorf("schema %s has no type", name)
			}
			continue
		}
		checkObject(t, name, proxy.Schema(), reflect.TypeOf(v), names)
	}
	for name := range types {
		if !described[name] {
			t.Errorf("type %s has no schema", name)
		}
	}
}

func checkObject(t *testing.T, name string, s *base.Schema, typ reflect.Type, names map[reflect.Type]string) {
	t.Helper()
	fields := jsonFields(typ)
	for key, p := range s.Properties.FromOldest() {
		f, ok := fields[key]
		if !ok {
			t.Errorf("%s.%s is described and no field", name, key)
			continue
		}
		checkValue(t, name+"."+key, p, f.typ, names)
		delete(fields, key)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		t.Errorf("%s.%s is a field and not described", name, key)
	}
	all := jsonFields(typ)
	for _, key := range s.Required {
		if f, ok := all[key]; !ok || f.omitted {
			t.Errorf("%s.%s is required but may be missing", name, key)
		}
	}
	// What only the daemon says has each field that it never leaves out.
	if s.AdditionalProperties != nil || strings.HasPrefix(name, "ErrorBody") {
		return
	}
	for key, f := range all {
		if !f.omitted && !slices.Contains(s.Required, key) && !input(typ, key) {
			t.Errorf("%s.%s is always there but not required", name, key)
		}
	}
}

// input reports whether a field is of what was put, which may have left it out.
func input(typ reflect.Type, key string) bool {
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Anonymous {
			if _, ok := jsonFields(f.Type)[key]; ok {
				return true
			}
		}
	}
	return false
}

type field struct {
	typ     reflect.Type
	omitted bool // omitempty
}

// jsonFields are a struct's fields as encoding/json names them.
func jsonFields(typ reflect.Type) map[string]field {
	out := map[string]field{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			maps.Copy(out, jsonFields(f.Type))
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		out[name] = field{f.Type, rest == "omitempty"}
	}
	return out
}

func checkValue(t *testing.T, at string, p *base.SchemaProxy, typ reflect.Type, names map[reflect.Type]string) {
	t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if name := names[typ]; name != "" {
		if got := p.GetReference(); got != "#/components/schemas/"+name {
			t.Errorf("%s is a %s and described as %q", at, name, got)
		}
		return
	}
	s := p.Schema()
	want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number",
		reflect.Slice: "array", reflect.Map: "object"}[typ.Kind()]
	if typ == reflect.TypeFor[time.Time]() {
		want = "string"
	}
	if len(s.Type) != 1 || s.Type[0] != want {
		t.Errorf("%s is a %s and described as %v", at, want, s.Type)
		return
	}
	if want == "array" {
		checkValue(t, at+"[]", s.Items.A, typ.Elem(), names)
	}
}
