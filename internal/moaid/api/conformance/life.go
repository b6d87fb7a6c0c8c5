package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// RunRestart checks that what was put survives a restart of the daemon, which
// is empty before and afterwards.
func RunRestart(t *testing.T, hc *http.Client, base string, restart func()) {
	s := &suite{hc, base}
	for _, o := range objects {
		s.want(t, 200, "PUT", o.path, o.body)
	}
	s.want(t, 200, "PUT", "/v1/engines/c/drain", `{"draining":true}`)
	restart()
	for _, o := range objects {
		contains(t, s.want(t, 200, "GET", o.path, ""), o.body)
	}
	contains(t, s.want(t, 200, "GET", "/v1/engines/c", ""), `{"draining":true}`)
	for i := range objects {
		s.want(t, 204, "DELETE", objects[len(objects)-1-i].path, "")
	}
	restart()
	for _, o := range objects {
		s.code(t, 404, "not_found", "GET", o.path, "")
	}
}

// RunProbe checks a probe over the link, which is up.
func RunProbe(t *testing.T, hc *http.Client, base, link string) {
	s := &suite{hc, base}
	contains(t, s.want(t, 200, "GET", "/v1/links/"+link+"?wait=10s", ""), `{"up":true}`)
	for range 2 {
		var r struct {
			OK    bool  `json:"ok"`
			Bytes int64 `json:"bytes"`
		}
		b := s.want(t, 200, "PUT", "/v1/links/"+link+"/probes/x", `{"bytes":1000000}`)
		if err := json.Unmarshal(b, &r); err != nil || !r.OK || r.Bytes != 1000000 {
			t.Errorf("a probe of a link that is up: %s, %v", strings.TrimSpace(string(b)), err)
		}
	}
}
