//go:build !moai_damage

package kvd

// divert gives the memory that a chunk's bytes go to.
func divert(dst [][]byte) [][]byte { return dst }

// damage is where the test build can spoil a transfer.
func (*Daemon) damage(*receiving) {}
