package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// command is one program run to its end. What it printed is in the error when
// it failed, so that nothing has to be run again to learn why.
type command struct {
	dir    string
	env    []string // nil: the environment of the demo
	stdin  io.Reader
	stdout io.Writer // where output also goes, both kinds; may be nil
	argv   []string
}

// exitError is a program that ended with a status other than 0.
type exitError struct {
	argv   []string
	status int
	output string
}

func (e *exitError) Error() string {
	out := strings.TrimSpace(e.output)
	if n := len(out); n > 4000 {
		out = "…" + out[n-4000:]
	}
	return fmt.Sprintf("%s: exit status %d\n%s", strings.Join(e.argv, " "), e.status, out)
}

// turns lets the writers of one mutex write one after the other: a program's two
// outputs are copied by a goroutine each, to the same places.
type turns struct {
	mu *sync.Mutex
	w  io.Writer
}

func (t turns) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(b)
}

func (c command) run(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.env, c.stdin
	var stdout, all bytes.Buffer
	both := io.Writer(&all)
	if c.stdout != nil {
		both = io.MultiWriter(c.stdout, &all)
	}
	turn := &sync.Mutex{}
	cmd.Stdout, cmd.Stderr = turns{turn, io.MultiWriter(&stdout, both)}, turns{turn, both}
	err := cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
		return stdout.String(), &exitError{argv: c.argv, status: cmd.ProcessState.ExitCode(), output: all.String()}
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("%s: %w", strings.Join(c.argv, " "), err)
	}
	return stdout.String(), nil
}

// CLIEnv is the environment of the Terraform CLI: the demo's, less every
// variable that would change what the CLI does.
func CLIEnv(config string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "TF_") && !strings.HasPrefix(kv, "TF_LOG") {
			continue
		}
		env = append(env, kv)
	}
	env = append(env, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+config)
	return env
}
