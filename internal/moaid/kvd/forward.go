package kvd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/intake"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Headers between gateways and the daemon.
const (
	headerTransfer = "X-Moai-Transfer"
	headerSource   = "X-Moai-Source"
	headerHold     = "X-Moai-Hold-Ms"
	headerVerdict  = "X-Moai-Transfer-Verdict"
	// headerDataRank tells an engine with several data-parallel replicas which of
	// them has the KV. It is the name that vLLM's server knows.
	headerDataRank = "X-data-parallel-rank"
)

// forwards are the requests that are on their way, by transfer id, so that a
// cancellation reaches them.
type forwards struct {
	mu    sync.Mutex
	count int
	m     map[string]map[*forward]struct{}
	empty chan struct{} // closed when there is none; nil until somebody waits
}

type forward struct{ cancel context.CancelCauseFunc }

var errCancelled = errors.New("the request was cancelled")

func (f *forwards) add(id string, x *forward) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count >= maxForwards {
		return false
	}
	f.count++
	if id != "" {
		if f.m[id] == nil {
			f.m[id] = map[*forward]struct{}{}
		}
		f.m[id][x] = struct{}{}
	}
	return true
}

func (f *forwards) remove(id string, x *forward) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	if delete(f.m[id], x); len(f.m[id]) == 0 {
		delete(f.m, id)
	}
	if f.count == 0 && f.empty != nil {
		close(f.empty)
		f.empty = nil
	}
}

func (f *forwards) cancel(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for x := range f.m[id] {
		x.cancel(errCancelled)
	}
}

// target is where a request goes, as the owner said.
type target struct {
	socket   string
	verdict  <-chan transfer.Verdict // nil: nothing to wait for
	replica  *replica                // that the KV comes to; set with verdict
	dataRank string                  // the replica that must compute it; empty: any
}

// forwardTo sends a request to an engine's socket, after its KV has come. The
// body is read to its end first: only then does the server notice that a client
// leaves, and only then can nothing of it be left in a cut stream.
//
// prefix is what comes before the engine's own path.
func (d *Daemon) forwardTo(w http.ResponseWriter, r *http.Request, name, prefix string) {
	if r.Method == http.MethodConnect {
		apiError(w, http.StatusMethodNotAllowed, "bad_request", "CONNECT is not forwarded", "")
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	body, release, err := d.bodies.Read(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength)
	if err != nil {
		refuseBody(w, err)
		return
	}
	defer release()
	id := strings.ToLower(r.Header.Get(headerTransfer))
	fw := &forward{cancel}
	if !d.forwards.add(id, fw) {
		apiError(w, http.StatusServiceUnavailable, "too_many", "too many requests are being forwarded", "")
		return
	}
	defer d.forwards.remove(id, fw)
	if d.ending() { // asked after it was counted, so that none is missed
		refuseStopping(w)
		return
	}
	tg, aerr := d.route(ctx, name, id, r.Header.Get(headerSource))
	if aerr != nil {
		known := name
		if aerr.Code == "unknown_engine" {
			known = "" // names that clients invent must not make the metrics grow
		}
		d.metrics.forwarded.WithLabelValues(known, aerr.Code).Inc()
		writeError(w, statusOf(aerr.Code), aerr)
		return
	}
	if tg.verdict != nil {
		w1, _ := wire.ParseID(id) // was parsed before
		defer d.own.post(func() { d.unhold(w1, tg.replica, tg.verdict) })
		if !d.await(ctx, w, tg.verdict) {
			return
		}
	}
	d.relay(ctx, w, r, name, prefix, tg, body)
}

// engineURL is what a request's URL is for the engine: what follows prefix, as
// it was written. Decoding it first would make other paths of escaped ones.
func engineURL(r *http.Request, prefix string) (*url.URL, error) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix)
	if !ok {
		return nil, fmt.Errorf("the path does not begin with %s", prefix)
	}
	path, err := url.PathUnescape(rest)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "http", Host: "engine", Path: "/" + path, RawPath: "/" + rest, RawQuery: r.URL.RawQuery}, nil
}

func refuseBody(w http.ResponseWriter, err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		apiError(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is longer than %d bytes", maxBody), "")
	case errors.Is(err, intake.ErrFull):
		apiError(w, http.StatusServiceUnavailable, "too_many", err.Error(), "")
	default:
		apiError(w, http.StatusBadRequest, "bad_request", "read the body: "+err.Error(), "")
	}
}

// route finds the engine and, for a request that names a transfer and its
// source, claims.
func (d *Daemon) route(ctx context.Context, name, id, source string) (target, *api.Error) {
	var tg target
	var fail *api.Error
	var w wire.ID
	var from enginesock.Endpoint
	if id != "" {
		var err error
		if w, err = wire.ParseID(id); err != nil {
			return tg, &api.Error{Code: "bad_request", Message: headerTransfer + ": " + err.Error()}
		}
	}
	if source != "" {
		var ok bool
		if from.Node, from.Engine, ok = parsePeerName(source); !ok || id == "" {
			return tg, &api.Error{Code: "bad_request", Message: headerSource + " must be node/engine, and come with " + headerTransfer}
		}
	}
	err := d.own.call(ctx, func() {
		e := d.engines[name]
		switch {
		case e == nil:
			fail = &api.Error{Code: "unknown_engine", Message: fmt.Sprintf("node %s has no engine %q", d.cfg.Node, name)}
			return
		case e.reg.HTTPSocket == "":
			fail = &api.Error{Code: "not_ready", Message: fmt.Sprintf("engine %s is registered without an HTTP socket", name)}
			return
		case e.draining && (id == "" || d.recvs[w] == nil && d.sends[w] == nil):
			fail = &api.Error{Code: "draining", Message: fmt.Sprintf("engine %s is draining and takes no new requests", name)}
			return
		}
		tg.socket = e.reg.HTTPSocket
		if source == "" {
			return
		}
		v, rep, err := d.hold(e, w, from)
		var r *transfer.Refused
		if errors.As(err, &r) {
			fail = &api.Error{Code: r.Code, Message: r.Why}
			return
		}
		if tg.verdict, tg.replica = v, rep; err == nil && len(e.replicas) > 1 {
			tg.dataRank = strconv.Itoa(rep.rank)
		}
	})
	if err != nil {
		return tg, &api.Error{Code: "stopping", Message: err.Error()}
	}
	return tg, fail
}

