package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

func TestLastWords(t *testing.T) {
	t.Parallel()
	const at = "2026-01-02T03:04:05+0000 h100-0 moaid-lab[7]: "
	usage := at + "flag provided but not defined: -x\n" + at + "Usage of moaid-lab engine:\n"
	for i := range 30 {
		usage += fmt.Sprintf("%s  -flag%d name\n%s    \tis described\n", at, i, at)
	}
	if got := lastWords(usage + at + "moaid-lab engine: flag provided but not defined: -x\n"); got != at+"flag provided but not defined: -x\n"+at+"moaid-lab engine: flag provided but not defined: -x" {
		t.Errorf("got %q", got)
	}
	var long strings.Builder
	for i := range 100 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	if got := lastWords(long.String()); strings.Count(got, "\n") != lastLines-1 || !strings.HasSuffix(got, "line 99") {
		t.Errorf("got %q", got)
	}
	if got := lastWords(strings.Repeat("é", 4000)); len(got) > lastBytes+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("got %d bytes", len(got))
	}
	if got := lastWords(strings.Repeat(strings.Repeat("x", 500)+"\n", 5)); len(got) > lastBytes || strings.Count(got, "\n") != 1 {
		t.Errorf("got %d bytes", len(got))
	}
}

// A start that failed says what the log says, which is told once; a connection that was lost is told beside it.
func TestDiedSaysItOnce(t *testing.T) {
	t.Parallel()
	e := &diedError{unit: "u", host: "h", result: "exit-code", exit: 1, log: "out of memory"}
	for _, c := range []struct {
		cause error
		log   string
		once  string
	}{
		{&host.Error{Verb: "unit", Exit: 70, Said: "out of memory\nJob for u failed"}, "out of memory", "out of memory"},
		{&host.Error{Verb: "unit", Exit: 70, Said: "out of memory\nJob for u failed"}, "", "out of memory"},
		{&ssh.Error{Class: ssh.ErrDropped, Err: errors.New("reset")}, "out of memory", "reset"},
		{nil, "out of memory", "out of memory"},
	} {
		e.cause, e.log = c.cause, c.log
		if got := e.Error(); strings.Count(got, c.once) != 1 {
			t.Errorf("got %q, want %q once", got, c.once)
		}
	}
}
