package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

func TestUpdateSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	put := func(st *State) error {
		st.Trust["a"] = api.Trust{Name: "a"}
		st.Draining["e"] = true
		return nil
	}
	if err := s.Update(put, func(State) { applied++ }); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	before := s.Get()
	if err := s.Update(func(st *State) error { delete(st.Trust, "a"); return no }, func(State) { applied++ }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if len(before.Trust) != 1 || len(s.Get().Trust) != 1 || applied != 1 {
		t.Error("a failed change had an effect")
	}
	again, err := Open(path)
	if err != nil || again.Get().Trust["a"].Name != "a" || !again.Get().Draining["e"] || again.Get().Pairs == nil {
		t.Errorf("%+v %v", again, err)
	}
	if files, _ := filepath.Glob(path + ".*"); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

func TestFailedWriteHasNoEffect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	s, err := Open(filepath.Join(dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(func(st *State) error { st.Trust["a"] = api.Trust{}; return nil }, func(State) { t.Error("applied") })
	if err == nil || len(s.Get().Trust) != 0 {
		t.Errorf("%v %v", err, s.Get())
	}
}

func TestDamagedState(t *testing.T) {
	for _, text := range []string{"{", `{"version":1}`} {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
