// Package openai is the HTTP face of the reference engine: completions and chat
// completions as OpenAI's API has them, models, health and metrics.
//
// Decoding is greedy unless a temperature above 0 is asked for; then tokens are
// drawn from the softmax by seed, which is 0 if missing, so that equal requests
// always have equal answers. top_p, top_k and penalties are accepted and have no
// effect; n above 1, echo, suffix, logprobs and tools are refused.
//
// An engine with several data-parallel replicas answers a request at the one that
// X-data-parallel-rank names, as vLLM does, or else at the one with the fewest
// requests.
//
// Extensions for tests: return_token_ids adds token_ids to a choice, and
// return_logits_hash adds logits_sha256, one hash a generated token.
package openai
