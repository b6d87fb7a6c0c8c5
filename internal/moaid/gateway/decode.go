package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

// reasonFailover: the chosen decode engine failed and one of another pair, which
// may not read the KV, serves the request.
const reasonFailover = "decode_failover"

// reasonRefused: decode's daemon takes no transfer with this id, as when another
// engine of its node has claimed it before.
const reasonRefused = "transfer_refused"

var (
	errFirstByte  = errors.New("no answer came in time")
	errStreamIdle = errors.New("the stream was silent for too long")
)

// attempt is an answer of a decode engine.
type attempt struct {
	status int
	header http.Header
	whole  []byte         // the body if it is no stream
	stream *http.Response // else; the caller closes it
}

// runDecode sends the request to decode engines until one answers, and passes
// the answer on.
func (x *exchange) runDecode(ctx context.Context) error {
	x.rec.stage = stageDecode
	var failed []*decodeError
	for {
		x.rec.decode = x.decode.String()
		answered, err := x.tryDecode(ctx)
		if answered {
			return err
		}
		if ctx.Err() != nil {
			x.decode.end(route.Neutral)
			x.abandon(ctx)
			return errClientGone
		}
		var de *decodeError
		if !errors.As(err, &de) {
			x.decode.end(route.Neutral)
			x.abandon(ctx)
			return err
		}
		if de.status == http.StatusConflict {
			x.abandon(ctx)
			x.decodeOnly(reasonRefused)
			continue
		}
		failed = append(failed, de)
		x.g.metrics.upstreamError(x.decode.e.Node, "decode", de.class)
		x.rec.notes = append(x.rec.notes, "decode "+x.decode.String()+": "+string(de.class))
		x.decode.end(route.Failure)
		x.g.fleet.lost(x.decode.e.Node, de.err)
		x.tried[x.decode.e] = true
		next, same := x.g.fleet.another(x.pool, x.poolAt, x.prefill, x.tried)
		if next == nil {
			x.abandon(ctx)
			return x.nobody(failed)
		}
		if x.params != nil && !same {
			x.abandon(ctx)
			x.decodeOnly(reasonFailover)
		}
		x.decode = next
	}
}

// codeDecodeFailed is of the failure after decode engines were asked in vain.
const codeDecodeFailed = "decode_failed"

// codeEngineFailed is the code of an engine that ended while it had the request: as
// much as a connection that broke, and seen instead of it by chance.
const codeEngineFailed = "engine_failed"

// decodeError is a failure before the first byte of an answer, after which
// another engine may be asked.
type decodeError struct {
	engine string
	class  upstream.Class
	status int
	says   string
	err    error
}

func (e *decodeError) Error() string {
	switch {
	case e.says != "":
		return fmt.Sprintf("%s answered %d: %s", e.engine, e.status, e.says)
	case e.err == nil:
		return fmt.Sprintf("%s answered %d", e.engine, e.status)
	}
	return fmt.Sprintf("%s: %v", e.engine, e.err)
}

// nobody is the failure when no decode engine served the request.
func (x *exchange) nobody(failed []*decodeError) error {
	f := &failure{status: http.StatusServiceUnavailable, kind: kindUpstream, code: "no_decode_engine",
		message: fmt.Sprintf("no decode engine of the model %q is ready; GET /health of this router says why", x.rec.model)}
	if len(failed) == 0 {
		return &decodeAway{f}
	}
	var all []string
	away := false
	for _, e := range failed {
		all = append(all, e.Error())
		away = away || e.restarting()
	}
	f.code = codeDecodeFailed
	f.message = "no decode engine could serve the request: " + strings.Join(all, "; ")
	switch last := failed[len(failed)-1]; {
	case last.class == upstream.ClassTimeout:
		f.status = http.StatusGatewayTimeout
	case last.class == upstream.ClassStatus && last.status != http.StatusInternalServerError:
		f.status = last.status
	case !last.class.Unreachable():
		f.status = http.StatusBadGateway
	}
	if away {
		return &decodeAway{f}
	}
	return f
}

// tryDecode asks one engine. answered says that the client got an answer, or
// left while it did; otherwise another engine may be asked.
func (x *exchange) tryDecode(client context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(client)
	defer cancel(nil)
	a, err := x.postDecode(ctx, cancel)
	if err != nil {
		class := upstream.Classify(err)
		if errors.Is(context.Cause(ctx), errFirstByte) {
			class, err = upstream.ClassTimeout, errFirstByte
		}
		return false, &decodeError{engine: x.decode.String(), class: class, err: err}
	}
	if message, again := x.another(a); again {
		return false, &decodeError{engine: x.decode.String(), class: upstream.ClassStatus, status: a.status, says: message}
	}
	if a.stream != nil {
		return x.passStream(client, ctx, cancel, a)
	}
	x.verdict(ctx, a.header)
	x.passHeader(a.header)
	return true, x.passWhole(ctx, a)
}

