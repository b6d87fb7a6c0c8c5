package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// maxBody bounds a request's body, and an engine's answer that is no stream, in
// bytes. Daemons forward no more.
const maxBody = 64 << 20

// readBody reads the request's body to its end. Only then does net/http notice
// that a client leaves (golang/go#23262), and a body that is passed on while it
// is read gets streams cut.
func (x *exchange) readBody() ([]byte, error) {
	tooLong := &failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", maxBody), kindRequest, "", "body_too_large"}
	if x.r.ContentLength > maxBody {
		x.rec.reason = tooLong.code
		return nil, tooLong
	}
	rc := http.NewResponseController(x.w)
	var b bytes.Buffer
	if n := x.r.ContentLength; n > 0 {
		// A client that only announces much gets little.
		b.Grow(int(min(n, 1<<20)) + bytes.MinRead)
	}
	_, err := b.ReadFrom(&patient{r: http.MaxBytesReader(x.w, x.r.Body, maxBody), rc: rc, patience: time.Duration(x.g.timeouts.Client)})
	var mbe *http.MaxBytesError
	switch {
	case errors.As(err, &mbe):
		x.rec.reason = tooLong.code
		return nil, tooLong
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.rec.reason = "body_timeout"
		return nil, &failure{http.StatusRequestTimeout, "the body did not arrive in time", kindRequest, "", "body_timeout"}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errClientGone, err)
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// patient is a reader that fails when nothing comes for a time.
type patient struct {
	r        io.Reader
	rc       *http.ResponseController
	patience time.Duration
	armed    time.Time
}

func (p *patient) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(p.armed) > p.patience/8 {
		p.armed = now
		if err := p.rc.SetReadDeadline(now.Add(p.patience)); err != nil {
			return 0, err
		}
	}
	return p.r.Read(b)
}

// readAnswer reads an engine's answer that is no stream.
func readAnswer(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = fmt.Errorf("the answer is longer than %d bytes", maxBody)
	}
	return b, err
}
