package sdnotify_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/sdnotify"
)

func TestSendReachesTheSocketInOneMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv(sdnotify.EnvSocket, path)
	n, err := sdnotify.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Send(sdnotify.Ready, sdnotify.Status("up\n%d engines", 2)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	c, err := l.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b[:c]), "READY=1\nSTATUS=up 2 engines"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutsideSystemd(t *testing.T) {
	n, err := sdnotify.New("")
	if err != nil || n.Enabled() || n.Send(sdnotify.Ready) != nil {
		t.Error("a notifier without a socket must do nothing")
	}
	var zero *sdnotify.Notifier
	if err := zero.Send(sdnotify.Ready); err != nil {
		t.Error(err)
	}
	if _, err := sdnotify.New("vsock:2:1"); err == nil {
		t.Error("a vsock address was taken")
	}
	n, err = sdnotify.New(filepath.Join(t.TempDir(), "nobody"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Send(sdnotify.Ready); err == nil {
		t.Error("no error though nobody listens")
	}
}

func TestWatchdogInterval(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0}, {"x", "", 0}, {"-1", "", 0},
		{"2000000", "", time.Second}, {"2000000", "1", 0},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		if got := sdnotify.WatchdogInterval(); got != c.want {
			t.Errorf("usec %q pid %q: %v, want %v", c.usec, c.pid, got, c.want)
		}
	}
}