// another reports whether an answer is about the way to the engine and not about
// the request, so that another way may work, and gives its message.
func (x *exchange) another(a *attempt) (message string, again bool) {
	message, code := says(a.whole)
	switch a.status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return message, true
	case http.StatusInternalServerError: // the engine ended; what else failed may be the request's doing
		return message, code == codeEngineFailed
	case http.StatusNotFound: // the daemon's code: the engine itself may not know the model
		return message, code == "unknown_engine"
	case http.StatusConflict: // the daemon refuses the transfer, not the request
		return message, x.params != nil
	}
	return "", false
}

// postDecode sends the request; a body that is no stream is read to its end.
func (x *exchange) postDecode(ctx context.Context, cancel context.CancelCauseFunc) (_ *attempt, err error) {
	h := x.forwarded()
	if x.params != nil {
		h.Set("X-Moai-Transfer", x.id)
		h.Set("X-Moai-Source", x.prefill.String())
	}
	timer := time.AfterFunc(time.Duration(x.g.timeouts.FirstByte), func() { cancel(errFirstByte) })
	defer timer.Stop()
	resp, err := x.decode.node().Post(ctx, x.decode.e.Engine, x.r.URL.Path, h, x.req.Decode(x.params))
	if err != nil {
		return nil, err
	}
	a := &attempt{status: resp.StatusCode, header: resp.Header}
	if a.status == http.StatusOK {
		x.decode.answered()
	}
	if a.status == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.stream = resp
		return a, nil
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	a.whole, err = readAnswer(resp.Body)
	return a, err
}

// verdictCodes are the codes of failed transfers in docs/protocols; others would
// let a daemon make metrics grow.
var verdictCodes = map[string]bool{
	"unknown_source": true, "not_offered": true, "token_hash": true, "incompatible": true, "withdrawn": true, "peer_gone": true,
	"deadline": true, "no_room": true, "corrupt": true, "not_paired": true, "inexact": true, "cancelled": true,
}

// verdict notes what decode's daemon says of the transfer.
func (x *exchange) verdict(ctx context.Context, h http.Header) {
	if x.params == nil {
		return
	}
	verdict, rest, _ := strings.Cut(h.Get("X-Moai-Transfer-Verdict"), ";")
	code := strings.TrimPrefix(strings.TrimSpace(rest), "code=")
	switch verdict {
	case "ready":
		code = ""
	case "failed":
		if !verdictCodes[code] {
			code = "other"
		}
		x.rec.reason = "transfer_failed" // decode computes the prompt itself
		if code == "peer_gone" && x.prefill.e.Node != x.decode.e.Node {
			// Decode's daemon cannot say so: prefill would keep the pages until a deadline.
			x.g.cancelTransfer(ctx, x.id, x.prefill)
		}
	default:
		verdict, code = "missing", ""
	}
	x.rec.verdict, x.rec.code = verdict, code
	x.rec.hold = h.Get("X-Moai-Hold-Ms")
	x.g.metrics.verdicts.WithLabelValues(verdict, code).Inc()
}

// passHeader copies decode's headers, and sets ours.
func (x *exchange) passHeader(from http.Header) {
	to := x.w.Header()
	for k, v := range from {
		if !hop[k] && k != "X-Moai-Transfer" && k != "X-Moai-Source" && k != "X-Moai-Route" {
			to[k] = v
		}
	}
	x.header(to)
}

// passWhole passes an answer on that is no stream.
func (x *exchange) passWhole(ctx context.Context, a *attempt) error {
	switch {
	case a.status >= http.StatusInternalServerError:
		x.g.metrics.upstreamError(x.decode.e.Node, "decode", upstream.ClassStatus)
		x.decode.end(route.Failure)
	case a.status >= http.StatusBadRequest:
		x.decode.end(route.Neutral)
	default:
		x.decode.end(route.Success)
	}
	if a.status != http.StatusOK {
		x.abandon(ctx) // prefill may still hold pages for it
	}
	if a.status >= http.StatusBadRequest {
		a.whole = openAIError(a.whole)
	}
	x.rec.status, x.rec.bytesOut = a.status, len(a.whole)
	x.w.Header().Set("Content-Length", fmt.Sprint(len(a.whole)))
	x.w.WriteHeader(a.status)
	t := newTarget(x.w, time.Duration(x.g.timeouts.Client))
	err := t.write(a.whole)
	if rerr := t.release(); err == nil {
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}
