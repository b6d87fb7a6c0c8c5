package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/intake"
)

// maxBody bounds a request's body, and an engine's answer that is no stream, in
// bytes. Daemons forward no more.
const maxBody = 64 << 20

// maxBodies bounds the bodies of all requests together, in bytes. They are kept
// until their answer, since another engine may have to be asked.
const maxBodies = 1 << 30

// bodyPatience is how many times the client's patience a whole body may take.
const bodyPatience = 10

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
	patience := time.Duration(x.g.timeouts.Client)
	b, release, err := x.g.bodies.Read(&patient{r: http.MaxBytesReader(x.w, x.r.Body, maxBody), rc: rc, patience: patience,
		last: time.Now().Add(bodyPatience * patience)}, x.r.ContentLength)
	var mbe *http.MaxBytesError
	switch {
	case errors.As(err, &mbe):
		x.rec.reason = tooLong.code
		return nil, tooLong
	case errors.Is(err, intake.ErrFull):
		x.rec.reason = "overloaded"
		x.w.Header().Set("Retry-After", "1")
		return nil, &failure{http.StatusServiceUnavailable, err.Error(), kindRouter, "", "overloaded"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.rec.reason = "body_timeout"
		return nil, &failure{http.StatusRequestTimeout, "the body did not arrive in time", kindRequest, "", "body_timeout"}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errClientGone, err)
	}
	x.release = release
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return b, nil
}

// patient is a reader that fails when nothing comes for a time, or when all of it
// takes too long: a client could send a byte now and then for ever.
type patient struct {
	r        io.Reader
	rc       *http.ResponseController
	patience time.Duration
	last     time.Time // by which all must be there
	armed    time.Time
}

func (p *patient) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(p.armed) > p.patience/8 {
		p.armed = now
		by := now.Add(p.patience)
		if by.After(p.last) {
			by = p.last
		}
		if err := p.rc.SetReadDeadline(by); err != nil {
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
