package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/supervisor"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// version is what the host says for "systemctl --version": the release whose units the provider's are read as.
const version = "systemd 252 (the lab's supervisor; no systemd runs here)\n-ALL\n"

// Exit statuses of systemctl.
const (
	exitFailed   = 1
	exitInactive = 3
)

func (h *server) systemctl(ctx context.Context, args []string) Reply {
	c, err := supervisor.ParseSystemctl(args)
	if err != nil {
		return reply("", err)
	}
	m := h.manager
	switch c.Verb {
	case "version":
		return Reply{Stdout: version}
	case "daemon-reload":
		m.Reload()
		return Reply{}
	case "is-system-running":
		return Reply{Stdout: "running\n"}
	case "reboot", "poweroff":
		go func() {
			m.End(context.WithoutCancel(ctx))
			status := 0
			if c.Verb == "reboot" {
				status = ExitReboot
			}
			os.Exit(status) // process 1 ends as its server does, and the host is off
		}()
		return Reply{}
	case "show":
		units := c.Units
		if len(units) == 0 {
			return Reply{Stdout: "Version=252\n"}
		}
		return Reply{Stdout: supervisor.Show(h.states(units), c.Properties, c.Bare)}
	case "status":
		return h.status(c)
	case "list-unit-files", "list-units":
		return h.list(c)
	case "is-active", "is-enabled", "is-failed", "cat":
		return h.is(c)
	}
	for _, u := range c.Units {
		if err := h.change(ctx, c, u); err != nil {
			text := err.Error()
			return Reply{Stderr: strings.ToUpper(text[:1]) + text[1:] + "\n", Exit: exitFailed}
		}
	}
	return Reply{}
}

func (h *server) change(ctx context.Context, c supervisor.Call, u string) error {
	m := h.manager
	switch c.Verb {
	case "start":
		return m.Start(ctx, u)
	case "stop":
		return m.Stop(ctx, u)
	case "restart", "reload-or-restart":
		return m.Restart(ctx, u)
	case "try-restart":
		if m.State(u).Active != "active" {
			return nil
		}
		return m.Restart(ctx, u)
	case "reset-failed":
		return m.ResetFailed(u)
	case "kill":
		signal := c.Signal
		if signal == "" {
			signal = "TERM"
		}
		return m.Kill(u, signal)
	case "enable":
		if err := m.Enable(u); err != nil || !c.Now {
			return err
		}
		return m.Start(ctx, u)
	case "disable":
		if err := m.Disable(u); err != nil || !c.Now {
			return err
		}
		return m.Stop(ctx, u)
	}
	return fmt.Errorf("%s is not done here", c.Verb)
}

func (h *server) states(units []string) []supervisor.State {
	var list []supervisor.State
	for _, u := range units {
		if strings.ContainsAny(u, "*?[") {
			list = append(list, h.manager.List([]string{u})...)
			continue
		}
		list = append(list, h.manager.State(u))
	}
	return list
}

func (h *server) status(c supervisor.Call) Reply {
	var b strings.Builder
	exit := 0
	for i, s := range h.states(c.Units) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(supervisor.StatusPage(s, h.journal.Text(supervisor.Query{Units: []string{s.ID}, Last: 10})))
		if s.Active != "active" {
			exit = exitInactive
		}
	}
	return Reply{Stdout: b.String(), Exit: exit}
}

func (h *server) list(c supervisor.Call) Reply {
	var b strings.Builder
	for _, s := range h.manager.List(c.Units) {
		switch {
		case c.Verb == "list-unit-files":
			if s.File != "" {
				fmt.Fprintf(&b, "%s %s -\n", s.ID, s.File)
			}
		case len(c.States) > 0 && !slices.Contains(c.States, s.Active):
		case len(c.States) == 0 && !c.All && s.Active == "inactive":
		default:
			fmt.Fprintf(&b, "%s %s %s %s %s\n", s.ID, s.Load, s.Active, s.Sub, s.Description)
		}
	}
	return Reply{Stdout: b.String()}
}

func (h *server) is(c supervisor.Call) Reply {
	var b strings.Builder
	exit := exitFailed
	for _, s := range h.states(c.Units) {
		word, good := s.Active, s.Active == "active"
		switch c.Verb {
		case "is-enabled":
			word, good = s.File, s.File == "enabled"
		case "is-failed":
			good = s.Active == "failed"
		case "cat":
			text, err := os.ReadFile(s.Fragment)
			if err != nil {
				return reply("", fmt.Errorf("no files found for %s", s.ID))
			}
			word, good = "# "+s.Fragment+"\n"+string(text), true
		}
		if good {
			exit = 0
		} else if c.Verb == "is-active" {
			exit = exitInactive
		}
		if !c.Quiet {
			b.WriteString(word + "\n")
		}
	}
	return Reply{Stdout: b.String(), Exit: exit}
}

func (h *server) journalctl(args []string) Reply {
	q, sync, err := supervisor.ParseJournalctl(args)
	if err != nil {
		return reply("", err)
	}
	if sync {
		return Reply{} // what was printed is taken before its process counts as ended
	}
	return Reply{Stdout: h.journal.Text(q)}
}

func (h *server) systemdRun(ctx context.Context, args []string) Reply {
	t, err := supervisor.ParseRun(args, func(argv []string) (string, error) {
		if len(argv) > 0 && !strings.HasPrefix(argv[0], "/") {
			path, err := lookPath(argv[0])
			if err != nil {
				return "", err
			}
			argv = append([]string{path}, argv[1:]...)
		}
		return systemd.Exec(argv)
	})
	if err == nil {
		err = h.manager.Run(ctx, t.Unit, t.Text)
	}
	return reply("", err)
}

// snapshot writes down what the host consists of.
func (h *server) snapshot(ctx context.Context) Reply {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return reply("", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	m, err := manifest.Collect(ctx, manifest.Source{
		Host: h.spec.Host, Leader: 1, Processes: pids, Within: true,
		Systemctl: func(args ...string) (string, error) {
			r := h.systemctl(ctx, args)
			if r.Exit != 0 {
				return "", fmt.Errorf("systemctl: %s", r.Stderr)
			}
			return r.Stdout, nil
		},
	})
	if err != nil {
		return reply("", err)
	}
	text, err := json.Marshal(m)
	return reply(string(text), err)
}
