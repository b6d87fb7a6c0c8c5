// Package gateway is an OpenAI-compatible front for pairs of prefill and decode
// engines.
//
// A request goes to a prefill engine first, with one token to generate and an id
// of ours for its KV transfer, and then as the client wrote it to a decode
// engine, whose daemon waits for the KV. Whenever prefill cannot take part, or
// its KV cannot come to decode, decode serves the request alone: that is counted
// by reason, and visible in a response header, the log and /health. While every
// decode engine is away, a request waits a few seconds for one to return.
//
// What is decided is in the pure packages route, body and sse; here is what is
// done: fleet.go polls daemons, exchange.go is the life of one request,
// returning.go its wait.
//
// Every goroutine belongs to Run, which waits for it. A request's own context
// bounds both engines' requests; what must outlive it (telling daemons that the
// client has gone) has a timeout of its own.
package gateway
