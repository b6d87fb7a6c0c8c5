// Package metrics holds the Prometheus series of the reference engine.
package metrics

import "github.com/prometheus/client_golang/prometheus"

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
	Waiting           prometheus.Gauge
	Running           prometheus.Gauge
	BlocksFree        prometheus.Gauge
	BlocksTotal       prometheus.Gauge
	StepSeconds       prometheus.Histogram
}

// New makes and registers an engine's series.
func New() *Set {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "reference", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "reference", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "reference", Name: name, Help: help})
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
		Waiting:           gauge("requests_waiting", "Requests that wait for a place, or for KV."),
		Running:           gauge("requests_running", "Requests in the batch."),
		BlocksFree:        gauge("kv_blocks_free", "Free KV blocks."),
		BlocksTotal:       gauge("kv_blocks_total", "KV blocks."),
		StepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "reference", Name: "step_seconds",
			Help: "Time of one step of the batch.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)}),
	}
	s.Registry.MustRegister(s.Requests, s.Finished, s.PromptComputed, s.PromptTransferred, s.Generated, s.Transfers, s.TransferBytes,
		s.Recomputes, s.Preemptions, s.Waiting, s.Running, s.BlocksFree, s.BlocksTotal, s.StepSeconds)
	return s
}