func statusOf(code string) int {
	switch code {
	case "bad_request":
		return http.StatusBadRequest
	case "unknown_engine", "not_found", "unknown_id":
		return http.StatusNotFound
	case "conflict":
		return http.StatusConflict
	case "internal":
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}

// await holds a request until its KV is ready or has failed; false means that
// the client has left. The machine's deadlines bound the wait.
func (d *Daemon) await(ctx context.Context, w http.ResponseWriter, verdict <-chan transfer.Verdict) bool {
	began := time.Now()
	d.metrics.holds.Inc()
	defer d.metrics.holds.Dec()
	var v transfer.Verdict
	select {
	case v = <-verdict:
	case <-d.stopping:
		refuseStopping(w)
		return false
	case <-d.own.done:
		refuseStopping(w)
		return false
	case <-ctx.Done():
		d.metrics.held.WithLabelValues("client_left").Inc()
		if errors.Is(context.Cause(ctx), errCancelled) {
			apiError(w, statusClientClosed, "cancelled", errCancelled.Error(), "")
		}
		return false
	}
	waited := time.Since(began)
	d.metrics.stage("hold", waited.Seconds())
	w.Header().Set(headerHold, strconv.FormatInt(waited.Milliseconds(), 10))
	if v.Ready {
		d.metrics.held.WithLabelValues("ready").Inc()
		w.Header().Set(headerVerdict, "ready")
	} else {
		code := string(failureCode(v.Code))
		d.metrics.held.WithLabelValues(code).Inc()
		w.Header().Set(headerVerdict, "failed; code="+code)
	}
	return true
}

// statusClientClosed is nginx's code for a client that went away.
const statusClientClosed = 499

// hopHeaders are of one connection and never passed on.
var hopHeaders = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHop(h http.Header) {
	for _, list := range h.Values("Connection") {
		for f := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(f))
		}
	}
	for _, f := range hopHeaders {
		h.Del(f)
	}
}

// relay sends a request from memory and streams the answer, each piece at once.
// An answer that breaks off breaks the client's connection too: it must not look
// complete.
func (d *Daemon) relay(ctx context.Context, w http.ResponseWriter, r *http.Request, name, prefix string, tg target, body []byte) {
	req, err := http.NewRequestWithContext(ctx, r.Method, "http://engine/", bytes.NewReader(body))
	if err == nil {
		req.URL, err = engineURL(r, prefix)
	}
	if err != nil {
		apiError(w, http.StatusBadRequest, "bad_request", err.Error(), "")
		return
	}
	req.Header = r.Header.Clone()
	dropHop(req.Header)
	req.Header.Del("Expect")
	if tg.dataRank != "" {
		req.Header.Set(headerDataRank, tg.dataRank)
	}
	tr := engineTransport(tg.socket)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			if errors.Is(context.Cause(ctx), errCancelled) {
				apiError(w, statusClientClosed, "cancelled", errCancelled.Error(), "")
			}
			return
		}
		d.metrics.forwarded.WithLabelValues(name, "unreachable").Inc()
		d.log.Warn("engine not reachable", "engine", name, "error", err)
		apiError(w, http.StatusBadGateway, "engine_unreachable", fmt.Sprintf("engine %s does not answer: %v", name, err), "")
		return
	}
	defer func() { _ = resp.Body.Close() }()
	d.metrics.forwarded.WithLabelValues(name, strconv.Itoa(resp.StatusCode)).Inc()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		apiError(w, http.StatusBadGateway, "engine_unreachable", fmt.Sprintf("engine %s switches protocols, which nobody asked for", name), "")
		return
	}
	dropHop(resp.Header)
	resp.Header.Del(headerHold) // the daemon's to say
	resp.Header.Del(headerVerdict)
	for k, vs := range resp.Header {
		w.Header()[k] = vs
	}
	w.WriteHeader(resp.StatusCode)
	if err := stream(w, resp.Body, d.patience); err != nil {
		panic(http.ErrAbortHandler) // the server's way to cut the connection
	}
}

// stream copies an answer. A client that has gone without a word, its host with
// it, is noticed by what it does not take.
func stream(w http.ResponseWriter, from io.Reader, patience time.Duration) error {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := rc.Flush(); err != nil { // the header: a client may wait for it alone
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if derr := rc.SetWriteDeadline(time.Now().Add(patience)); derr != nil {
				return derr
			}
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := rc.Flush(); ferr != nil {
				return ferr
			}
		}
		if errors.Is(err, io.EOF) {
			return rc.SetWriteDeadline(time.Time{}) // the connection may serve more
		}
		if err != nil {
			return err
		}
	}
}
