// Package refengine is the reference engine: a small transformer that runs on
// the CPU with a real paged KV cache, continuous batching and a KV connector, and
// speaks OpenAI's API on a unix socket. It stands where vLLM stands on a host
// with accelerators, and uses the KV daemon in the same way: an engine's process
// has the HTTP API and a scheduler for each data-parallel replica, and every
// tensor-parallel rank is a process of its own. Only where there is one of either,
// all is one process.
package refengine
