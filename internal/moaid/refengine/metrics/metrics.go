// Package metrics holds the Prometheus series of the reference engine.
package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Set is one engine's series. Token and request counters count from the start of
// the process.
type Set struct {
	Registry *prometheus.Registry

	Requests          prometheus.Counter     // accepted
	Finished          *prometheus.CounterVec // by reason: stop, length, abort, error
	PromptComputed    prometheus.Counter     // prompt tokens that this engine computed, recomputed ones included
	PromptTransferred prometheus.Counter     // prompt tokens whose KV came from another engine
	Generated         prometheus.Counter
	Transfers         *prometheus.CounterVec // by direction (send, receive) and outcome
	TransferBytes     *prometheus.CounterVec // copied from or to the arena, by direction
	Recomputes        *prometheus.CounterVec // prompts computed although KV was announced, or computed again; by reason
	Preemptions       prometheus.Counter
	StepSeconds       prometheus.Histogram

	gauges [4]*prometheus.GaugeVec // by replica
}

// Gauges are what one data-parallel replica is doing.
type Gauges struct{ Waiting, Running, BlocksFree, BlocksTotal prometheus.Gauge }

// Replica gives the gauges of a replica. Counters are of all replicas together.
func (s *Set) Replica(n int) Gauges {
	var g [4]prometheus.Gauge
	for i, v := range s.gauges {
		g[i] = v.WithLabelValues(strconv.Itoa(n))
	}
	return Gauges{g[0], g[1], g[2], g[3]}
}

// New makes and registers an engine's series.
func New() *Set {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "reference", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "reference", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "reference", Name: name, Help: help}, []string{"replica"})
	}
	s := &Set{
		Registry:          prometheus.NewRegistry(),
		Requests:          counter("requests_total", "Requests accepted."),
		Finished:          vec("requests_finished_total", "Requests ended, by reason.", "reason"),
		PromptComputed:    counter("prompt_tokens_computed_total", "Prompt tokens computed by this engine."),
		PromptTransferred: counter("prompt_tokens_transferred_total", "Prompt tokens whose KV was received and loaded."),
		Generated:         counter("generation_tokens_total", "Tokens generated."),
		Transfers:         vec("transfers_total", "KV transfers ended, by direction and outcome.", "direction", "outcome"),
		TransferBytes:     vec("transfer_bytes_total", "KV bytes copied between blocks and arena, by direction.", "direction"),
		Recomputes:        vec("recomputes_total", "Prompts computed here although their KV was announced or had been there, by reason.", "reason"),
		Preemptions:       counter("preemptions_total", "Running requests whose blocks were taken away."),
		gauges: [4]*prometheus.GaugeVec{
			gauge("requests_waiting", "Requests that wait for a place, or for KV."), gauge("requests_running", "Requests in the batch."),
			gauge("kv_blocks_free", "Free KV blocks."), gauge("kv_blocks_total", "KV blocks."),
		},
		StepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "reference", Name: "step_seconds",
			Help: "Time of one step of the batch.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)}),
	}
	s.Registry.MustRegister(s.Requests, s.Finished, s.PromptComputed, s.PromptTransferred, s.Generated, s.Transfers, s.TransferBytes,
		s.Recomputes, s.Preemptions, s.StepSeconds)
	for _, g := range s.gauges {
		s.Registry.MustRegister(g)
	}
	return s
}
