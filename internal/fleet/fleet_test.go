package fleet

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"github.com/hashicorp/terraform-plugin-log/tflogtest"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

func TestTargetSaysWhatIsMissing(t *testing.T) {
	s := Settings{Profiles: map[string]Profile{
		"good":  {User: "ops", PrivateKey: "k"},
		"later": {User: "ops", Unknown: []string{"private_key"}},
	}}
	for _, c := range []struct {
		name    string
		unknown []string
		c       Coordinates
		notYet  bool
		text    string
	}{
		{"unknown profile", nil, Coordinates{Profile: "bad"}, false, `no entry "bad"; it has good, later`},
		{"profile unknown yet", nil, Coordinates{Profile: "later"}, true, "private_key not known before apply"},
		{"profiles unknown yet", []string{"ssh_profiles"}, Coordinates{Profile: "bad"}, true, "ssh_profiles not known"},
		{"known_hosts unknown yet", []string{"ssh.known_hosts"}, Coordinates{Profile: "good"}, true, "ssh.known_hosts not known"},
		{"known_hosts not needed", []string{"ssh.known_hosts"}, Coordinates{Profile: "good", HostKey: "pin"}, false, ""},
	} {
		s.Unknown = c.unknown
		_, err := s.Target(c.c)
		switch {
		case c.text == "" && err != nil:
			t.Errorf("%s: Target() error = %v", c.name, err)
		case c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: Target() error = %v, want %q", c.name, err, c.text)
		case errors.Is(err, ErrNotKnownYet) != c.notYet:
			t.Errorf("%s: ErrNotKnownYet is %v", c.name, !c.notYet)
		}
	}
}

// What other resources remember grows old; what the node's own resource says counts, if it is the same machine.
func TestRegistry(t *testing.T) {
	f := New(context.Background(), Settings{Fleet: "test"})
	defer f.Close()
	old := Coordinates{Name: "a", MachineID: "m", Host: "old"}
	if got := f.Node(old).Coordinates(); got.Host != "old" {
		t.Errorf("unregistered node is at %q", got.Host)
	}
	now := f.Register(Coordinates{Name: "a", MachineID: "m", Host: "new"})
	if f.Node(old) != now {
		t.Error("a registered node was not found under its old coordinates")
	}
	if got := f.Node(Coordinates{Name: "a", Host: "old"}); got != now || got.Coordinates().MachineID != "m" {
		t.Errorf("without a machine-id: %+v", got.Coordinates())
	}
	if got := f.Node(Coordinates{Name: "a", MachineID: "x", Host: "old"}).Coordinates(); got.Host != "old" {
		t.Errorf("another machine is looked for at %q", got.Host)
	}
	if got := f.At(old).Coordinates(); got.Host != "old" {
		t.Errorf("At() is at %q", got.Host)
	}
}

func testNode(t *testing.T) (*Node, *sshtest.Machine) {
	t.Helper()
	m := sshtest.NewMachine(t)
	srv := m.Serve()
	f := New(context.Background(), Settings{Fleet: "test", Profiles: map[string]Profile{"p": {User: "root", PrivateKey: srv.ClientKey()}}})
	t.Cleanup(f.Close)
	return f.Node(Coordinates{Name: "a", Host: srv.Host(), Port: srv.Port(), Profile: "p", HostKey: srv.HostKey()}), m
}

func TestFactsAreAskedOnce(t *testing.T) {
	n, m := testNode(t)
	if _, ok := n.KnownFacts(); ok {
		t.Error("facts are known before anybody asked")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if f, err := n.Facts(context.Background()); err != nil || f.CPUs != 64 {
				t.Errorf("Facts() = %+v, %v", f, err)
			}
		})
	}
	wg.Wait()
	probes := 0
	for _, c := range m.Calls() {
		if c.Verb == "probe" {
			probes++
		}
	}
	if probes != 1 {
		t.Errorf("the machine was probed %d times", probes)
	}
	if _, ok := n.KnownFacts(); !ok || n.Failure() != nil {
		t.Errorf("facts are not known afterwards; failure %v", n.Failure())
	}
}

func TestFailuresAreNotRemembered(t *testing.T) {
	n, m := testNode(t)
	m.FailNext("probe", sshtest.Reply{Stderr: "broken", Exit: 70})
	if _, err := n.Facts(context.Background()); err == nil || n.Failure() == nil {
		t.Fatal("Facts() has no error")
	}
	if _, err := n.Facts(context.Background()); err != nil || n.Failure() != nil {
		t.Errorf("Facts() error = %v, failure %v", err, n.Failure())
	}
}

