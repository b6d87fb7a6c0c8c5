package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// importFormat is shown in documentation and errors.
const importFormat = "name=h100-0,host=192.0.2.11,profile=nvidia[,port=22][,host_key=ssh-ed25519 AAAA…]"

// parseImportID reads an import id: what Read needs to reach the machine, as key=value by comma.
func parseImportID(id string) (fleet.Coordinates, error) {
	c := fleet.Coordinates{Port: fleet.DefaultSSHPort}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(id, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok || value == "":
			return c, fmt.Errorf("%q is not key=value", part)
		case seen[key]:
			return c, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		switch key {
		case "name":
			if !nameRE.MatchString(value) {
				return c, fmt.Errorf("name %q %s", value, nameText)
			}
			c.Name = value
		case "host":
			c.Host = value
		case "profile":
			c.Profile = value
		case "host_key":
			c.HostKey = value
		case "port":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 65535 {
				return c, fmt.Errorf("port %q is not from 1 to 65535", value)
			}
			c.Port = n
		default:
			return c, fmt.Errorf("there is no key %q", key)
		}
	}
	if c.Name == "" || c.Host == "" || c.Profile == "" {
		return c, errors.New("name, host and profile are needed")
	}
	return c, nil
}
