package demo

import "bytes"

// lines collects writes and hands on whole lines, without their ends.
type lines struct {
	buf  []byte
	line func(string) error
}

func (l *lines) Write(b []byte) (int, error) {
	l.buf = append(l.buf, b...)
	for {
		i := bytes.IndexByte(l.buf, '\n')
		if i < 0 {
			return len(b), nil
		}
		text := string(l.buf[:i])
		l.buf = l.buf[i+1:]
		if err := l.line(text); err != nil {
			return 0, err
		}
	}
}
