package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/sse"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

const (
	// streamBuffer holds what was read and not yet passed on: usually one event.
	streamBuffer = 16 << 10
	// maxEvent bounds one event, in bytes.
	maxEvent = 16 << 20
)

// buffers are of streamBuffer bytes; grown ones are not put back.
var buffers = sync.Pool{New: func() any { return new([streamBuffer]byte) }}

// errDecodeSaid says that the engine ended the stream by an error of its own.
var errDecodeSaid = errors.New("the engine ended the stream with an error")

// errEngineFailed says so of a stream that began with the engine's end.
var errEngineFailed = errors.New("the engine has failed")

var errEventTooLong = fmt.Errorf("an event is longer than %d bytes", maxEvent)

// passStream passes events on as they come, whole ones only, so that a stream
// which breaks can still end with an event that says so. A stream that breaks
// before its first event is no answer: another engine may be asked.
func (x *exchange) passStream(client, ctx context.Context, cancel context.CancelCauseFunc, a *attempt) (answered bool, err error) {
	t := newTarget(x.w, time.Duration(x.g.timeouts.Client))
	t.first = func() {
		x.rec.stage, x.rec.status = stageStream, a.status
		x.verdict(ctx, a.header)
		x.passHeader(a.header)
		x.w.WriteHeader(a.status)
	}
	idle := time.AfterFunc(time.Duration(x.g.timeouts.StreamIdle), func() { cancel(errStreamIdle) })
	err = x.copyEvents(a.stream.Body, t, idle)
	idle.Stop()
	gone := errors.Is(err, errClientGone) || client.Err() != nil && !errors.Is(context.Cause(client), errStopped)
	if err != nil {
		// Stops the engine before its connection could be used again.
		cancel(err)
	}
	cerr := a.stream.Body.Close()
	switch {
	case err == nil:
		x.decode.end(route.Success)
		err = errors.Join(cerr, t.release())
	case gone:
		x.decode.end(route.Neutral)
		x.abandon(ctx)
		return true, errClientGone
	case t.first != nil:
		class := upstream.ClassCut
		if errors.Is(context.Cause(ctx), errStreamIdle) {
			class = upstream.ClassTimeout
		}
		de := &decodeError{engine: x.decode.String(), class: class, err: err}
		if errors.Is(err, errEngineFailed) {
			de.class, de.status = upstream.ClassStatus, http.StatusInternalServerError
		}
		return false, de
	default:
		x.decode.end(route.Failure)
		x.abandon(ctx)
		if errors.Is(err, errDecodeSaid) { // the client has the engine's own words
			x.rec.err = "decode_stream_failed"
			x.g.metrics.upstreamError(x.decode.e.Node, "decode", "stream")
			err = t.release()
			break
		}
		err = x.tellBroken(ctx, t, err)
	}
	if err != nil {
		return true, fmt.Errorf("%w: %w", errClientGone, err)
	}
	return true, nil
}

// tellBroken ends a broken stream with an event that clients read as an error.
func (x *exchange) tellBroken(ctx context.Context, t *target, err error) error {
	code, what := "decode_stream_cut", err.Error()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStreamIdle):
		code, what = "decode_stream_idle", errStreamIdle.Error()
	case errors.Is(cause, errStopped):
		code, what = "router_stopped", errStopped.Error()
	}
	x.rec.err = code
	x.g.metrics.upstreamError(x.decode.e.Node, "decode", "stream")
	f := failure{http.StatusBadGateway, fmt.Sprintf("the answer is incomplete: engine %s: %s", x.decode, what), kindUpstream, "", code}
	event := append(append([]byte("data: "), f.body()...), "\n\n"...)
	x.rec.bytesOut += len(event)
	return errors.Join(t.write(event), t.release())
}

// copyEvents copies until the stream says that it is complete and ends. The
// error is errClientGone if it is the client's.
func (x *exchange) copyEvents(from io.Reader, t *target, idle *time.Timer) error {
	pooled, ok := buffers.Get().(*[streamBuffer]byte)
	if !ok {
		pooled = new([streamBuffer]byte)
	}
	defer buffers.Put(pooled)
	buf := pooled[:0]
	var c sse.Counter
	var last time.Time
	for {
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		length, events := c.Complete(buf)
		failed := c.Failed // and not by what may be half an event
		if events > 0 {
			now := time.Now()
			x.observe(now, last, events)
			last = now
		}
		if !failed && errors.Is(err, io.EOF) && length < len(buf) && c.Finish(buf[length:]) {
			length = len(buf)
		}
		if failed && t.first != nil {
			_, payload, _ := bytes.Cut(buf[:length], []byte("data:"))
			if _, code := says(payload); code == codeEngineFailed {
				return errEngineFailed // nothing was passed on: another engine may answer
			}
		}
		if length > 0 {
			idle.Reset(time.Duration(x.g.timeouts.StreamIdle))
			x.rec.bytesOut += length
			if werr := t.write(buf[:length]); werr != nil {
				return fmt.Errorf("%w: %w", errClientGone, werr)
			}
			buf = buf[:copy(buf, buf[length:])]
		}
		switch {
		case failed:
			return errDecodeSaid
		case err != nil && c.Done:
			return nil // what breaks after the end does not matter
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case len(buf) == cap(buf) && cap(buf) >= maxEvent:
			return errEventTooLong
		case len(buf) == cap(buf):
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
	}
}

// observe measures events that came at once.
func (x *exchange) observe(now, last time.Time, events int) {
	m := x.g.metrics
	if last.IsZero() {
		x.rec.ttft = now.Sub(x.rec.start)
		m.ttft.WithLabelValues(x.rec.route).Observe(x.rec.ttft.Seconds())
	} else {
		m.itl.Observe(now.Sub(last).Seconds())
	}
	for range events - 1 {
		m.itl.Observe(0)
	}
	m.events.Add(float64(events))
	x.rec.events += events
}

// target writes to a client and gives up on one that does not read.
type target struct {
	w        io.Writer
	rc       *http.ResponseController
	patience time.Duration
	armed    time.Time
	first    func() // called before the first write, nil afterwards
}

func newTarget(w http.ResponseWriter, patience time.Duration) *target {
	return &target{w: w, rc: http.NewResponseController(w), patience: patience}
}

// write writes and flushes.
func (t *target) write(b []byte) error {
	if t.first != nil {
		t.first()
		t.first = nil
	}
	if now := time.Now(); now.Sub(t.armed) > t.patience/8 {
		t.armed = now
		if err := t.rc.SetWriteDeadline(now.Add(t.patience)); err != nil {
			return err
		}
	}
	if _, err := t.w.Write(b); err != nil {
		return err
	}
	return t.rc.Flush()
}

// release lifts the deadline: the connection may serve further requests.
func (t *target) release() error { return t.rc.SetWriteDeadline(time.Time{}) }
