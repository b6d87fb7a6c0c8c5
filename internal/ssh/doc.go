// Package ssh keeps one verified, pooled SSH connection for each distinct target and runs commands over it.
//
// Everything a connection needs is given as content: private key, host key or known-hosts text, bastions. The
// package reads no file, no environment, no agent and no ssh configuration, and it writes none.
//
// The pure part decides: [Quote], [Join] and [Split] (shell words), the known-hosts reader, [Redactor],
// [Retryable]. The rest moves bytes. Three rules hold everywhere:
//
//   - A host key that does not match is fatal at once; no other way to authenticate is tried after it.
//   - A command is sent at most once. Only setting up a connection is retried.
//   - A dropped connection or a missing exit status is an error, never success.
package ssh
