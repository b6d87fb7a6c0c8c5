package kvd

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// metrics are what GET /metrics shows, in a registry of their own.
type metrics struct {
	reg              *prometheus.Registry
	bytes, chunks    *prometheus.CounterVec
	transfers        *prometheus.CounterVec
	stages           *prometheus.HistogramVec
	holds            prometheus.Gauge
	held             *prometheus.CounterVec
	forwarded        *prometheus.CounterVec
	authRejections   *prometheus.CounterVec
	duplicateReports prometheus.Counter
	convertedBytes   *prometheus.CounterVec
	convertSeconds   *prometheus.CounterVec
	changedValues    *prometheus.CounterVec
	inexact          *prometheus.CounterVec
}

func newMetrics(d *Daemon) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		reg:       prometheus.NewRegistry(),
		bytes:     counter("moai_kv_bytes_total", "KV payload bytes, verified when received.", "direction", "peer", "encryption"),
		chunks:    counter("moai_kv_chunks_total", "KV chunks.", "direction", "peer", "encryption"),
		transfers: counter("moai_transfers_total", "Transfers that ended.", "direction", "outcome", "reason"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "moai_stage_seconds", Help: "Time in the stages of a transfer: offer, hold, receive, load.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18)}, []string{"stage"}),
		holds:            prometheus.NewGauge(prometheus.GaugeOpts{Name: "moai_decode_holds", Help: "Decode requests that wait for their KV."}),
		held:             counter("moai_decode_holds_total", "Decode requests that waited for their KV, by what they waited for.", "verdict"),
		forwarded:        counter("moai_forwarded_total", "Requests forwarded to engines.", "engine", "code"),
		authRejections:   counter("moai_auth_rejections_total", "Clients that were turned away.", "kind"),
		duplicateReports: prometheus.NewCounter(prometheus.CounterOpts{Name: "moai_duplicate_reports_total", Help: "Workers that reported a load twice."}),
		convertedBytes:   counter("moai_kv_converted_bytes_total", "KV payload bytes that were converted for their peer.", "peer"),
		convertSeconds:   counter("moai_kv_conversion_seconds_total", "Time that conversions took, over all threads.", "peer"),
		changedValues:    counter("moai_kv_changed_values_total", "Values that a conversion could not preserve and that were sent nevertheless, by what became of them: clipped or rounded.", "peer", "change"),
		inexact:          counter("moai_kv_inexact_aborts_total", "Transfers that ended because a conversion would have changed a value.", "peer"),
	}
	m.reg.MustRegister(m.bytes, m.chunks, m.transfers, m.stages, m.holds, m.held, m.forwarded, m.authRejections, m.duplicateReports,
		m.convertedBytes, m.convertSeconds, m.changedValues, m.inexact,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &liveCollector{d})
	return m
}

func (m *metrics) moved(direction, peer, encryption string, n int) {
	m.bytes.WithLabelValues(direction, peer, encryption).Add(float64(n))
	m.chunks.WithLabelValues(direction, peer, encryption).Inc()
}

func (m *metrics) ended(direction string, e transfer.Ended) {
	m.transfers.WithLabelValues(direction, string(e.Outcome), string(e.Code)).Inc()
}

func (m *metrics) stage(name string, seconds float64) {
	m.stages.WithLabelValues(name).Observe(seconds)
}

// liveCollector reads gauges from the owner when asked.
type liveCollector struct{ d *Daemon }

var (
	pagesDesc    = prometheus.NewDesc("moai_arena_pages", "Staging pages of 64 KiB by state; their sum is the total.", []string{"engine", "state"}, nil)
	sessionsDesc = prometheus.NewDesc("moai_sessions_up", "Sessions that are up.", []string{"kind"}, nil)
	liveDesc     = prometheus.NewDesc("moai_transfers_live", "Live transfers.", []string{"direction", "state"}, nil)
	inflightDesc = prometheus.NewDesc("moai_ingest_in_flight_bytes", "Bytes granted and not yet verified.", []string{"engine"}, nil)
	readyDesc    = prometheus.NewDesc("moai_engine_ready", "1 while requests may be sent to the engine.", []string{"engine"}, nil)
	portDesc     = prometheus.NewDesc("moai_port_refused_total", "Connections to the port that were refused.", []string{"reason"}, nil)
)

func (*liveCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pagesDesc, sessionsDesc, liveDesc, inflightDesc, readyDesc, portDesc} {
		ch <- d
	}
}

// Collect gives no gauges if the owner does not answer in time.
func (c *liveCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.d.ctx, 2*time.Second)
	defer cancel()
	out := make(chan []prometheus.Metric, 1)
	if err := c.d.own.call(ctx, func() { out <- c.d.gauges() }); err == nil {
		for _, m := range <-out {
			ch <- m
		}
	}
	n := c.d.mux.Counters()
	for reason, v := range map[string]uint64{"silent": n.RefusedSilent, "bytes": n.RefusedBytes, "tls": n.RefusedTLS, "hello": n.RefusedHello, "opening": n.RefusedOpenings, "evicted": n.Evicted} {
		ch <- prometheus.MustNewConstMetric(portDesc, prometheus.CounterValue, float64(v), reason)
	}
}

func (d *Daemon) gauges() []prometheus.Metric {
	var out []prometheus.Metric
	add := func(desc *prometheus.Desc, v float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...))
	}
	engines := 0
	for name, e := range d.engines {
		var u arena.Usage
		for _, a := range e.arenas() {
			x := a.Usage()
			u.Free, u.Held, u.Quarantined, u.Total = u.Free+x.Free, u.Held+x.Held, u.Quarantined+x.Quarantined, u.Total+x.Total
		}
		add(pagesDesc, float64(u.Free), name, "free")
		add(pagesDesc, float64(u.Held), name, "held")
		add(pagesDesc, float64(u.Quarantined), name, "quarantined")
		add(inflightDesc, float64(e.budget.InFlight()), name)
		ready := 0.0
		if e.notReady() == "" {
			ready = 1
		}
		add(readyDesc, ready, name)
		engines += len(e.sessions())
	}
	add(sessionsDesc, float64(len(d.peers)), "peer")
	add(sessionsDesc, float64(engines), "engine")
	live := map[[2]string]int{}
	for _, t := range d.sends {
		if !t.m.State().Terminal() {
			live[[2]string{"send", string(t.m.State())}]++
		}
	}
	for _, t := range d.recvs {
		if !t.m.State().Terminal() {
			live[[2]string{"receive", string(t.m.State())}]++
		}
	}
	for k, n := range live {
		add(liveDesc, float64(n), k[0], k[1])
	}
	return out
}
