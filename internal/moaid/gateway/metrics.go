package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

// metrics are the gateway's own; durations are seconds.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	responses   *prometheus.CounterVec
	decodeOnly  *prometheus.CounterVec
	verdicts    *prometheus.CounterVec
	upstream    *prometheus.CounterVec
	cancelled   *prometheus.CounterVec
	cancels     *prometheus.CounterVec
	decodeWaits *prometheus.CounterVec
	inFlight    prometheus.Gauge
	bytes       *prometheus.CounterVec
	events      prometheus.Counter
	ttft        *prometheus.HistogramVec
	e2e         *prometheus.HistogramVec
	prefill     prometheus.Histogram
	itl         prometheus.Histogram
}

func newMetrics(f *fleet) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	long := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	m.requests = counter("moai_router_requests_total", "Requests by route (pd, decode-only, none) and the reason for it.", "route", "reason")
	m.responses = counter("moai_router_responses_total", "Answers by HTTP status; 499 if the client had left.", "status")
	m.decodeOnly = counter("moai_router_decode_only_total", "Requests that decode served alone, by reason.", "reason")
	m.verdicts = counter("moai_router_transfer_verdicts_total", "Verdicts of decode's daemons on KV transfers.", "verdict", "code")
	m.upstream = counter("moai_router_upstream_errors_total", "Failed requests to engines by node, leg and class.", "node", "leg", "class")
	m.cancelled = counter("moai_router_cancelled_total", "Requests whose client left, by stage.", "stage")
	m.cancels = counter("moai_router_transfer_cancels_total", "Cancels of transfers that daemons were told, by result.", "node", "result")
	m.decodeWaits = counter("moai_router_decode_waits_total", "Waits of requests for a decode engine to return, by result (resumed, gave_up, client_left).", "result")
	m.bytes = counter("moai_router_bytes_total", "Bytes of bodies from and to clients.", "direction")
	m.events = prometheus.NewCounter(prometheus.CounterOpts{Name: "moai_router_stream_events_total", Help: "Events passed on that carry data."})
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Name: "moai_router_requests_in_flight", Help: "Completion requests that are being served."})
	m.ttft = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "moai_router_ttft_seconds",
		Help: "From the request's arrival to the first event of its stream.", Buckets: long}, []string{"route"})
	m.e2e = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "moai_router_e2e_seconds",
		Help: "From the request's arrival to the end of its answer.", Buckets: long}, []string{"route"})
	m.prefill = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "moai_router_prefill_seconds",
		Help: "Duration of requests to prefill engines that worked.", Buckets: long})
	m.itl = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "moai_router_itl_seconds",
		Help: "Between two events of a stream.", Buckets: []float64{.001, .0025, .005, .01, .015, .02, .03, .04, .05, .075, .1, .25, .5, 1, 5}})
	m.registry.MustRegister(m.events, m.inFlight, m.ttft, m.e2e, m.prefill, m.itl, engineCollector{f},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) upstreamError(node, leg string, c upstream.Class) {
	m.upstream.WithLabelValues(node, leg, string(c)).Inc()
}

var (
	descOutstanding = prometheus.NewDesc("moai_router_outstanding", "Requests of this router that an engine has now.", []string{"node", "engine"}, nil)
	descReady       = prometheus.NewDesc("moai_router_engine_ready", "Whether requests are sent to an engine.", []string{"node", "engine"}, nil)
)

// engineCollector reads the engines when it is scraped.
type engineCollector struct{ f *fleet }

// Describe implements prometheus.Collector.
func (engineCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descOutstanding
	ch <- descReady
}

// Collect implements prometheus.Collector.
func (c engineCollector) Collect(ch chan<- prometheus.Metric) {
	type row struct {
		t           route.Target
		outstanding int
		ready       float64
	}
	now := time.Now()
	c.f.mu.Lock()
	rows := make([]row, 0, len(c.f.engines))
	for t, e := range c.f.engines {
		r := row{t: t, outstanding: e.Outstanding}
		if e.Usable(now) {
			r.ready = 1
		}
		rows = append(rows, r)
	}
	c.f.mu.Unlock()
	for _, r := range rows {
		ch <- prometheus.MustNewConstMetric(descOutstanding, prometheus.GaugeValue, float64(r.outstanding), r.t.Node, r.t.Engine)
		ch <- prometheus.MustNewConstMetric(descReady, prometheus.GaugeValue, r.ready, r.t.Node, r.t.Engine)
	}
}
