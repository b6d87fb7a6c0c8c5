package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/intake"
)

func TestMemoryOfBodiesIsBounded(t *testing.T) {
	release := make(chan struct{})
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
		<-release
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}}})
	b.g.bodies = intake.NewBudget(400_000)
	body := `{"model":"m","prompt":"` + strings.Repeat("x", 200_000) + `"}`
	first := make(chan int, 1)
	go func() {
		resp, err := b.open(t.Context(), "/v1/completions", body)
		if err != nil {
			first <- 0
			return
		}
		defer func() { _ = resp.Body.Close() }()
		first <- resp.StatusCode
	}()
	recv(t, b.d[0].calls, "the first request")
	resp, text := b.post(body)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, `"overloaded"`) || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
	close(release)
	if code := recv(t, first, "the first answer"); code != http.StatusOK {
		t.Error(code)
	}
	for deadline := time.Now().Add(patience); b.g.bodies.Free() < 400_000 && time.Now().Before(deadline); {
		b.get("/health") // memory is given back after the answer
	}
	if resp, text := b.post(body); resp.StatusCode != http.StatusOK {
		t.Errorf("memory was not given back: %d %s", resp.StatusCode, text)
	}
}

// A client that sends a byte now and then is never silent for long, but must end.
func TestDrippingClient(t *testing.T) {
	b := newBench(t, setup{change: func(c *config.RouterConfig) { c.Timeouts.Client = config.Duration(100 * time.Millisecond) }})
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := c.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // the client's own pace, nothing waits for it
		}
	}()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
}
