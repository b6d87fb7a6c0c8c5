package service_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

const unit = "moai-engine-x.service"

func stamped(t *testing.T, fleet, resource string) string {
	t.Helper()
	text, err := systemd.Service{Exec: []string{"/bin/true"}}.Render(systemd.Owner{Fleet: fleet, Resource: resource, Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func setUp(t *testing.T) (*sshtest.Machine, *host.Host, service.Service) {
	t.Helper()
	m := sshtest.NewMachine(t)
	pool := ssh.NewPool(ssh.Options{})
	t.Cleanup(pool.Close)
	c, err := pool.Conn(m.Serve().Target())
	if err != nil {
		t.Fatal(err)
	}
	s := service.Service{
		Owner: systemd.Owner{Fleet: "prod", Resource: "moai_engine.x", Writer: "w"}, ImportID: "name=x", Unit: unit,
		UnitText: stamped(t, "prod", "moai_engine.x"), Config: host.File{Path: "/etc/moai/engines/x.json", Content: []byte("{}\n")},
	}
	return m, host.New(c, host.Options{}), s
}

func TestLife(t *testing.T) {
	m, h, s := setUp(t)
	ctx := t.Context()
	look := func() service.Found {
		t.Helper()
		f, err := s.Inspect(ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if !look().Gone() {
		t.Error("something is there before")
	}
	for range 2 {
		if err := s.Install(ctx, h); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(ctx, h, false); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Judge(look()); got != service.Healthy {
		t.Errorf("got %+v", got)
	}
	if u, _ := m.Unit(unit); u.Starts != 1 {
		t.Errorf("started %d times", u.Starts)
	}
	// A change that was begun and not finished is seen.
	if err := s.Begin(ctx, h); err != nil {
		t.Fatal(err)
	}
	if f := look(); s.Judge(f).Service != service.Outdated || !s.Stale(f, false) {
		t.Errorf("a change under way is judged %+v", s.Judge(f))
	}
	if err := s.Finish(ctx, h); err != nil {
		t.Fatal(err)
	}
	if s.Stale(look(), true) {
		t.Error("a healthy service is stale")
	}
	e, _ := m.File(s.UnitPath())
	e.Content = append(e.Content, "#\n"...)
	m.SetFile(s.UnitPath(), e)
	m.Remove(s.Config.Path)
	if !s.Stale(look(), false) {
		t.Error("an edited unit is not stale")
	}
	if got, want := s.Judge(look()), (service.Status{Unit: service.Changed, Config: service.Missing, Service: service.Outdated, Boot: service.Enabled}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for range 2 { // also when it is gone already
		if err := s.Remove(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	if !look().Gone() {
		t.Error("something is left")
	}
}

func TestCheckOwner(t *testing.T) {
	m, h, s := setUp(t)
	for _, c := range []struct {
		name, content, summary, fix string
	}{
		{"ours", stamped(t, "prod", "moai_engine.x"), "", ""},
		{"another resource of the fleet", stamped(t, "prod", "moai_engine.y"), "Already exists", "terraform import"},
		{"another fleet", stamped(t, "test", "moai_engine.x"), "Already exists and is not ours", "another name"},
		{"nobody's", "[Service]\nExecStart=/bin/true\n", "Already exists and is not ours", "by hand"},
	} {
		m.SetFile(s.UnitPath(), sshtest.Entry{Content: []byte(c.content)})
		f, err := s.Inspect(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		err = s.CheckOwner(t.Context(), h, f)
		var foreign *service.ForeignError
		if (c.summary == "") != (err == nil) || err != nil && !errors.As(err, &foreign) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if foreign == nil {
			continue
		}
		if summary, fix := foreign.Explain(); summary != c.summary || !strings.Contains(fix, c.fix) {
			t.Errorf("%s: got %q, %q", c.name, summary, fix)
		}
	}
}

func TestRequireNode(t *testing.T) {
	m, h, _ := setUp(t)
	var none *service.NodeError
	if err := service.RequireNode(t.Context(), h, "prod"); !errors.As(err, &none) || none.Marker != nil {
		t.Errorf("got %v", err)
	}
	m.SetFile(host.MarkerPath, sshtest.Entry{Content: []byte(`{"fleet":"test","resource":"moai_node.x"}`)})
	if err := service.RequireNode(t.Context(), h, "prod"); !errors.As(err, &none) || !strings.Contains(err.Error(), `"test"`) {
		t.Errorf("got %v", err)
	}
	if err := service.RequireNode(t.Context(), h, "test"); err != nil {
		t.Error(err)
	}
}
