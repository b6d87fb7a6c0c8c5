package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

func TestRefusalsThatLast(t *testing.T) {
	t.Parallel()
	refused := func(c enginesock.Code) answer { return answer{refused: string(c)} }
	for _, c := range []struct {
		name string
		seen []answer // two seconds apart
		want bool
	}{
		{"long enough", []answer{refused("fingerprint"), refused("fingerprint"), refused("fingerprint"), refused("fingerprint"), refused("fingerprint"), refused("fingerprint")}, true},
		{"not yet", []answer{refused("version"), refused("version"), refused("version"), refused("version"), refused("version")}, false},
		{"interrupted", []answer{refused("version"), refused("version"), {}, refused("version"), refused("version"), refused("version"), refused("version")}, false},
		{"of changing kinds", []answer{refused("version"), refused("version"), refused("version"), refused("unauthorized"), refused("unauthorized"), refused("unauthorized"), refused("unauthorized")}, false},
		{"that waiting ends", []answer{refused("internal"), refused("internal"), refused("internal"), refused("internal"), refused("internal"), refused("internal"), refused("internal")}, false},
		{"of one that serves", []answer{refused("version"), refused("version"), refused("version"), refused("version"), refused("version"), {ready: true, refused: "version"}}, false},
	} {
		var r refusals
		got, now := false, time.Unix(1000, 0)
		for _, a := range c.seen {
			got = r.lasted(a, now)
			now = now.Add(2 * time.Second)
		}
		if got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The words of the management API are those of the engine socket.
func TestRefusalsAreTheSockets(t *testing.T) {
	t.Parallel()
	socket := []enginesock.Code{enginesock.CodeVersion, enginesock.CodeFingerprint, enginesock.CodeUnauthorized, enginesock.CodeBadRequest}
	for i, code := range socket {
		if len(lasting) != len(socket) || lasting[i] != string(code) {
			t.Errorf("%v, and the socket has %v", lasting, socket)
		}
	}
}

func TestRefusedError(t *testing.T) {
	t.Parallel()
	for _, code := range lasting {
		err := error(&refusedError{name: "a", host: "h", code: code, reason: "because"})
		var explained diagnose.Explained
		var attributed diagnose.Attributed
		if !errors.As(err, &explained) || !errors.As(err, &attributed) || !strings.Contains(err.Error(), "because") {
			t.Fatalf("%v", err)
		}
		if summary, fix := explained.Explain(); summary == "" || fix == "" || attributed.DiagnosticAttribute() == "" {
			t.Errorf("%s: %q %q", code, summary, fix)
		}
	}
}
