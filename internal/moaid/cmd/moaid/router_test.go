package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/sdnotify"
)

func TestRouter(t *testing.T) {
	dir := t.TempDir()
	cfg := config.RouterConfig{
		Name: "front", Listen: "127.0.0.1:0", KeyFile: filepath.Join(dir, "router.key"),
		Pairs: []config.Pair{{Name: "main", Model: "m", Decode: []config.Engine{{
			Node: "d", Engine: "e", Addresses: []string{"127.0.0.1:1"},
			PublicKey: "ed25519:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)),
		}}}},
	}
	b, err := cfg.Render()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "front.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := runRouter(t.Context(), []string{"--config", file, "--check"}); code != 0 {
		t.Errorf("--check of a good file: %d", code)
	}
	if _, err := os.Stat(cfg.KeyFile); err == nil {
		t.Error("--check made a key")
	}

	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv(sdnotify.EnvSocket, socket)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- runRouter(ctx, []string{"--config", file}) }()
	var told []string
	buf := make([]byte, 4096)
	for want := range strings.SplitSeq("READY=1,STATUS=m: prefill 0/0,STOPPING=1", ",") {
		for {
			n, err := l.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, string(buf[:n]))
			if strings.HasPrefix(told[len(told)-1], want) {
				break
			}
		}
		if strings.HasPrefix(want, "STATUS") {
			cancel() // as SIGTERM does
		}
	}
	if code := <-done; code != 0 {
		t.Errorf("exit status %d; systemd was told %q", code, told)
	}
	if info, err := os.Stat(cfg.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	cancel()
}

func TestRouterRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"name":"x","listn":""}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{nil, 2}, {[]string{"--config", bad, "more"}, 2}, {[]string{"--config", bad}, 1}, {[]string{"--config", bad + "x"}, 1},
	} {
		if got := runRouter(t.Context(), c.args); got != c.code {
			t.Errorf("%q: exit status %d, want %d", c.args, got, c.code)
		}
	}
}
