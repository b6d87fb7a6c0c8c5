package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// sudoMode is how commands become root on one connection.
type sudoMode int

const (
	sudoUnknown  sudoMode = iota
	sudoRoot              // the user is root: nothing to do
	sudoFree              // sudo does not ask
	sudoPassword          // sudo asks, and the target has a password
)

// The password is written only when sudo has asked for it, and the command's own input only when the command runs:
// else a sudo that does not ask would hand the password to the command as input.
const (
	sudoPrompt = "[moai:password]"
	sudoReady  = "[moai:ready]\n"
)

// becomeScript says how this user becomes root: one line.
const becomeScript = `# moai:become
uid=$(id -u) || exit 1
if [ "$uid" = 0 ]; then echo root; exit 0; fi
command -v sudo >/dev/null 2>&1 || { echo missing; exit 0; }
if msg=$(LC_ALL=C sudo -n -- sh -c : 2>&1); then echo free; else printf 'asks %s\n' "$msg"; fi
`

// become finds the mode out, once for a connection.
func (c *Conn) become(ctx context.Context, l *link) (sudoMode, error) {
	if err := acquire(ctx, l.sudoGate); err != nil {
		return sudoUnknown, cancelled(c.target, StepSudo, err)
	}
	defer func() { <-l.sudoGate }()
	if l.sudo != sudoUnknown {
		return l.sudo, nil
	}
	res, err := c.runOn(ctx, Cmd{Script: becomeScript}, sudoRoot)
	if err != nil {
		return sudoUnknown, err
	}
	mode, err := c.decideSudo(res)
	if err != nil {
		return sudoUnknown, err
	}
	if mode == sudoPassword {
		if _, err := c.runOn(ctx, Cmd{Argv: []string{"true"}}, sudoPassword); err != nil {
			return sudoUnknown, err
		}
	}
	l.sudo = mode
	return mode, nil
}

func (c *Conn) decideSudo(res Result) (sudoMode, error) {
	fail := func(fix, format string, a ...any) (sudoMode, error) {
		return sudoUnknown, &Error{Class: ErrSudo, Target: c.target.String(), Step: StepSudo, Attribute: "become", Fix: fix,
			Err: errors.New(c.Redact(fmt.Sprintf(format, a...)))}
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), " ")
	switch {
	case word == "root":
		return sudoRoot, nil
	case word != "free" && word != "missing" && word != "asks":
		return fail("The login shell must be a POSIX shell and must not print anything of its own",
			"the host's answer to \"who am I\" is not understood: exit status %d, output %q, errors %q", res.ExitCode, clip(res.Stdout), clip(res.Stderr))
	case c.target.Become.Method == BecomeNone:
		return fail(`Log in as root, or set become = { method = "sudo" }`, "user %s is not root and become.method is \"none\"", c.target.User)
	case word == "missing":
		return fail("Install sudo on the host, or log in as root", "user %s is not root and the host has no sudo", c.target.User)
	case word == "free":
		return sudoFree, nil
	case strings.Contains(rest, "tty"):
		return fail("Remove \"Defaults requiretty\" from sudoers for this user: commands run without a terminal", "sudo says: %s", rest)
	case c.target.Become.Password == "":
		return fail(fmt.Sprintf("Give become.password, or allow it without one: echo '%s ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/moai", c.target.User),
			"sudo says: %s", rest)
	}
	return sudoPassword, nil
}

func clip(b []byte) string { return shorten(strings.TrimSpace(string(b)), 400) }

// wrapSudo puts the way to root in front of argv.
func wrapSudo(argv []string, mode sudoMode) []string {
	switch mode {
	case sudoFree:
		return append([]string{"sudo", "-n", "--"}, argv...)
	case sudoPassword:
		return append([]string{"sudo", "-S", "-p", sudoPrompt, "--", "sh", "-c", "printf '" + strings.TrimSpace(sudoReady) + "\\n' >&2; exec \"$@\"", "moai"}, argv...)
	case sudoRoot, sudoUnknown:
	}
	return argv
}

// errWrongPassword: sudo asked a second time.
var errWrongPassword = errors.New("sudo did not accept become.password")

// passGate reads stderr of a sudo that may ask, answers once, and returns when the command itself runs. It returns what
// it read beyond the marker.
func passGate(stderr io.Reader, stdin io.Writer, password Secret) (rest []byte, err error) {
	var seen []byte
	asked := false
	buf := make([]byte, 1024)
	for {
		n, rerr := stderr.Read(buf)
		seen = append(seen, buf[:n]...)
		if i := bytes.Index(seen, []byte(sudoReady)); i >= 0 {
			return seen[i+len(sudoReady):], nil
		}
		if bytes.Contains(seen, []byte(sudoPrompt)) {
			if asked {
				return nil, errWrongPassword
			}
			asked = true
			seen = bytes.Replace(seen, []byte(sudoPrompt), nil, 1)
			if _, err := io.WriteString(stdin, password.Reveal()+"\n"); err != nil {
				return nil, fmt.Errorf("write password to sudo: %w", err)
			}
		}
		if rerr != nil {
			return nil, fmt.Errorf("sudo ended without running the command: %s", clip(seen))
		}
		if len(seen) > 64<<10 {
			return nil, errors.New("sudo writes without end and does not run the command")
		}
	}
}
