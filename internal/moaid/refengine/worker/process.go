package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// process is one rank's process, seen from the engine.
type process struct {
	rank  int
	cmd   *exec.Cmd
	link  *link
	words *lastWords
	ended chan struct{} // closed when the process is gone

	asking sync.Mutex // held from noting a question until it is sent: answers come in the order of the questions
	mu     sync.Mutex
	asks   []chan error
	gone   bool // nobody answers any more
}

// program is what a rank's process runs: the engine's own program, also after the
// file it was started from has been replaced.
const program = "/proc/self/exe"

// spawn starts a rank's process with its descriptors. What it says on its standard
// error goes to stderr too.
func spawn(rank int, exchange []*os.File, stderr io.Writer) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for rank %d: %w", rank, err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "rank")
	defer func() { _ = theirs.Close() }()
	l, err := newLink(os.NewFile(uintptr(pair[0]), "engine"))
	if err != nil {
		return nil, err
	}
	p := &process{rank: rank, link: l, words: &lastWords{to: stderr}, ended: make(chan struct{})}
	p.cmd = exec.Command(program, Subcommand) //nolint:noctx // it ends when its socket is closed, in its own time
	p.cmd.Args[0] = os.Args[0]
	p.cmd.Stderr = p.words
	p.cmd.ExtraFiles = append([]*os.File{theirs}, exchange...)
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
	if err := p.cmd.Start(); err != nil {
		l.close()
		return nil, fmt.Errorf("start rank %d: %w", rank, err)
	}
	return p, nil
}

// listen takes the process's reports until it has ended, and says how it did.
func (p *process) listen(take func(*process, *report)) error {
	fatal := ""
	for {
		var r report
		if p.link.read(&r) != nil {
			break
		}
		switch {
		case r.Fatal != "":
			fatal = r.Fatal
		case r.State != nil:
			p.answer(r.State)
		default:
			take(p, &r)
		}
	}
	p.link.close()
	_ = p.cmd.Wait() // its status is looked at below
	close(p.ended)
	p.hangUp()
	if fatal == "" {
		fatal = p.words.String()
	}
	return fmt.Errorf("rank %d (process %d) ended with %v: %s", p.rank, p.cmd.Process.Pid, p.cmd.ProcessState, fatal)
}

// stop ends the process: it has its socket closed, and is killed if that is not
// enough.
func (p *process) stop() {
	p.link.close()
	t := time.NewTimer(stopWait)
	defer t.Stop()
	select {
	case <-p.ended:
		return
	case <-t.C:
	}
	_ = p.cmd.Process.Kill() // it may have ended by now
	<-p.ended
}

const stopWait = 5 * time.Second

// ask asks for the state of the session with the daemon.
func (p *process) ask() (<-chan error, error) {
	ch := make(chan error, 1)
	p.asking.Lock()
	defer p.asking.Unlock()
	p.mu.Lock()
	gone := p.gone
	if !gone {
		p.asks = append(p.asks, ch)
	}
	p.mu.Unlock()
	if gone {
		return nil, fmt.Errorf("rank %d has ended", p.rank)
	}
	return ch, p.link.write(&order{State: true})
}

func (p *process) answer(s *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asks) == 0 {
		return
	}
	var err error
	if s.Err != "" {
		err = fmt.Errorf("rank %d: %s", p.rank, s.Err)
	}
	p.asks[0] <- err
	p.asks = p.asks[1:]
}

// hangUp answers every question, now and later.
func (p *process) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, ch := range p.asks {
		ch <- errors.New("the process has ended")
	}
	p.asks = nil
}

// lastWords passes on what a process says, and keeps its end.
type lastWords struct {
	to io.Writer // may be nil

	mu   sync.Mutex
	tail []byte
}

const keptWords = 2048

func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.tail = append(w.tail, b...)
	w.tail = w.tail[max(0, len(w.tail)-keptWords):]
	w.mu.Unlock()
	if w.to != nil {
		_, _ = w.to.Write(b) // who does not read the log does not stop the engine
	}
	return len(b), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := strings.TrimSpace(string(w.tail)); s != "" {
		return s
	}
	return "it said nothing"
}
