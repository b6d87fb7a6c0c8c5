package gateway

import (
	"context"
	"log/slog"
	"strconv"
	"time"
)

// statusClientGone is counted and logged for requests whose client left before
// an answer, as nginx does. It is never sent.
const statusClientGone = 499

// record is what is logged and counted of one request. It never holds any of the
// prompt or of the answer.
type record struct {
	start       time.Time
	id, rid     string
	path, model string
	route       string
	reason      string
	stage       string
	prefill     string // node/engine
	decode      string
	verdict     string // on the transfer
	code        string // of a failed verdict
	hold        string // ms that decode's daemon held the request
	status      int
	stream      bool
	cancelled   bool
	err         string // code of our own error
	notes       []string
	prefillTime time.Duration
	ttft        time.Duration
	events      int
	bytesIn     int
	bytesOut    int
}

// finish counts and logs a request.
func (g *Gateway) finish(ctx context.Context, r *record) {
	total := time.Since(r.start)
	m := g.metrics
	m.requests.WithLabelValues(r.route, r.reason).Inc()
	m.responses.WithLabelValues(strconv.Itoa(r.status)).Inc()
	m.e2e.WithLabelValues(r.route).Observe(total.Seconds())
	m.bytes.WithLabelValues("in").Add(float64(r.bytesIn))
	m.bytes.WithLabelValues("out").Add(float64(r.bytesOut))
	if r.route == routeDecodeOnly {
		m.decodeOnly.WithLabelValues(r.reason).Inc()
	}
	if r.cancelled {
		m.cancelled.WithLabelValues(r.stage).Inc()
	}
	level := slog.LevelInfo
	if r.err != "" || r.verdict == "failed" || len(r.notes) > 0 {
		level = slog.LevelWarn
	}
	args := []any{
		"id", r.id, "path", r.path, "model", r.model, "route", r.route, "status", r.status, "stream", r.stream,
		"bytes_in", r.bytesIn, "bytes_out", r.bytesOut, "e2e_ms", ms(total),
	}
	add := func(key string, value any, is bool) {
		if is {
			args = append(args, key, value)
		}
	}
	add("request_id", r.rid, r.rid != r.id)
	add("reason", r.reason, r.reason != "")
	add("prefill", r.prefill, r.prefill != "")
	add("decode", r.decode, r.decode != "")
	add("prefill_ms", ms(r.prefillTime), r.prefillTime > 0)
	add("verdict", r.verdict, r.verdict != "")
	add("verdict_code", r.code, r.code != "")
	add("hold_ms", r.hold, r.hold != "")
	add("ttft_ms", ms(r.ttft), r.ttft > 0)
	add("events", r.events, r.events > 0)
	add("cancelled", r.stage, r.cancelled)
	add("error", r.err, r.err != "")
	add("failures", r.notes, len(r.notes) > 0)
	g.log.Log(ctx, level, "request", args...)
}

// ms gives milliseconds with microseconds behind the point.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
