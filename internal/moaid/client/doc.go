// Package client calls the management API of a KV daemon
// (docs/protocols/management-api.md).
//
// How bytes reach the daemon is the caller's affair: New takes a dial function
// (on the host: the unix socket; from afar: the stdio of `moaid dial`).
// Transport gives the same connection as an http.RoundTripper, to be wrapped in
// whatever retries or traces, and NewFor takes the wrapped *http.Client. Every
// verb but those that say otherwise is idempotent, so that retrying it is safe.
//
// Errors that the daemon itself reported are *Error and unwrap to *api.Error;
// anything else (dial, timeout, an answer that is no JSON) is not. Only the
// former can prove that something is absent: see IsNotFound.
package client
