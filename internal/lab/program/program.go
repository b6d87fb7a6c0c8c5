// Package program runs other programs to their end and, when one fails, reports its last words.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// lastWords is how many bytes of a failed program's output an error carries.
const lastWords = 1200

// Command is one program to run to its end.
type Command struct {
	Args  []string // program and arguments; no shell
	Stdin string
	Dir   string   // working folder; empty: ours
	Env   []string // the whole environment; nil: ours
}

// Run runs c and returns what it wrote to standard output. The error of a failing program carries the
// end of its output, standard error first.
func Run(ctx context.Context, c Command) (string, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	// A program does not outlive us, even if we are killed: it could undo what the next command does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w%s", strings.Join(c.Args, " "), err, tail(errs.String(), out.String()))
	}
	return out.String(), nil
}

// tail returns the end of the first text that says anything, set off for an error message.
func tail(texts ...string) string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			return ": " + Tail(t, lastWords)
		}
	}
	return ""
}

// Tail returns at most n bytes of the end of text, cut at a line where that is possible.
func Tail(text string, n int) string {
	text = strings.TrimSpace(text)
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	if i := strings.IndexByte(text, '\n'); i >= 0 && i < n/2 {
		text = text[i+1:]
	}
	return "… " + text
}
