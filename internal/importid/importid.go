// Package importid reads the import ids of what runs on a node: what is needed to
// reach the node, and the object's own name. It is pure.
package importid

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// The forms of ids, shown in errors.
const (
	EngineFormat = "name=prefill-0,node=h100-0,host=192.0.2.11,profile=nvidia" + optionalFormat
	RouterFormat = "name=front,node=gateway,host=192.0.2.10,profile=nvidia" + optionalFormat

	optionalFormat = "[,port=22][,host_key=ssh-ed25519 AAAA…]"
)

// ID is an object and the node that it is on. The node's machine-id is not part
// of it: the machine says it itself.
type ID struct {
	Name string // of the object
	Node fleet.Coordinates
}

// Parse reads key=value by comma.
func Parse(id string) (ID, error) {
	var out ID
	out.Node.Port = fleet.DefaultSSHPort
	seen := map[string]bool{}
	for part := range strings.SplitSeq(id, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok || value == "":
			return ID{}, fmt.Errorf("%q is not key=value", part)
		case seen[key]:
			return ID{}, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "name":
			out.Name, err = value, engines.CheckName(value)
		case "node":
			out.Node.Name, err = value, engines.CheckName(value)
		case "host":
			out.Node.Host = value
		case "profile":
			out.Node.Profile = value
		case "host_key":
			out.Node.HostKey = value
		case "port":
			out.Node.Port, err = strconv.Atoi(value)
			if err != nil || out.Node.Port < 1 || out.Node.Port > 65535 {
				err = fmt.Errorf("port %q is not from 1 to 65535", value)
			}
		default:
			err = fmt.Errorf("there is no key %q", key)
		}
		if err != nil {
			return ID{}, err
		}
	}
	if out.Name == "" || out.Node.Name == "" || out.Node.Host == "" || out.Node.Profile == "" {
		return ID{}, errors.New("name, node, host and profile are needed")
	}
	return out, nil
}

// String writes an id as Parse reads it.
func (i ID) String() string {
	s := fmt.Sprintf("name=%s,node=%s,host=%s,profile=%s", i.Name, i.Node.Name, i.Node.Host, i.Node.Profile)
	if p := i.Node.Port; p != 0 && p != fleet.DefaultSSHPort {
		s += fmt.Sprintf(",port=%d", p)
	}
	if i.Node.HostKey != "" {
		s += ",host_key=" + i.Node.HostKey
	}
	return s
}
