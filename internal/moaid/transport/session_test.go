package transport

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func pseudo(n int, seed uint64) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

func TestFramesAndChunksBothWays(t *testing.T) {
	noLeaks(t)
	for _, enc := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		for _, streams := range []int{1, 4} {
			a, b := pair(t, enc, streams, nil)
			sa, sb := a.rec.await(t, "up").s, b.rec.await(t, "up").s
			if sa.ID() != sb.ID() || sa.Peer() != "b" || sb.Peer() != "a" || sa.Encryption() != enc || sb.Encryption() != enc {
				t.Fatalf("sessions differ: %v %v", sa, sb)
			}
			if sa.Instance() != (wire.ID{1, 'b'}) {
				t.Errorf("instance %v", sa.Instance())
			}
			for _, dir := range []struct {
				s  Session
				to *node
			}{{sa, b}, {sb, a}} {
				if err := dir.s.Send(&wire.Commit{ID: wire.ID{7}}); err != nil {
					t.Fatal(err)
				}
				if m, ok := dir.to.rec.await(t, "message").m.(*wire.Commit); !ok || m.ID != (wire.ID{7}) {
					t.Errorf("got %v", m)
				}
				want := pseudo(3*wire.MaxChunk+1, uint64(streams))
				dir.to.rec.mu.Lock()
				dir.to.rec.memory = make([]byte, len(want))
				dir.to.rec.mu.Unlock()
				n := 0
				for off := 0; off < len(want); off += wire.MaxChunk {
					p := want[off:min(off+wire.MaxChunk, len(want))]
					if err := dir.s.SendChunk(context.Background(), 0, wire.ID{9}, int64(off), [][]byte{p[:len(p)/3], nil, p[len(p)/3:]}); err != nil {
						t.Fatal(err)
					}
					n++
				}
				for range n {
					if e := dir.to.rec.await(t, "done"); e.err != nil || e.h.ID != (wire.ID{9}) {
						t.Errorf("chunk %v: %v", e.h, e.err)
					}
				}
				if !bytes.Equal(dir.to.rec.memory, want) {
					t.Error("other bytes arrived")
				}
				if st := dir.to.mux.Status("l"); st.BytesReceived != int64(len(want)) || !st.Up || st.LastError != "" {
					t.Errorf("status %+v", st)
				}
			}
			eventually(t, "an RTT", func() bool { return a.mux.Status("l").RTT > 0 && b.mux.Status("l").RTT > 0 })
			sa.Close(wire.CodeCancelled, "test over")
			if e := b.rec.await(t, "down"); !isEnd(e.err, wire.CodeCancelled, true) || !errors.Is(e.err, net.ErrClosed) {
				t.Errorf("b: %v", e.err)
			}
			if e := a.rec.await(t, "down"); !isEnd(e.err, wire.CodeCancelled, false) {
				t.Errorf("a: %v", e.err)
			}
			if err := sa.Send(&wire.Commit{}); err == nil {
				t.Error("sent on a session that is down")
			}
			if err := sa.SendChunk(context.Background(), 0, wire.ID{}, 0, [][]byte{{1}}); err == nil {
				t.Error("sent a chunk on a session that is down")
			}
		}
	}
}

func isEnd(err error, code wire.Code, remote bool) bool {
	var e *SessionError
	return errors.As(err, &e) && e.Code == code && e.Remote == remote
}
