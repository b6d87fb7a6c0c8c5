package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// sink receives chunks into its memory and counts them.
type sink struct {
	*recorder
	memory []byte
	left   atomic.Int64
	empty  chan struct{}
}

func (s *sink) ChunkTarget(_ Session, h wire.ChunkHeader) ([][]byte, bool, error) {
	return [][]byte{s.memory[h.Offset:][:h.Length]}, true, nil
}

func (s *sink) ChunkDone(Session, wire.ChunkHeader, error) {
	if s.left.Add(-1) == 0 {
		s.empty <- struct{}{}
	}
}

// BenchmarkChunks moves full chunks from pages to pages, gathered from pages of
// 16 KiB, over loopback, one sender a stream.
func BenchmarkChunks(b *testing.B) {
	const window = 64 * wire.MaxChunk
	for _, enc := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		for _, streams := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/streams=%d", enc, streams), func(b *testing.B) {
				to := &sink{recorder: newRecorder(), memory: make([]byte, window), empty: make(chan struct{}, 1)}
				from, dst := newNode(b, "a", nil), newNode(b, "b", func(o *Options) { o.Handler = to })
				connect(from, dst, enc, streams, nil)
				s := from.rec.await(b, "up").s
				src := pseudo(window, 1)
				to.left.Store(int64(b.N))
				b.SetBytes(wire.MaxChunk)
				b.ResetTimer()
				before := cpuSeconds(b)
				var next atomic.Int64
				var wg sync.WaitGroup
				for range streams {
					wg.Go(func() {
						parts := make([][]byte, 0, 16)
						for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
							off := i * wire.MaxChunk % window
							parts = parts[:0]
							for p := off; p < off+wire.MaxChunk; p += 16 << 10 {
								parts = append(parts, src[p:][:16<<10])
							}
							if err := s.SendChunk(context.Background(), 0, wire.ID{1}, off, parts); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				<-to.empty
				b.StopTimer()
				b.ReportMetric((cpuSeconds(b)-before)*1e9/float64(b.N*wire.MaxChunk), "cpu-s/GB")
			})
		}
	}
}

// cpuSeconds is what this process, both ends, has used: unlike MB/s it says
// something on a machine that others use too.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
