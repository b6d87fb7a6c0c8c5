package engine

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

func ptr[T any](v T) *T { return &v }

func kind(t *testing.T) engines.Kind {
	t.Helper()
	k, err := engines.Lookup("reference")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func desiredOf(t *testing.T, change func(*engines.Spec)) desired {
	t.Helper()
	k := kind(t)
	s := engines.Spec{Name: "decode-0", Kind: "reference", Role: engines.RoleDecode, Model: engines.Model{ID: "moai/seeded"}}
	if change != nil {
		change(&s)
	}
	d, err := desire("prod", k, k.Defaults(s), fleet.Coordinates{Name: "mi300x-0", Host: "192.0.2.21", Profile: "amd"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestUnit(t *testing.T) {
	t.Parallel()
	d := desiredOf(t, nil)
	for _, want := range []string{
		"User=moai-engine\n", "Group=moai\n", "RuntimeDirectory=moai-engine-decode-0\n", "RuntimeDirectoryMode=0750\n", "Type=notify\n",
		"RestrictAddressFamilies=AF_UNIX\n", "ExecStart=/usr/local/bin/moaid-lab engine --name=decode-0 --node=mi300x-0",
	} {
		if !strings.Contains(d.service.UnitText, want) {
			t.Errorf("the unit has no %q:\n%s", want, d.service.UnitText)
		}
	}
	o, intact, ok := systemd.ReadStamp(d.service.UnitText)
	if !ok || !intact || o.Fleet != "prod" || o.Resource != "moai_engine.decode-0" {
		t.Errorf("stamp %+v, %v, %v", o, intact, ok)
	}
}

// A variable is in the unit, whose hash is compared on every refresh, and nowhere in the arguments.
func TestEnvIsInTheUnit(t *testing.T) {
	t.Parallel()
	plain := desiredOf(t, nil)
	d := desiredOf(t, func(s *engines.Spec) { s.Env = map[string]string{"GOGC": "50 %"} })
	if !strings.Contains(d.service.UnitText, "Environment=\"GOGC=50 %%\"\n") || strings.Contains(strings.Join(d.launch.Args, " "), "GOGC") {
		t.Errorf("the unit is\n%s", d.service.UnitText)
	}
	if string(d.service.Config.Content) == string(plain.service.Config.Content) {
		t.Error("the record says nothing of it")
	}
}

// A node that moves changes nothing on the host.
func TestCoordinatesAreNowhereOnTheHost(t *testing.T) {
	t.Parallel()
	k := kind(t)
	a := desiredOf(t, nil)
	b, err := desire("prod", k, a.spec, fleet.Coordinates{Name: "mi300x-0", Host: "203.0.113.9", Port: 2222, Profile: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if a.service.UnitText != b.service.UnitText || string(a.service.Config.Content) != string(b.service.Config.Content) {
		t.Error("an address is in what is written to the host")
	}
}

func TestRecordIsReadBack(t *testing.T) {
	t.Parallel()
	d := desiredOf(t, func(s *engines.Spec) {
		s.ExtraArgs, s.MaxInFlight = []string{"--max-seqs=8"}, 1<<20
		s.Env = map[string]string{"GOGC": "50", "EMPTY": ""}
		s.Reference.WeightsSeed = ptr(uint64(3))
	})
	r, err := parseRecord(d.service.Config.Content)
	if err != nil || r.Fleet != "prod" {
		t.Fatalf("got %+v, %v", r, err)
	}
	// What an import writes into the state is read as the same engine.
	k := kind(t)
	var m model
	m.setSpec(t.Context(), r.Spec, k)
	again, err := m.spec(k)
	if err != nil {
		t.Fatal(err)
	}
	back := desiredOf(t, func(s *engines.Spec) { *s = again })
	if string(back.service.Config.Content) != string(d.service.Config.Content) {
		t.Errorf("got\n%s\nwant\n%s", back.service.Config.Content, d.service.Config.Content)
	}
	if !m.KVCache.IsNull() || !m.Runtime.IsNull() || !m.Staging.IsNull() || m.Ingest.IsNull() || !m.Parallel.IsNull() {
		t.Error("defaults are not null, or a set value is")
	}
	for _, bad := range []string{"", "{}", "[]"} {
		if _, err := parseRecord([]byte(bad)); err == nil {
			t.Errorf("%q is read as a record", bad)
		}
	}
}

func TestRegistrationStatus(t *testing.T) {
	t.Parallel()
	want := desiredOf(t, nil).registration
	same := want
	same.UID, same.MaxInFlight = 990, 64<<20 // the host's and the daemon's own
	smaller := want
	smaller.StagingBytes /= 2
	for word, got := range map[string]*api.EngineStatus{
		service.OK: {Engine: same}, service.Changed: {Engine: smaller}, service.Missing: nil, "draining": {Engine: same, Draining: true},
	} {
		if s := registrationStatus(got, want); s != word {
			t.Errorf("got %s, want %s", s, word)
		}
	}
	replicas := want
	replicas.DataSize = 2
	if !needsRestart(replicas, want) {
		t.Error("replicas come without a restart")
	}
	role := want
	role.EngineRole = "both"
	if needsRestart(role, want) || !needsRestart(smaller, want) {
		t.Error("restarts are misjudged")
	}
}

func TestDying(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit systemd.Show
		base int
		want bool
	}{
		{systemd.Show{ActiveState: "active", NRestarts: 3}, 3, false},
		{systemd.Show{ActiveState: "active", NRestarts: 4}, 3, true},
		{systemd.Show{ActiveState: "activating", SubState: "auto-restart"}, 0, true},
		{systemd.Show{ActiveState: "activating", SubState: "auto-restart-queued"}, 0, true},
		{systemd.Show{ActiveState: "activating", SubState: "start"}, 0, false},
		{systemd.Show{ActiveState: "failed"}, 0, true},
	} {
		if got := dying(service.Found{Unit: c.unit}, c.base); got != c.want {
			t.Errorf("%+v: got %v", c.unit, got)
		}
	}
}

func TestBlame(t *testing.T) {
	t.Parallel()
	s := engines.Spec{Model: engines.Model{ID: "moai/seeded"}}
	extra := s
	extra.ExtraArgs = []string{"--x"}
	for _, c := range []struct {
		spec engines.Spec
		exit int
		log  string
		want string
	}{
		{s, 203, "", "runtime.path"},
		{s, 1, "Failed to locate executable /x: No such file", "runtime.path"},
		{extra, 1, "flag provided but not defined: -x", "extra_args"},
		{s, 1, "no model moai/seeded here", "model.id"},
		{s, 1, "out of memory", "kind"},
	} {
		if got := blame(c.spec, c.exit, c.log); got != c.want {
			t.Errorf("%d %q: got %s, want %s", c.exit, c.log, got, c.want)
		}
	}
}

func TestUnknownPartsOfAModel(t *testing.T) {
	t.Parallel()
	k := kind(t)
	var m model
	m.setSpec(t.Context(), k.Defaults(engines.Spec{Name: "e", Kind: "reference", Role: engines.RoleBoth, Model: engines.Model{ID: "moai/seeded"}}), k)
	if !m.specKnown(t.Context()) {
		t.Error("a known model is not known")
	}
	m.ExtraArgs = types.ListUnknown(types.StringType)
	if m.specKnown(t.Context()) {
		t.Error("an unknown argument is known")
	}
	m.settle()
	if m.Ready.IsUnknown() || m.Installed.IsUnknown() {
		t.Error("a settled model holds unknowns")
	}
}

func TestAttributePath(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"extra_args.1": "extra_args[1]", "kv_cache.dtype": "kv_cache.dtype", "env.A_1": `env["A_1"]`, "env": "env"} {
		if got := attributePath(name).String(); got != want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	k, err := engines.Lookup("reference")
	if err != nil {
		f.Fatal(err)
	}
	s := k.Defaults(engines.Spec{Name: "e", Kind: "reference", Role: engines.RoleBoth, Model: engines.Model{ID: "moai/seeded"}})
	b, err := configFor(systemd.Owner{Fleet: "prod", Resource: "moai_engine.e", Writer: "w"}, s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		again, err := configFor(systemd.Owner{Fleet: r.Fleet, Resource: r.Resource, Writer: r.Writer}, r.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if r2, err := parseRecord(again); err != nil || r2.Spec.Name != r.Spec.Name || r2.Fleet != r.Fleet {
			t.Fatalf("got %+v, %v", r2, err)
		}
	})
}
