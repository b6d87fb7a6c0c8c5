// Package store keeps what the management API was told: one JSON file, replaced
// as a whole, so that a crash leaves either the old state or the new one.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// State is what survives a restart of the daemon.
type State struct {
	Version  int                   `json:"version"`
	Trust    map[string]api.Trust  `json:"trust"`
	Links    map[string]api.Link   `json:"links"`
	Engines  map[string]api.Engine `json:"engines"`
	Draining map[string]bool       `json:"draining"`
	Pairs    map[string]api.Pair   `json:"pairs"`
}

func empty() State {
	return State{Trust: map[string]api.Trust{}, Links: map[string]api.Link{}, Engines: map[string]api.Engine{}, Draining: map[string]bool{}, Pairs: map[string]api.Pair{}}
}

func (s State) clone() State {
	return State{Version: s.Version, Trust: maps.Clone(s.Trust), Links: maps.Clone(s.Links), Engines: maps.Clone(s.Engines), Draining: maps.Clone(s.Draining), Pairs: maps.Clone(s.Pairs)}
}

// Store is the state and its file. It is safe for concurrent use; a State that
// it gave must not be changed.
type Store struct {
	path  string
	write sync.Mutex // one change at a time, across its file I/O
	mu    sync.Mutex
	state State
}

// Open reads the state at path; a file that is not there is an empty state.
func Open(path string) (*Store, error) {
	s := &Store{path: path, state: empty()}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the daemon's state: %w", err)
	}
	if err := json.Unmarshal(b, &s.state); err != nil {
		return nil, fmt.Errorf("the daemon's state %s is damaged: %w; remove it and apply again", path, err)
	}
	if s.state.Version != 0 {
		return nil, fmt.Errorf("the daemon's state %s has version %d, this moaid knows 0", path, s.state.Version)
	}
	e, st := empty(), &s.state
	st.Trust, st.Links, st.Engines = or(st.Trust, e.Trust), or(st.Links, e.Links), or(st.Engines, e.Engines)
	st.Draining, st.Pairs = or(st.Draining, e.Draining), or(st.Pairs, e.Pairs)
	return s, nil
}

func or[M ~map[K]V, K comparable, V any](m, other M) M {
	if m == nil {
		return other
	}
	return m
}

// Get is the present state.
func (s *Store) Get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Update lets change edit a copy, writes it, and then makes it the present state
// and calls apply with it, in the order of the changes. If change or the writing
// fails nothing happened.
func (s *Store) Update(change func(*State) error, apply func(State)) error {
	s.write.Lock()
	defer s.write.Unlock()
	next := s.Get().clone()
	if err := change(&next); err != nil {
		return err
	}
	b, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("encode the daemon's state: %w", err)
	}
	if err := replace(s.path, append(b, '\n')); err != nil {
		return fmt.Errorf("store the daemon's state: %w", err)
	}
	s.mu.Lock()
	s.state = next
	s.mu.Unlock()
	apply(next)
	return nil
}

// replace writes b beside path and renames it there, durably.
func replace(path string, b []byte) (err error) {
	dir := filepath.Dir(path)
	// One name: what a crash leaves half written is overwritten by the next change.
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	d, err := os.Open(dir) // before the change: afterwards nothing may fail that can fail before
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, d.Close())
	}
	// The new state is there; what is left is whether it outlives a loss of power.
	return errors.Join(d.Sync(), d.Close())
}
