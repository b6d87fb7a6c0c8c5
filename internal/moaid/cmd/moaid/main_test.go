package main

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	var out bytes.Buffer
	if code := dispatch(t.Context(), []string{"help"}, &out); code != 0 {
		t.Errorf("help exits with %d", code)
	}
	for _, name := range []string{"kvd", "dial", "keygen", "version", "router"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("the usage does not name %s", name)
		}
	}
	if code := dispatch(t.Context(), []string{"dance"}, io.Discard); code != 2 {
		t.Errorf("an unknown command exits with %d", code)
	}
	if code := dispatch(t.Context(), nil, io.Discard); code != 2 {
		t.Errorf("no command exits with %d", code)
	}
}

// TestDialHalfClose: the answer that comes after the end of stdin arrives.
func TestDialHalfClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(c)
		_, _ = c.Write([]byte("heard " + string(b)))
		_ = c.Close()
	}()
	var out bytes.Buffer
	if err := dial(t.Context(), path, strings.NewReader("hello"), &out); err != nil || out.String() != "heard hello" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// TestDialEndsWithTheSocket: the other end's close ends it, though stdin stays open.
func TestDialEndsWithTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	in, never := io.Pipe()
	defer func() { _ = never.Close() }()
	done := make(chan error, 1)
	go func() { done <- dial(t.Context(), path, in, io.Discard) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("dial goes on")
	}
	if err := dial(t.Context(), path+"x", in, io.Discard); err == nil || !strings.Contains(err.Error(), "moai-kvd.service") {
		t.Errorf("no daemon: %v", err)
	}
}
