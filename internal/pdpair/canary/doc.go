// Package canary judges whether one request through a prefill and a decode
// engine was decoded from KV that really crossed. It is pure: it makes the
// prompt, reads what engines and daemons said, and decides.
//
// Equal tokens alone prove nothing, since a decode engine that silently computes
// the prompt itself gives equal tokens too. They count only together with what
// the decode engine computed and with the bytes that its daemon verified.
package canary
