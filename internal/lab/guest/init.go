package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/link"
)

// Main runs the program that this process was called as, and reports whether it was one of this package's. It does not
// return from those.
func Main(args []string) bool {
	name := filepath.Base(args[0])
	switch {
	case strings.HasPrefix(name, InitName+"-"):
		os.Exit(report(initProcess()))
	case name == serveName:
		os.Exit(report(serve()))
	case name == execName:
		os.Exit(becomeProgram(args[1:]))
	}
	if run, ok := commands[name]; ok {
		os.Exit(run(args[1:]))
	}
	return false
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ExitReboot is how process 1 ends when the host wants to be started again, as under systemd-nspawn.
const ExitReboot = 133

// readyFD is where process 1 and the server say that the host can be used: they close it after a line.
const readyFD = 3

// network turns the host's devices on.
func (s Spec) network() error {
	if err := link.Up("lo"); err != nil {
		return err
	}
	for i, a := range s.Addresses {
		p, err := netip.ParsePrefix(a)
		if err != nil {
			return err
		}
		device := fmt.Sprintf("eth%d", i)
		if err := errors.Join(link.SetAddress(device, p), link.Up(device)); err != nil {
			return err
		}
	}
	return nil
}

// initProcess is process 1 of a host: it makes the root, starts the server and buries the dead. When it ends, the kernel
// ends everything of the host.
func initProcess() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var s Spec
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(s.Host)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := s.network(); err != nil {
		return err
	}
	if err := enter(s); err != nil {
		return fmt.Errorf("make the root of the host: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec(Program, []string{serveName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=" + defaultPath, "LANG=C.UTF-8"}, Files: []uintptr{r.Fd(), 1, 2, readyFD},
	})
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	_ = r.Close()
	_ = syscall.Close(readyFD)
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		dead, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case dead == pid && status.Exited() && (status.ExitStatus() == ExitReboot || status.ExitStatus() == 0):
			os.Exit(status.ExitStatus())
		case dead == pid:
			return fmt.Errorf("the server ended: exited %v, status %d, signal %v", status.Exited(), status.ExitStatus(), status.Signal())
		}
	}
}
