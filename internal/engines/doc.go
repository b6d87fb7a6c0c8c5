// Package engines is the catalogue of engine kinds: for each kind, what a
// specification may ask of it, what its KV cache looks like, and how it is
// launched. It is pure, and everything in it can be answered at plan time
// without a host.
//
// A kind is one file that implements [Kind] and is listed in kinds. What no kind
// implements is refused at plan by [Lookup], which names those that are.
package engines
