package transport

import "time"

// backoff is how long to wait before the next dial. A session that stayed up
// longer than the last wait starts it anew; so does nothing shorter, or two ends
// that end each other's sessions would dial without a pause.
type backoff struct {
	min, max time.Duration
	last     time.Duration
}

// next takes how long the last attempt, with its session, took and a random
// number in [0, 1). The wait lies between half and all of a doubling step, so
// that daemons which lost the same peer do not come back together.
func (b *backoff) next(took time.Duration, random float64) time.Duration {
	if b.last == 0 || took > max(b.last, b.max/2) {
		b.last = b.min
	} else {
		b.last = min(2*b.last, b.max)
	}
	half := b.last / 2
	return half + time.Duration(random*float64(b.last-half))
}
