package acctest

import (
	"net/http/httptest"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

// TestDaemonConforms: the stand-in speaks the management API as moaid does, or the tests on it prove nothing.
func TestDaemonConforms(t *testing.T) {
	m := sshtest.NewMachine(t)
	m.SetFile("/etc/moai/kvd.json", sshtest.Entry{Content: []byte(`{"node":"here","listen":["127.0.0.1:9610"]}`)})
	m.SetFile("/opt/moai/bin/moaid", sshtest.Entry{Content: []byte("moaid")})
	d := newDaemon(newNetwork(), m)
	if err := d.unit("start", kvdUnit); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(d)
	defer s.Close()
	conformance.Run(t, s.Client(), s.URL)
}
