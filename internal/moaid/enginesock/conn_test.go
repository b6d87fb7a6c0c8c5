package enginesock

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func connPair(t *testing.T) (a, b *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err = Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	uc, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	b = NewConn(uc)
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func TestConnCarriesPacketsAndDescriptors(t *testing.T) {
	a, b := connPair(t)
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	if err := a.Write([]byte("one"), nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Write([]byte("two"), f); err != nil {
		t.Fatal(err)
	}
	p, got, err := b.Read()
	if err != nil || string(p) != "one" || got != nil {
		t.Fatalf("first packet: %q, %v, %v", p, got, err)
	}
	p, got, err = b.Read()
	if err != nil || string(p) != "two" || got == nil {
		t.Fatalf("second packet: %q, %v, %v", p, got, err)
	}
	defer func() { _ = got.Close() }()
	buf := make([]byte, 5)
	if _, err := got.ReadAt(buf, 0); err != nil || string(buf) != "hello" {
		t.Errorf("the descriptor reads %q, %v", buf, err)
	}
	if peer, err := b.Peer(); err != nil || peer.PID != os.Getpid() || peer.UID != os.Getuid() {
		t.Errorf("peer is %+v, %v", peer, err)
	}
	_ = a.Close()
	if _, _, err := b.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the end reads %v, want EOF", err)
	}
}

func TestConnRefusesLongPackets(t *testing.T) {
	a, b := connPair(t)
	if err := a.Write(make([]byte, MaxPacket+1), nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("a long packet was sent: %v", err)
	}
	if _, _, err := a.uc.WriteMsgUnix(make([]byte, MaxPacket+1), nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Read(); !errors.Is(err, ErrMalformed) {
		t.Errorf("a long packet was read: %v", err)
	}
	if err := a.Write(make([]byte, MaxPacket), nil); err != nil {
		t.Fatal(err)
	}
	if p, _, err := b.Read(); err != nil || len(p) != MaxPacket {
		t.Errorf("the longest packet: %d bytes, %v", len(p), err)
	}
}

func TestConnRefusesSeveralDescriptors(t *testing.T) {
	a, b := connPair(t)
	if _, _, err := a.uc.WriteMsgUnix([]byte("{}"), unix.UnixRights(0, 1), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Read(); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v", err)
	}
}
