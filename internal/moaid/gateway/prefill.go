package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/body"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

// Reasons for decode-only that the prefill request gives.
const (
	reasonUnreachable = "prefill_unreachable"
	reasonTimeout     = "prefill_timeout"
	reasonCut         = "prefill_cut"
	reasonStatus      = "prefill_status"
	reasonNoParams    = "prefill_no_params"
	reasonBadAnswer   = "prefill_bad_answer"
	reasonNotTaken    = "prefill_refused"
)

// askPrefill has the prompt computed and gives the kv_transfer_params for
// decode, or the reason why there are none. An error ends the request.
func (x *exchange) askPrefill(ctx context.Context) (params []byte, reason string, err error) {
	begin := time.Now()
	answer, status, err := x.postPrefill(ctx)
	x.rec.prefillTime = time.Since(begin)
	p := x.prefill
	if ctx.Err() != nil {
		p.end(route.Neutral)
		x.abandon(ctx)
		return nil, "", errClientGone
	}
	if err != nil {
		class := upstream.Classify(err)
		x.g.metrics.upstreamError(p.e.Node, "prefill", class)
		x.rec.notes = append(x.rec.notes, "prefill "+p.String()+": "+string(class))
		p.end(route.Failure)
		switch {
		case class.Unreachable():
			x.g.fleet.lost(p.e.Node, err)
			return nil, reasonUnreachable, nil
		case class == upstream.ClassTimeout:
			reason = reasonTimeout
		default:
			reason = reasonCut
		}
		x.abandon(ctx) // it may have begun
		return nil, reason, nil
	}
	switch status {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		// The request itself is wrong, most likely. Decode's answer is the one to
		// pass on: prefill was asked for one token, and would blame what the client
		// did not write.
		p.end(route.Neutral)
		x.abandon(ctx)
		return nil, reasonNotTaken, nil
	default:
		x.g.metrics.upstreamError(p.e.Node, "prefill", upstream.ClassStatus)
		x.rec.notes = append(x.rec.notes, fmt.Sprintf("prefill %s: status %d", p, status))
		p.end(route.Failure)
		x.abandon(ctx)
		return nil, reasonStatus, nil
	}
	params, id, err := body.TransferParams(answer)
	switch {
	case errors.Is(err, body.ErrNoParams):
		reason = reasonNoParams
	case err != nil, id != "" && id != x.id:
		reason = reasonBadAnswer
	default:
		p.end(route.Success)
		x.g.metrics.prefill.Observe(x.rec.prefillTime.Seconds())
		return params, "", nil
	}
	// The engine works, but not as a prefill engine: requests to it are wasted.
	x.rec.notes = append(x.rec.notes, "prefill "+p.String()+": "+reason)
	p.end(route.Failure)
	x.abandon(ctx)
	return nil, reason, nil
}

// postPrefill sends the prefill request and reads its whole answer.
func (x *exchange) postPrefill(ctx context.Context) (_ []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(x.g.timeouts.Prefill))
	defer cancel()
	ask, err := json.Marshal(map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": x.id,
		"target_node": x.decode.e.Node, "target_engine": x.decode.e.Engine,
	})
	if err != nil {
		return nil, 0, err
	}
	h := x.forwarded()
	h.Set("X-Moai-Transfer", x.id)
	resp, err := x.prefill.node().Post(ctx, x.prefill.e.Engine, x.r.URL.Path, h, x.req.Prefill(ask))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	answer, err := readAnswer(resp.Body)
	return answer, resp.StatusCode, err
}

// says gives the message and code of an error answer, as OpenAI, vLLM or a daemon
// shape it.
func says(answer []byte) (message, code string) {
	var a struct {
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
			Code    any    `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return "", ""
	}
	code, _ = a.Error.Code.(string)
	if a.Error.Message != "" {
		return a.Error.Message, code
	}
	return a.Message, code
}

// hop are headers that belong to one connection, or that we set ourselves.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Expect": true, "Host": true,
	"Accept-Encoding": true, "X-Request-Id": true, "Date": true, "X-Idempotency-Key": true, "Idempotency-Key": true,
}

// reserved reports whether a header is the router's or the daemon's to say: a
// client must not name other requests' transfers, nor the replica that answers.
func reserved(k string) bool { return strings.HasPrefix(k, "X-Moai-") || k == "X-Data-Parallel-Rank" }

// forwarded gives the headers for an engine: the client's, Authorization
// included, and the request's id.
func (x *exchange) forwarded() http.Header {
	h := make(http.Header, len(x.r.Header)+2)
	for k, v := range x.r.Header {
		if !hop[k] && !reserved(k) {
			h[k] = v
		}
	}
	for _, list := range x.r.Header.Values("Connection") {
		for k := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(k))
		}
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Request-Id", x.rid)
	return h
}
