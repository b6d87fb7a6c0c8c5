package conformance

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// PythonClient gives a Factory of clients in one Python process that runs
// script. A factory belongs to one test.
func PythonClient(t testing.TB, python, script string) Factory {
	p := startPython(t, python, script)
	return func(testing.TB) Client { return p.client() }
}

// PythonProcesses gives a Factory of clients in n Python processes: any n that
// are made one after the other are a process each.
func PythonProcesses(t testing.TB, n int, python, script string) Factory {
	all := make([]*pyProcess, n)
	for i := range all {
		all[i] = startPython(t, python, script)
	}
	var made atomic.Int64
	return func(testing.TB) Client { return all[made.Add(1)%int64(n)].client() }
}

// startPython runs script until the test's end.
func startPython(t testing.TB, python, script string) *pyProcess {
	cmd := exec.CommandContext(t.Context(), python, "-u", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // the end of its input ends the program
		_ = cmd.Wait()
	})
	return &pyProcess{in: in, out: bufio.NewReader(out)}
}

// client is a session that the process has not had yet.
func (p *pyProcess) client() Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients++
	return &pyClient{p: p, session: p.clients}
}

type pyProcess struct {
	mu      sync.Mutex
	in      io.Writer
	out     *bufio.Reader
	clients int
}

type pyClient struct {
	p       *pyProcess
	session int
}

// do sends one order and decodes its result into out.
func (c *pyClient) do(what string, order map[string]any, out any) error {
	if order == nil {
		order = map[string]any{}
	}
	order["do"], order["session"] = what, c.session
	b, err := json.Marshal(order)
	if err != nil {
		return err
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if _, err := c.p.in.Write(append(b, '\n')); err != nil {
		return err
	}
	line, err := c.p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the Python client has ended: %w", err)
	}
	var answer struct {
		Result  json.RawMessage   `json:"result"`
		Refused *enginesock.Error `json:"refused"`
		Timeout bool              `json:"timeout"`
		Failed  string            `json:"failed"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("the Python client said %q: %w", line, err)
	}
	switch {
	case answer.Refused != nil:
		return answer.Refused
	case answer.Timeout:
		return ErrTimeout
	case answer.Failed != "":
		return fmt.Errorf("%w: %s", ErrClosed, answer.Failed)
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer.Result, out)
}

// fields are a request's, without those that the client sets.
func fields(r enginesock.Request) (map[string]any, error) {
	b, err := enginesock.EncodeRequest(r, 1)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	delete(m, "t")
	delete(m, "seq")
	return m, nil
}

func (c *pyClient) ask(what string, order map[string]any) (*enginesock.OK, error) {
	var ok enginesock.OK
	if err := c.do(what, order, &ok); err != nil {
		return nil, err
	}
	return &ok, nil
}

func (c *pyClient) Connect(path string, hello enginesock.Hello) (*enginesock.OK, error) {
	f, err := fields(&hello)
	if err != nil {
		return nil, err
	}
	return c.ask("connect", map[string]any{"fields": map[string]any{"path": path, "hello": f}})
}

func (c *pyClient) Request(r enginesock.Request) (*enginesock.OK, error) {
	f, err := fields(r)
	if err != nil {
		return nil, err
	}
	return c.ask("request", map[string]any{"t": r.Type(), "fields": f})
}

func (c *pyClient) Event(within time.Duration) (enginesock.Reply, error) {
	var raw json.RawMessage
	if err := c.do("event", map[string]any{"timeout": within.Seconds()}, &raw); err != nil {
		return nil, err
	}
	var closed struct {
		Closed bool `json:"closed"`
	}
	if json.Unmarshal(raw, &closed) == nil && closed.Closed {
		return nil, ErrClosed
	}
	return enginesock.DecodeReply(raw)
}

func (c *pyClient) Claim(m enginesock.Claim) (*enginesock.OK, error) {
	f, err := fields(&m)
	if err != nil {
		return nil, err
	}
	return c.ask("claim", map[string]any{"fields": f})
}

func (c *pyClient) Poll(id string) (enginesock.ClaimState, error) {
	var s enginesock.ClaimState
	err := c.do("poll", map[string]any{"fields": map[string]any{"id": id}}, &s)
	return s, err
}

func (c *pyClient) OpenArena() (*enginesock.OK, error) { return c.ask("open_arena", nil) }

func (c *pyClient) Adopt() error { return c.do("adopt", nil, nil) }

func (c *pyClient) Read(offset, length int64) ([]byte, error) {
	var r struct {
		Hex string `json:"hex"`
	}
	if err := c.do("read", map[string]any{"offset": offset, "length": length}, &r); err != nil {
		return nil, err
	}
	return hex.DecodeString(r.Hex)
}

func (c *pyClient) Write(offset int64, b []byte) error {
	return c.do("write", map[string]any{"offset": offset, "hex": hex.EncodeToString(b)}, nil)
}

func (c *pyClient) Loaded(id string, ok bool) error {
	err := c.do("loaded", map[string]any{"fields": map[string]any{"id": id, "ok": ok}}, nil)
	if errors.Is(err, ErrClosed) && strings.Contains(err.Error(), "has reported") { // raised without asking
		return enginesock.ErrReported
	}
	return err
}

func (c *pyClient) Close() error { return c.do("close", nil, nil) }
