// Package e2e holds tests of whole parts together: two KV daemons on loopback, a
// prefill and a decode engine with the reference model, and the claim that a
// disaggregated answer equals an aggregated one, with the controls without which
// that equality would prove nothing.
package e2e
