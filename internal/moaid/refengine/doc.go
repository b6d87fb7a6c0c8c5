// Package refengine is the reference engine: a small transformer that runs on
// the CPU with a real paged KV cache, continuous batching and a KV connector, and
// speaks OpenAI's API on a unix socket. It stands where vLLM stands on a host
// with accelerators, and uses the KV daemon in the same way.
package refengine
