// Package transformer runs the reference engine's models: it builds weights from
// a seed, keeps keys and values as bfloat16 in pages, and computes chunks of
// prompts and single tokens of any number of sequences in one pass.
//
// Keys and values are rounded when they are written and always read back from
// the pages, also by later tokens of the same chunk. So how a prompt is cut into
// chunks, what runs beside it, and how large blocks are cannot change a bit of
// the logits.
package transformer
