// Package conformance checks that a daemon speaks the management API, version 1.
package conformance

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Run runs the suite. The daemon is empty, and is so again afterwards. hc reaches
// it at base, a URL without a path.
func Run(t *testing.T, hc *http.Client, base string) {
	s := &suite{hc, base}
	t.Run("objects are idempotent", s.objects)
	t.Run("bodies are checked", s.bodies)
	t.Run("names are checked", s.names)
	t.Run("what is not there", s.absent)
	t.Run("status", s.status)
}

type suite struct {
	hc   *http.Client
	base string
}

const (
	//nolint:gosec // a public key of zeros
	key         = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	trust       = `{"name":"c","public_key":"` + key + `","role":"peer","node":"far"}`
	link        = `{"name":"c","peer":"far","peer_key":"` + key + `","addresses":["127.0.0.1:9"],"dial":false,"transport":"tcp","encryption":"aead","streams":2}`
	fingerprint = `{"version":1,"model":{"config":"m","weights":"m","tokenizer":"m","chat_template":""},"engine":{"family":"e","release":"0"},` +
		`"storage":{"dtype":"bf16","scales":{"kind":"none"},"order":"LBHNC","packing":"packed","block_size":16,"kernel_block":16},` +
		`"groups":[{"kind":"full","layers":[0],"heads":2,"key_dim":8,"value_dim":8}],"ranks":{"tensor":1,"pipeline":1}}`
	engine = `{"name":"c","unit":"","uid":4294967294,"http_socket":"/nonexistent/http.sock","role":"decode","fingerprint":` + fingerprint + `,"data_size":2,"staging_bytes":1048576,"max_in_flight":0,"on_transfer_failure":"recompute"}`
	pair   = `{"name":"c","prefill":[{"node":"far","engine":"p"}],"decode":[{"node":"here","engine":"c"}],"allow_lossy":true,"allow_releases":true}`
)

var objects = []struct{ path, body, other string }{
	{"/v1/trust/c", trust, strings.Replace(trust, "far", "near", 1)},
	{"/v1/links/c", link, strings.Replace(link, `"streams":2`, `"streams":3`, 1)},
	{"/v1/engines/c", engine, strings.Replace(engine, `"data_size":2`, `"data_size":1`, 1)},
	{"/v1/pairs/c", pair, strings.Replace(pair, `"allow_lossy":true,`, "", 1)},
}

// do sends a request and gives status and body.
func (s *suite) do(t *testing.T, method, path, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.hc.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, b
}

// want checks the status, and for an error the form of its body.
func (s *suite) want(t *testing.T, status int, method, path, body string) []byte {
	t.Helper()
	got, b := s.do(t, method, path, body)
	if got != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, got, status, b)
	}
	if status >= 400 {
		var e struct {
			Error struct{ Code, Message string } `json:"error"`
		}
		if err := json.Unmarshal(b, &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
			t.Errorf("%s %s: the error has another form: %s", method, path, b)
		}
	}
	return b
}

// code checks the status and the code of an error.
func (s *suite) code(t *testing.T, status int, code, method, path, body string) {
	t.Helper()
	var e struct {
		Error struct{ Code string } `json:"error"`
	}
	b := s.want(t, status, method, path, body)
	if err := json.Unmarshal(b, &e); err != nil || e.Error.Code != code {
		t.Errorf("%s %s: code %q, want %q: %s", method, path, e.Error.Code, code, b)
	}
}

// contains checks that every field of want is in got with the same value.
func contains(t *testing.T, got []byte, want string) {
	t.Helper()
	var g, w map[string]any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	for k, v := range w {
		a, _ := json.Marshal(v)    //nolint:errchkjson // came from JSON
		b, _ := json.Marshal(g[k]) //nolint:errchkjson // came from JSON
		if string(a) != string(b) {
			t.Errorf("%s is %s, want %s", k, b, a)
		}
	}
}

