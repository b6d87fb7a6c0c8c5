package node

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

const (
	shaA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	shaB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func state(f host.File, content string) host.FileState {
	return host.FileState{Path: f.Path, Kind: "file", SHA256: content, Mode: 0o644, Owner: "root", Group: "root"}
}

func wholesome(t *testing.T) (observed, desired) {
	t.Helper()
	d, err := desire("prod", fleet.Coordinates{Name: "a", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	return observed{
		binary: host.FileState{Path: host.MoaidPath, Kind: "file", SHA256: shaA, Mode: 0o755, Owner: "root", Group: "root"},
		unit:   state(d.unit, host.SHA256(d.unit.Content)),
		config: state(d.config, host.SHA256(d.config.Content)),
		key:    host.FileState{Path: keyPath, Kind: "file", SHA256: shaB, Mode: 0o600, Owner: "moai", Group: "moai"},
		show:   systemd.Show{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"},
		marker: &host.Marker{Fleet: "prod", Resource: "moai_node.a", MoaidSHA256: shaA},
		daemon: &api.Status{Node: "a", ContentSHA256: shaA},
	}, d
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*observed)
		want    func(*status)
		restart bool
	}{
		{"wholesome", func(*observed) {}, func(*status) {}, false},
		{"unit edited", func(o *observed) { o.unit.SHA256 = shaB }, func(s *status) { s.unit = stChanged }, true},
		{"unit gone", func(o *observed) { o.unit.Kind = "" }, func(s *status) { s.unit = stMissing }, true},
		{"config writable for others", func(o *observed) { o.config.Mode = 0o666 }, func(s *status) { s.config = stChanged }, true},
		{"binary replaced", func(o *observed) { o.binary.SHA256, o.daemon.ContentSHA256 = shaB, shaB }, func(s *status) { s.moaid = stChanged }, true},
		{"binary gone, daemon runs", func(o *observed) { o.binary.Kind = "" }, func(s *status) { s.moaid = stMissing }, true},
		{"binary writable for others", func(o *observed) { o.binary.Mode = 0o777 }, func(s *status) { s.moaid = stChanged }, true},
		{"daemon runs an older binary", func(o *observed) { o.daemon.ContentSHA256 = shaB }, func(s *status) { s.service = stOutdated }, true},
		{"daemon of another name", func(o *observed) { o.daemon.Node = "b" }, func(s *status) { s.service = stOutdated }, true},
		{"unit not loaded", func(o *observed) { o.show.NeedDaemonReload = true }, func(s *status) { s.service = stOutdated }, true},
		{"daemon silent", func(o *observed) { o.daemon = nil }, func(s *status) { s.service = "unresponsive" }, true},
		{"stopped", func(o *observed) { o.show.ActiveState, o.daemon = "inactive", nil }, func(s *status) { s.service = "inactive" }, true},
		{"failed", func(o *observed) { o.show.ActiveState, o.daemon = "failed", nil }, func(s *status) { s.service = "failed" }, true},
		{"not at boot", func(o *observed) { o.show.UnitFileState = "disabled" }, func(s *status) { s.boot = stDisabled }, false},
		{"no marker", func(o *observed) { o.marker = nil }, func(s *status) { s.marker = stMissing }, false},
		{"other fleet", func(o *observed) { o.marker.Fleet = "x" }, func(s *status) { s.marker = stForeign }, false},
		{"other resource", func(o *observed) { o.marker.Resource = "moai_node.b" }, func(s *status) { s.marker = stForeign }, false},
		{"interrupted", func(o *observed) { o.marker.MoaidSHA256 = "" }, func(s *status) { s.marker = stPending }, true},
		{"key gone", func(o *observed) { o.key.Kind = "" }, func(s *status) { s.key = stMissing }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, d := wholesome(t)
			c.change(&o)
			want := healthy
			c.want(&want)
			got := o.judge("prod", "a", d)
			if got != want {
				t.Errorf("judge() = %+v, want %+v", got, want)
			}
			if got.needsRestart() != c.restart {
				t.Errorf("needsRestart() = %v, want %v", !c.restart, c.restart)
			}
			if o.absent() {
				t.Error("something is there, and counts as absent")
			}
		})
	}
}

// Absence takes proof of every part.
func TestAbsent(t *testing.T) {
	gone := observed{show: systemd.Show{LoadState: "not-found", ActiveState: "inactive"}}
	if !gone.absent() {
		t.Error("nothing is there, and does not count as absent")
	}
	full, _ := wholesome(t)
	for name, change := range map[string]func(*observed){
		"marker": func(o *observed) { o.marker = full.marker },
		"binary": func(o *observed) { o.binary = full.binary },
		"unit":   func(o *observed) { o.unit = full.unit },
		"config": func(o *observed) { o.config = full.config },
		"loaded": func(o *observed) { o.show = full.show },
	} {
		o := gone
		change(&o)
		if o.absent() {
			t.Errorf("the %s is there, and counts as absent", name)
		}
	}
}

func TestDesire(t *testing.T) {
	d, err := desire("prod", fleet.Coordinates{Name: "a", Host: "h", Fabric: []fleet.Endpoint{{Address: "198.51.100.1"}, {Address: "2001:db8::1", Port: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `"198.51.100.1:9610",`; !strings.Contains(string(d.config.Content), want) || !strings.Contains(string(d.config.Content), `"[2001:db8::1]:1"`) {
		t.Errorf("kvd.json is %s", d.config.Content)
	}
	text := string(d.unit.Content)
	if o, intact, ok := systemd.ReadStamp(text); !ok || !intact || o.Fleet != "prod" || o.Resource != "moai_node.a" {
		t.Errorf("stamp is %+v, intact %v, ok %v", o, intact, ok)
	}
	for _, want := range []string{"ExecStart=/opt/moai/bin/moaid kvd --config /etc/moai/kvd.json\n", "User=moai\n", "NoNewPrivileges=yes\n", "ProtectSystem=strict\n", "LimitMEMLOCK=infinity\n", "Type=notify\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("unit has no %q", want)
		}
	}
	// The daemon reads its clients' /proc entries.
	if strings.Contains(text, "ProtectProc") {
		t.Error("unit hides other users' processes")
	}
}
