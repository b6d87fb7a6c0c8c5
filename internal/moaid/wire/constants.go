package wire

// Numbers that the specification fixes. Changing one is a new ALPN.
const (
	// Version is the protocol version of HELLO and of stream openings.
	Version = 1

	// ALPNPeer asks for a peer's control session.
	ALPNPeer = "moai-kv/1"
	// ALPNGateway asks for HTTP/1.1 as a gateway.
	ALPNGateway = "moai-http/1"

	// Magic begins a data stream. It cannot be confused with TLS, whose first
	// byte is RecordTLS.
	Magic = "MOAI"
	// RecordTLS is the first byte of a TLS handshake record.
	RecordTLS = 0x16

	// LabelStream and LabelData are the exporter labels (RFC 8446, 7.5) of the
	// key that authenticates openings and of the keys that seal chunks.
	LabelStream = "EXPORTER-moai-kv-stream"
	LabelData   = "EXPORTER-moai-kv-data"

	// StreamKeySize and DataKeySize are the lengths of exported keys in bytes:
	// HMAC-SHA256 and AES-128.
	StreamKeySize = 32
	DataKeySize   = 16

	// FrameHeaderSize is length and type of a control frame, in bytes.
	FrameHeaderSize = 5
	// OpeningSize and AnswerSize are the lengths of a stream's first message
	// in each direction, MAC included.
	OpeningSize = 4 + 1 + 16 + 2 + 4 + macSize
	AnswerSize  = 4 + 1 + macSize
	macSize     = 32

	// ChunkHeaderSize is the length of a chunk header in bytes.
	ChunkHeaderSize = 44
	// TagSize and CRCSize are what sealing adds to a body: the GCM tag, or
	// the CRC32C of mode none.
	TagSize = 16
	CRCSize = 4

	// MaxStreams is the largest number of data streams in a session.
	MaxStreams = 16
)

// Limits of the protocol, with the reason for each.
const (
	// MaxFrame bounds type and body of a control frame: an ENGINES frame with
	// 15 fingerprints of 64 KiB fits, and a peer cannot make us hold more.
	MaxFrame = 1 << 20
	// MaxChunk bounds the plain bytes of a chunk: one scratch buffer, small
	// enough to stay in a core's cache between copy and cipher.
	MaxChunk = 256 << 10
	// MaxCounter is the last chunk counter of a stream and direction. GCM with
	// one key stays far below its limits, and 2^32 chunks are 1 PiB.
	MaxCounter = 1 << 32
	// MaxProbe bounds a probe: long enough to measure 100 Gbit/s, short enough
	// to hash with SHA-256 in well under a second.
	MaxProbe = 256 << 20
)

// Limits of this implementation.
const (
	// maxString and maxList are what a u16 count can say.
	maxString = 1<<16 - 1
	maxList   = 1<<16 - 1
)
