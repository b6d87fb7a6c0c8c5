package demo

import (
	"strings"
	"testing"
)

// TestOutputsTakeTurns: both outputs of a program reach one writer that is not
// safe for concurrent use, whole.
func TestOutputsTakeTurns(t *testing.T) {
	var got []string
	to := &lines{line: func(text string) error {
		got = append(got, text)
		return nil
	}}
	const script = "for i in $(seq 500); do echo out; done & for i in $(seq 500); do echo err >&2; done; wait"
	out, err := command{stdout: to, argv: []string{"sh", "-c", script}}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, "out\n"); n != 500 || strings.Contains(out, "err") {
		t.Errorf("%d lines of the standard output", n)
	}
	if all := strings.Join(got, ""); strings.Count(all, "out") != 500 || strings.Count(all, "err") != 500 {
		t.Errorf("%d lines in all", len(got))
	}
}
