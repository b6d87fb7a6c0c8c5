package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// object is a JSON object whose members keep their order, as the tools' output does.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON renders the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", m.key, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// hidden is the object with every member "N/A".
func (o object) hidden() object {
	var out object
	for _, m := range o {
		out = append(out, member{m.key, notAvailable})
	}
	return out
}

// notAvailable is what amd-smi says of what it does not know or may not tell, whatever type the value has.
const notAvailable = "N/A"

// measure is a value with its unit.
func measure(value int, unit string) object { return object{{"value", value}, {"unit", unit}} }

// render prints a value as the tools do.
func render(v any) string {
	text, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		panic(err) // strings, integers, lists and objects of them
	}
	return string(text) + "\n"
}
