// Package worker runs the tensor-parallel ranks of an engine's replica. A [Rank]
// has one rank's part of the weights and of the cache, and that rank's session
// with the KV daemon. The only rank of a small engine lives in the engine's
// process ([Local]); where there are several, each is a process ([Processes]), as
// vLLM has it. The processes hear of steps and orders over a socket pair from
// their engine, and join what they compute in memory that they share.
package worker
