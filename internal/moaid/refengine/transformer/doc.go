// Package transformer runs the reference engine's models: it builds weights from
// a seed, keeps keys and values in pages of any format that kvcache names, and
// computes chunks of prompts and single tokens of any number of sequences in one pass.
//
// Keys and values are rounded when they are written and always read back from
// the pages, also by later tokens of the same chunk. So how a prompt is cut into
// chunks, what runs beside it, how large blocks are and where elements lie cannot
// change a bit of the logits. Only the encoding of elements and their factors can.
//
// A model is one rank of a tensor-parallel set. A rank computes whole elements, of its
// heads and its columns, and the ranks join them; no element is a sum of what several
// ranks have. So the number of ranks cannot change a bit either.
package transformer
