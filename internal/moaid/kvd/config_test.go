package kvd

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLoadConfig(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"least":         {`{"node":"h100-0"}`, true},
		"all":           {`{"node":"n","listen":["127.0.0.1:1"],"state_dir":"/a","run_dir":"/b","log_level":"debug"}`, true},
		"unknown field": {`{"node":"n","port":1}`, false},
		"no node":       {`{}`, false},
		"bad node":      {`{"node":"N"}`, false},
		"bad level":     {`{"node":"n","log_level":"loud"}`, false},
		"no listen":     {`{"node":"n","listen":[]}`, false},
		"no JSON":       {`node`, false},
	} {
		path := filepath.Join(t.TempDir(), "kvd.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := LoadConfig(path)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if c.ok && name == "least" && (got.Listen[0] != DefaultListen || got.StateDir != DefaultStateDir || got.RunDir != DefaultRunDir) {
			t.Errorf("defaults: %+v", got)
		}
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was accepted")
	}
}
