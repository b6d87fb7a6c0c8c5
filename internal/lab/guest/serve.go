package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/supervisor"
)

// ControlPath is where a host's server takes requests from the host's own tools and from the lab.
const ControlPath = "/run/moai-lab/control"

const (
	runDir      = "/run/moai-lab"
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Request is what a host's server is asked for.
type Request struct {
	Do   string   `json:"do"`
	Args []string `json:"args"`
}

// Reply is what a tool prints and ends with.
type Reply struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Exit   int    `json:"exit"`
}

// Ask asks the server behind a socket.
func Ask(ctx context.Context, socket string, q Request) (Reply, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return Reply{}, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return Reply{}, err
	}
	var r Reply
	err = json.NewDecoder(bufio.NewReader(conn)).Decode(&r)
	return r, err
}

// server is a host's SSH server and service manager.
type server struct {
	spec    Spec
	manager *supervisor.Manager
	journal *supervisor.Journal
	owners  owners
}

// serve runs the server until the host ends.
func serve() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	h := &server{}
	if err := json.Unmarshal(text, &h.spec); err != nil {
		return err
	}
	if err := os.Setenv("PATH", defaultPath); err != nil {
		return err
	}
	h.journal = supervisor.NewJournal(h.spec.Host)
	h.owners.load()
	h.manager = supervisor.New(supervisor.Config{
		UnitDir: "/etc/systemd/system", StateDir: "/var/lib", RunDir: "/run", Launch: h.launch, Notify: h.notify, Chown: h.chown,
		Journal: h.journal, Now: time.Now,
	})
	// What units leave is given to the nearest ancestor that takes it: it stays visible as the host's.
	var lc net.ListenConfig
	control, err := lc.Listen(context.Background(), "unix", ControlPath)
	if err != nil {
		return err
	}
	if err := os.Chmod(ControlPath, 0o666); err != nil {
		return err
	}
	door, err := newDoor(h)
	if err != nil {
		return err
	}
	l, err := lc.Listen(context.Background(), "tcp4", fmt.Sprintf(":%d", h.spec.SSHPort))
	if err != nil {
		return err
	}
	go door.accept(l)
	go h.manager.Boot(context.Background())
	if _, err := syscall.Write(readyFD, []byte("ready\n")); err != nil {
		return err
	}
	_ = syscall.Close(readyFD)
	for {
		conn, err := control.Accept()
		if err != nil {
			return err
		}
		go h.answer(conn)
	}
}

func (h *server) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var q Request
	if err := json.NewDecoder(conn).Decode(&q); err != nil {
		return
	}
	_ = json.NewEncoder(conn).Encode(h.do(context.Background(), q)) // who asked may be gone
}

// do does one request.
func (h *server) do(ctx context.Context, q Request) Reply {
	switch q.Do {
	case "systemctl":
		return h.systemctl(ctx, q.Args)
	case "journalctl":
		return h.journalctl(q.Args)
	case "systemd-run":
		return h.systemdRun(ctx, q.Args)
	case "account":
		return h.account(q.Args)
	case "chown":
		return reply("", h.owners.set(q.Args))
	case "owner":
		return h.owners.get(q.Args)
	case "snapshot":
		return h.snapshot(ctx)
	case "end":
		h.manager.End(ctx)
		return Reply{}
	}
	return reply("", fmt.Errorf("unknown request %q", q.Do))
}

func reply(out string, err error) Reply {
	if err != nil {
		return Reply{Stdout: out, Stderr: err.Error() + "\n", Exit: 1}
	}
	return Reply{Stdout: out}
}

// notify opens the socket of one start of a unit.
func (h *server) notify(unit string) (string, <-chan map[string]string, func(), error) {
	path := filepath.Join(runDir, "notify", unit)
	if err := os.RemoveAll(path); err != nil {
		return "", nil, nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return "", nil, nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return "", nil, nil, errors.Join(err, conn.Close())
	}
	messages := make(chan map[string]string)
	go func() {
		defer close(messages)
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			msg := map[string]string{}
			for line := range strings.Lines(string(buf[:n])) {
				if key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
					msg[key] = value
				}
			}
			messages <- msg
		}
	}()
	return path, messages, func() { _ = conn.Close() }, nil
}