func (s *suite) objects(t *testing.T) {
	for _, o := range objects {
		for _, body := range []string{o.body, o.body, o.other, o.body} {
			contains(t, s.want(t, 200, "PUT", o.path, body), body)
			contains(t, s.want(t, 200, "GET", o.path, ""), body)
		}
	}
	contains(t, s.want(t, 200, "PUT", "/v1/engines/c/drain", `{"draining":true}`), `{"draining":true}`)
	contains(t, s.want(t, 200, "PUT", "/v1/engines/c/drain", `{"draining":true}`), `{"draining":true}`)
	var probe struct{ OK bool }
	if err := json.Unmarshal(s.want(t, 200, "PUT", "/v1/links/c/probes/x", `{"bytes":1000}`), &probe); err != nil || probe.OK {
		t.Errorf("a probe of a link that is down: ok %v, %v", probe.OK, err)
	}
	s.code(t, 409, "conflict", "PUT", "/v1/links/second", strings.Replace(link, `"name":"c"`, `"name":"second"`, 1))
	s.code(t, 404, "not_found", "GET", "/v1/links/second", "")
	for i := range objects {
		o := objects[len(objects)-1-i]
		for range 2 {
			s.want(t, 204, "DELETE", o.path, "")
		}
		s.want(t, 404, "GET", o.path, "")
	}
}

func (s *suite) bodies(t *testing.T) {
	for _, o := range objects {
		s.want(t, 400, "PUT", o.path, strings.Replace(o.body, "{", `{"surprise":1,`, 1))
		s.want(t, 400, "PUT", o.path, o.body+o.body)
		s.want(t, 400, "PUT", o.path, "")
		s.want(t, 400, "PUT", o.path, "null x")
		s.want(t, 400, "PUT", o.path, strings.Replace(o.body, `"name":"c"`, `"name":"other"`, 1))
		s.want(t, 413, "PUT", o.path, strings.Replace(o.body, `"name"`, strings.Repeat(" ", 1<<20)+`"name"`, 1))
		s.want(t, 404, "GET", o.path, "")
	}
	for path, body := range map[string]string{
		"/v1/trust/c":   strings.Replace(trust, "ed25519:", "rsa:", 1),
		"/v1/links/c":   strings.Replace(link, "aead", "rot13", 1),
		"/v1/engines/c": strings.Replace(engine, `"block_size":16`, `"block_size":0`, 1),
		"/v1/pairs/c":   strings.Replace(pair, "far", "Not a name", 1),
	} {
		s.want(t, 400, "PUT", path, body)
	}
}

func (s *suite) names(t *testing.T) {
	for _, name := range []string{"UPPER", "-x", "a_b", "a.b", strings.Repeat("x", 64), "%20"} {
		for _, kind := range []string{"trust", "links", "engines", "pairs"} {
			s.want(t, 400, "PUT", "/v1/"+kind+"/"+name, "{}")
		}
	}
}

func (s *suite) absent(t *testing.T) {
	s.want(t, 404, "PUT", "/v1/engines/none/drain", `{"draining":true}`)
	s.want(t, 404, "PUT", "/v1/links/none/probes/x", `{"bytes":1}`)
	s.want(t, 404, "GET", "/v1/links/none?wait=10s", "")
	s.want(t, 404, "GET", "/v1/engines/none?wait=10s", "")
	s.want(t, 404, "POST", "/v1/engines/none/http/v1/models", "{}")
	s.code(t, 404, "unknown_path", "GET", "/v1/none", "")
	for _, kind := range []string{"trust", "links", "engines", "pairs"} {
		s.code(t, 404, "not_found", "GET", "/v1/"+kind+"/none", "")
	}
	s.want(t, 204, "DELETE", "/v1/transfers/00112233445566778899aabbccddeeff", "")
	s.want(t, 400, "DELETE", "/v1/transfers/nothex", "")
}

func (s *suite) status(t *testing.T) {
	var st struct {
		Node      string `json:"node"`
		PublicKey string `json:"public_key"`
		Instance  string `json:"instance"`
		Trust     []any  `json:"trust"`
		Links     []any  `json:"links"`
		Engines   []any  `json:"engines"`
		Pairs     []any  `json:"pairs"`
	}
	if err := json.Unmarshal(s.want(t, 200, "GET", "/v1/status", ""), &st); err != nil {
		t.Fatal(err)
	}
	if st.Node == "" || !strings.HasPrefix(st.PublicKey, "ed25519:") || len(st.Instance) != 32 {
		t.Errorf("%+v", st)
	}
	if st.Trust == nil || st.Links == nil || st.Engines == nil || st.Pairs == nil || len(st.Trust)+len(st.Links)+len(st.Engines)+len(st.Pairs) != 0 {
		t.Errorf("lists must be empty, not null: %+v", st)
	}
	var list []any
	if err := json.Unmarshal(s.want(t, 200, "GET", "/v1/transfers", ""), &list); err != nil || list == nil {
		t.Errorf("transfers: %v %v", list, err)
	}
	if b := s.want(t, 200, "GET", "/metrics", ""); !strings.Contains(string(b), "# TYPE") {
		t.Error("/metrics is no Prometheus text")
	}
}