func TestVerify(t *testing.T) {
	n, m := testNode(t)
	m.SetFile("/etc/machine-id", sshtest.Entry{Content: []byte("0123456789abcdef0123456789abcdef\n")})
	n.coords.MachineID = "ffff"
	var other *IdentityError
	if err := n.Verify(context.Background()); !errors.As(err, &other) || other.Got != "0123456789abcdef0123456789abcdef" {
		t.Errorf("Verify() error = %v", err)
	}
	if h, err := n.Open(context.Background()); err == nil || h != nil {
		t.Error("Open() gave another machine")
	}
	n.coords.MachineID = "0123456789abcdef0123456789abcdef"
	if err := n.Verify(context.Background()); err != nil {
		t.Errorf("Verify() error = %v", err)
	}
}

// A daemon that is stopped is no failure of SSH.
func TestSilentDaemon(t *testing.T) {
	n, m := testNode(t)
	m.SetFile("/opt/moai/bin/moaid", sshtest.Entry{Content: []byte("moaid"), Mode: 0o755})
	_, err := n.Manage().Status(context.Background())
	var silent *SilentError
	if !errors.As(err, &silent) || silent.Name != "a" || errors.Is(err, ssh.ErrDropped) {
		t.Fatalf("Status() error = %v", err)
	}
	summary, fix := silent.Explain()
	if summary != "KV daemon on node a does not answer" || !strings.Contains(fix, "next apply") {
		t.Errorf("explained as %q, %q", summary, fix)
	}
	other, _ := testNode(t)
	other.fleet.Close()
	if _, err := other.Manage().Status(context.Background()); err == nil || errors.As(err, &silent) {
		t.Errorf("without a connection: %v", err)
	}
}

func TestSecretsAreMaskedInLogs(t *testing.T) {
	const secret = "correct horse battery staple"
	f := New(context.Background(), Settings{Profiles: map[string]Profile{"p": {Become: ssh.Become{Password: secret}, PrivateKey: "-----KEY-----"}}})
	defer f.Close()
	var out bytes.Buffer
	ctx := f.Context(tflogtest.RootLogger(context.Background(), &out))
	tflog.Info(ctx, "password "+secret, map[string]any{"field": "is " + secret, "key": "-----KEY-----"})
	if s := out.String(); s == "" || strings.Contains(s, secret) || strings.Contains(s, "-----KEY") {
		t.Errorf("log is %s", s)
	}
}

func TestPlanRefusesTwoNodesOnOneMachine(t *testing.T) {
	f := New(context.Background(), Settings{})
	defer f.Close()
	for _, c := range []struct {
		c    Coordinates
		want string
	}{
		{Coordinates{Name: "a", Host: "x", MachineID: "1"}, ""},
		{Coordinates{Name: "a", Host: "x.example", MachineID: "1"}, ""}, // the same node, planned again
		{Coordinates{Name: "b", Host: "y", MachineID: "2"}, ""},
		{Coordinates{Name: "c", Host: "y.example", MachineID: "2"}, "ssh.host"},
		{Coordinates{Name: "b", Host: "z", MachineID: "3"}, "name"},
	} {
		err := f.Plan(c.c)
		var twice *TwiceError
		switch {
		case errors.As(err, &twice) && twice.DiagnosticAttribute() == c.want:
		case err == nil && c.want == "":
		default:
			t.Errorf("Plan(%+v) = %v, want %q", c.c, err, c.want)
		}
	}
}

func TestRetryManage(t *testing.T) {
	dropped := &ssh.Error{Class: ssh.ErrDropped}
	for _, c := range []struct {
		name string
		resp *http.Response
		err  error
		want bool
	}{
		{"ok", &http.Response{StatusCode: 200}, nil, false},
		{"refused by the daemon", &http.Response{StatusCode: 409}, nil, false},
		{"daemon's own failure", &http.Response{StatusCode: 500}, nil, false},
		{"stopping", &http.Response{StatusCode: 503}, nil, true},
		{"dropped", nil, dropped, true},
		{"daemon not there", nil, &SilentError{Err: &ssh.Error{Class: ssh.ErrCommand}}, true},
		{"host unreachable", nil, &ssh.Error{Class: ssh.ErrUnreachable}, false},
		{"wrong key", nil, &ssh.Error{Class: ssh.ErrHostKey}, false},
		{"profile", nil, &ProfileError{}, false},
		{"connection reset", nil, errors.New("EOF"), true},
	} {
		if got, err := retryManage(context.Background(), c.resp, c.err); got != c.want || err != nil {
			t.Errorf("%s: retryManage() = %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, err := retryManage(ctx, nil, dropped); got || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: retryManage() = %v, %v", got, err)
	}
}
