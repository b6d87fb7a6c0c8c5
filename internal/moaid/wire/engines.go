package wire

// Engine is what a node tells its peers about one of its engines.
type Engine struct {
	Name            string
	Generation      string // new at each start of the engine; empty while it is not connected
	Ranks           uint16
	FingerprintHash [32]byte
	FingerprintJSON string
}

// engineMin is the size of an engine whose strings are empty.
const engineMin = 2 + 2 + 2 + 32 + 2

// Engines replaces what HELLO, or an earlier ENGINES, said.
type Engines struct {
	Engines []Engine
}

// Type is TypeEngines.
func (m *Engines) Type() byte { return TypeEngines }

// Append appends the frame.
func (m *Engines) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Engines) encode(e *encoder) { encodeEngines(e, m.Engines) }
func (m *Engines) decode(d *decoder) { m.Engines = decodeEngines(d) }

func encodeEngines(e *encoder, list []Engine) {
	n := e.count(len(list), "engines")
	for i := range list[:n] {
		g := &list[i]
		e.str(g.Name, "engine name")
		e.str(g.Generation, "engine generation")
		e.u16(g.Ranks)
		e.hash(g.FingerprintHash)
		e.str(g.FingerprintJSON, "fingerprint")
	}
}

func decodeEngines(d *decoder) []Engine {
	n := d.count(engineMin, "engines")
	if n == 0 {
		return nil
	}
	list := make([]Engine, 0, n)
	for range n {
		list = append(list, Engine{
			Name:            d.str("engine name"),
			Generation:      d.str("engine generation"),
			Ranks:           d.u16("engine ranks"),
			FingerprintHash: d.hash("fingerprint hash"),
			FingerprintJSON: d.str("fingerprint"),
		})
	}
	return list
}
