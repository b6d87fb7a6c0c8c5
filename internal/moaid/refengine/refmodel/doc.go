// Package refmodel names the models of the reference engine and says what their
// KV caches look like. It is pure and holds no weights: the provider's engine
// catalogue uses it to compute geometry at plan time, the engine to build what
// it runs.
//
// Two sets of weights exist. Seeded weights are random; their output depends on
// every byte of the cache. Reciting weights are constructed: the next token is
// the one LAG positions back, where LAG is the sum of the layers' lags, and each
// layer carries it through its own part of the cache. A prompt longer than LAG
// is answered by its own tokens from LAG back, which is known without running
// anything.
package refmodel
