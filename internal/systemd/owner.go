package systemd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Owner says whose a unit is.
type Owner struct {
	Fleet    string
	Resource string
	Writer   string
}

const (
	headerFirst    = "# Written by terraform-provider-moai, which undoes changes made here.\n"
	headerFleet    = "# moai-fleet: "
	headerResource = "# moai-resource: "
	headerWriter   = "# moai-writer: "
	headerHash     = "# moai-sha256: "
)

// Stamp puts the owner and the hash of body in front of body.
func (o Owner) Stamp(body string) (string, error) {
	for _, s := range []string{o.Fleet, o.Resource, o.Writer} {
		if _, err := Text(s); err != nil {
			return "", fmt.Errorf("owner: %w", err)
		}
	}
	return headerFirst + headerFleet + o.Fleet + "\n" + headerResource + o.Resource + "\n" + headerWriter + o.Writer + "\n" +
		headerHash + bodyHash(body) + "\n\n" + body, nil
}

// ReadStamp returns the owner of a stamped file and whether its body is as it was written. ok is false for a file that
// carries no stamp.
func ReadStamp(text string) (o Owner, intact, ok bool) {
	rest, ok := strings.CutPrefix(text, headerFirst)
	if !ok {
		return Owner{}, false, false
	}
	var hash string
	for _, f := range []struct {
		prefix string
		dst    *string
	}{{headerFleet, &o.Fleet}, {headerResource, &o.Resource}, {headerWriter, &o.Writer}, {headerHash, &hash}} {
		var line string
		line, rest, ok = strings.Cut(rest, "\n")
		if !ok {
			return Owner{}, false, false
		}
		if *f.dst, ok = strings.CutPrefix(line, f.prefix); !ok {
			return Owner{}, false, false
		}
	}
	body, ok := strings.CutPrefix(rest, "\n")
	if !ok {
		return Owner{}, false, false
	}
	return o, bodyHash(body) == hash, true
}

func bodyHash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}
