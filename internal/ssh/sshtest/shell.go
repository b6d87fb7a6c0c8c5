package sshtest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Shell is a Handler that really runs commands with sh -c in dir, as the user who runs the test, with env added to the
// environment. A leading "sudo -n --" is taken off.
func Shell(dir string, env ...string) Handler {
	return func(r *Request) int {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-r.Killed:
				cancel()
			case <-ctx.Done():
			}
		}()
		cmd := exec.CommandContext(ctx, "sh", "-c", strings.TrimPrefix(r.Line, "sudo -n -- "))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			_, _ = io.WriteString(r.Stderr, err.Error())
			return 126
		}
		go func() {
			_, _ = io.Copy(in, r.Stdin)
			_ = in.Close()
		}()
		err = cmd.Wait()
		var exit *exec.ExitError
		switch {
		case err == nil:
			return 0
		case errors.As(err, &exit):
			if code := exit.ExitCode(); code >= 0 {
				return code
			}
			return 137
		}
		_, _ = io.WriteString(r.Stderr, err.Error())
		return 126
	}
}
