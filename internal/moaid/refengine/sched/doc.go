// Package sched is the reference engine's scheduler: continuous batching with
// chunked prefill over paged KV blocks, and the points at which a KV connector is
// asked and told. Those are the ones of vLLM's KVConnectorBase_V1, so that what
// works here works there: a request is announced on arrival, asked for at every
// attempt to schedule it ("not yet" leaves it waiting and holds nothing), loaded
// asynchronously into blocks that are held only for the copy, and computed from
// its last prompt token on.
package sched
