// Package formats holds named KV formats, the pairs of them that must work, and
// what makes a run over them a proof: the rows that a run writes and the figures
// that are computed of these. All of it is pure. The tests of this package run
// engines in these formats through two KV daemons.
package formats
