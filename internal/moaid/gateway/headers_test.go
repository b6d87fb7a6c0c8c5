package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// What routers and daemons say to each other no client can say.
func TestClientsCannotSetHeadersOfTheDaemon(t *testing.T) {
	b := newBench(t, setup{})
	for _, body := range []string{`{"prompt":"a"}`, `{"prompt":"a","n":2}`} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"X-data-parallel-rank", "x-moai-transfer", "X-Moai-Source", "X-MOAI-ROUTE", "X-Moai-Hold-Ms", "X-Moai-Transfer-Verdict", "X-Moai-Later"}
		for _, k := range names {
			r.Header.Set(k, "forged")
		}
		r.Header.Set("X-Own", "1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = readAll(t, resp)
		calls := []call{recv(t, b.d[0].calls, "decode's request")}
		if body == `{"prompt":"a"}` {
			calls = append(calls, recv(t, b.p.calls, "prefill's request"))
		}
		for _, c := range calls {
			for _, k := range names {
				if c.header.Get(k) == "forged" {
					t.Errorf("%s: %s passed", body, k)
				}
			}
			if c.header.Get("X-Own") != "1" {
				t.Errorf("%s: the client's own header is missing", body)
			}
		}
	}
}
