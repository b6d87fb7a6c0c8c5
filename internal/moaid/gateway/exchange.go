package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/body"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

// Routes, as they are counted and shown.
const (
	routePD         = "pd"
	routeDecodeOnly = "decode-only"
	routeNone       = "none" // nobody served the request
)

// Stages at which a client can leave.
const (
	stageRead    = "read"
	stagePrefill = "prefill"
	stageDecode  = "decode" // before the first byte of the answer
	stageStream  = "stream"
)

// exchange is the life of one completion request.
type exchange struct {
	g    *Gateway
	w    http.ResponseWriter
	r    *http.Request
	id   string // of the transfer
	rid  string // of the request, the client's own if it has one
	req  *body.Request
	pool []route.Pool

	prefill *lease // nil if decode serves the request alone
	decode  *lease
	poolAt  int // index of the pair that both are of, -1
	tried   route.Tried
	params  []byte // kv_transfer_params from prefill, nil without
	back    returning

	release func() // of the body's memory, nil before it was read

	rec record
}

// errClientGone says that the client left, or does not read.
var errClientGone = errors.New("the client has gone")

func (g *Gateway) serveCompletion(w http.ResponseWriter, r *http.Request) {
	g.handlers.Add(1)
	defer g.handlers.Done()
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()
	x := &exchange{g: g, w: w, r: r, id: newID(), tried: route.Tried{}, poolAt: -1}
	x.rid = requestID(r.Header.Get("X-Request-Id"), x.id)
	x.rec = record{start: time.Now(), id: x.id, rid: x.rid, path: r.URL.Path, route: routeNone, stage: stageRead}
	ctx := r.Context()
	defer g.finish(ctx, &x.rec)
	defer func() {
		if x.release != nil {
			x.release()
		}
	}()
	w.Header().Set("X-Request-Id", x.rid)
	if err := x.serve(ctx); err != nil {
		x.fail(err)
	}
}

// serve does it all. An error has not been told to the client yet, except that
// errClientGone needs no telling.
func (x *exchange) serve(ctx context.Context) error {
	b, err := x.readBody()
	if err != nil {
		return err
	}
	x.rec.bytesIn = len(b)
	if err := x.understand(b); err != nil {
		return err
	}
	return x.serveRequest(ctx)
}

// understand parses the body and finds who serves the model.
func (x *exchange) understand(b []byte) error {
	req, err := body.Parse(b)
	var be *body.Error
	if errors.As(err, &be) {
		x.rec.reason = be.Code
		return &failure{http.StatusBadRequest, be.Message, kindRequest, be.Param, be.Code}
	} else if err != nil {
		return err
	}
	f := x.g.fleet
	model := req.Model
	if model == "" && len(f.models) == 1 {
		model = f.models[0]
	}
	pools, ok := f.pools[model]
	if !ok {
		x.rec.reason = "unknown_model"
		return unknownModel(req.Model)
	}
	x.req, x.pool = req, pools
	x.rec.model, x.rec.stream = model, req.Stream
	return nil
}

// runPrefill picks the engines and has the prompt computed. Afterwards decode is
// set, and params if prefill took part.
func (x *exchange) runPrefill(ctx context.Context) error {
	reason := x.req.DecodeOnly
	for {
		split := x.req.DecodeOnly == ""
		var why string
		x.prefill, x.decode, x.poolAt, why = x.g.fleet.choose(x.pool, split, x.tried)
		if x.decode == nil {
			x.rec.reason = "no_decode"
			return x.nobody(nil)
		}
		if x.prefill == nil {
			if reason == "" {
				reason = why
			}
			break
		}
		x.rec.stage = stagePrefill
		x.rec.prefill = x.prefill.String()
		params, failed, err := x.askPrefill(ctx)
		if err != nil {
			x.decode.end(route.Neutral)
			return err
		}
		if params != nil {
			x.params = params
			x.rec.route, x.rec.reason = routePD, ""
			return nil
		}
		reason = failed
		if failed != reasonUnreachable {
			break
		}
		// It cannot have seen the request: another one may take it.
		x.tried[x.prefill.e] = true
		x.decode.end(route.Neutral)
	}
	x.decodeOnly(reason)
	return nil
}

// decodeOnly notes that decode serves the request alone.
func (x *exchange) decodeOnly(reason string) {
	x.params = nil
	x.rec.route, x.rec.reason = routeDecodeOnly, reason
}

// abandon tells the daemons that took part that nobody waits any more.
func (x *exchange) abandon(ctx context.Context) {
	if x.prefill != nil {
		x.g.cancelTransfer(ctx, x.id, x.prefill, x.decode)
	}
}

// fail tells the client what went wrong.
func (x *exchange) fail(err error) {
	// A body that came too late ends the context as well, but not the client.
	if errors.Is(err, errClientGone) || x.r.Context().Err() != nil && x.rec.stage != stageRead {
		x.rec.cancelled = true
		x.rec.status = statusClientGone
		return
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{http.StatusInternalServerError, "the router failed: " + err.Error(), kindRouter, "", "internal"}
	}
	x.rec.err = f.code
	x.rec.status = f.status
	x.header(x.w.Header())
	b := f.body()
	x.rec.bytesOut = len(b)
	if err := writeJSON(x.w, f.status, b); err != nil {
		x.rec.cancelled = true
	}
}

// Error makes a failure an error on its way to the client.
func (f *failure) Error() string { return f.message }

// header sets the headers that every answer has.
func (x *exchange) header(h http.Header) {
	h.Set("X-Request-Id", x.rid)
	decode := ""
	if x.decode != nil {
		decode = "; d=" + x.decode.String()
	}
	switch x.rec.route {
	case routePD:
		h.Set("X-Moai-Transfer", x.id)
		h.Set("X-Moai-Route", "pd; p="+x.prefill.String()+decode)
	case routeDecodeOnly:
		h.Set("X-Moai-Route", "decode-only; reason="+x.rec.reason+decode)
	}
}

// newID gives 32 random hex digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// requestID gives the client's own id if it can be a header and a log's field.
func requestID(own, otherwise string) string {
	if own == "" || len(own) > 128 {
		return otherwise
	}
	for _, c := range []byte(own) {
		if c <= ' ' || c >= 0x7f {
			return otherwise
		}
	}
	return own
}
