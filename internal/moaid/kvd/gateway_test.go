package kvd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// gatewayClient speaks moai-http/1 with a key of its own.
func gatewayClient(t *testing.T, n *node) (*http.Client, string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{wire.ALPNGateway},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	tr := &http.Transport{TLSClientConfig: conf, DisableCompression: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, transport.KeyString(pub)
}

func ask(t *testing.T, hc *http.Client, method, url string, header http.Header) (int, http.Header, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := hc.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(b), err
}

func TestGatewayPort(t *testing.T) {
	_, d, pe, _ := twoNodes(t, api.EncryptionAEAD, shortGrace)
	hc, key := gatewayClient(t, d)
	base := "https://" + d.addr
	if _, _, _, err := ask(t, hc, "GET", base+"/health", nil); err == nil {
		t.Fatal("a key that is not pinned was served")
	}
	must[*api.Trust](t, "trust")(d.c.PutTrust(t.Context(), api.Trust{Name: "router", PublicKey: key, Role: api.RoleGateway}))
	if code, _, _, err := ask(t, hc, "GET", base+"/health", nil); err != nil || code != 200 {
		t.Fatal(code, err)
	}
	if _, _, body, err := ask(t, hc, "GET", base+"/engines", nil); err != nil || !bytes.Contains([]byte(body), []byte(`"name":"decode","role":"decode","ready":true`)) {
		t.Errorf("%s %v", body, err)
	}
	id := newID()
	pe.prefill(id, 50, tokenHash(50, "a"), true)
	code, h, body, err := ask(t, hc, "POST", base+"/engines/decode/v1/completions", held(id))
	if err != nil || code != 200 || body != "POST /v1/completions" || h.Get(headerVerdict) != "ready" {
		t.Errorf("%d %s %v %v", code, body, h, err)
	}
	// Cancelling is idempotent, and may come before what it cancels.
	id = newID()
	for range 2 {
		if code, _, _, err := ask(t, hc, "DELETE", base+"/transfers/"+id, nil); err != nil || code != 204 {
			t.Errorf("%d %v", code, err)
		}
	}
	if _, h, _, err := ask(t, hc, "POST", base+"/engines/decode/x", held(id)); err != nil || h.Get(headerVerdict) != "failed; code="+string(enginesock.FailCancelled) {
		t.Errorf("%v %v", h, err)
	}
	if err := d.c.DeleteTrust(t.Context(), "router"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the removed key is refused", func() bool {
		_, _, _, err := ask(t, hc, "GET", base+"/health", nil)
		return err != nil
	})
}
