package supervisor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Call is what systemctl was asked for.
type Call struct {
	Verb       string
	Units      []string // with their type
	Now        bool
	Quiet      bool
	All        bool
	NoLegend   bool
	Wait       bool
	Signal     string   // of kill
	Properties []string // of show
	Bare       bool     // show values only
	States     []string // of list-units
}

// unitVerbs need a unit; hostVerbs take none, or patterns.
var (
	unitVerbs = []string{"start", "stop", "restart", "try-restart", "reload-or-restart", "enable", "disable", "reset-failed", "kill", "is-active",
		"is-enabled", "is-failed", "cat"}
	hostVerbs = []string{"daemon-reload", "show", "status", "list-units", "list-unit-files", "is-system-running", "reboot", "poweroff"}
)

// ParseSystemctl reads the arguments of systemctl. What is not done here is an error: nothing is done halfway.
func ParseSystemctl(args []string) (Call, error) {
	var c Call
	var words []string
	for i := 0; i < len(args); i++ {
		arg, value, has := splitOption(args[i], "psPtn")
		take := func() string {
			if !has && i+1 < len(args) {
				i++
				return args[i]
			}
			return value
		}
		switch arg {
		case "--":
			words = append(words, args[i+1:]...)
			i = len(args)
		case "--version":
			return Call{Verb: "version"}, nil
		case "--now":
			c.Now = true
		case "-q", "--quiet":
			c.Quiet = true
		case "-a", "--all":
			c.All = true
		case "--no-legend":
			c.NoLegend = true
		case "--wait":
			c.Wait = true
		case "--value":
			c.Bare = true
		case "--no-pager", "--plain", "-l", "--full", "--system", "--no-block", "--no-ask-password", "--no-warn":
		case "--failed":
			c.States = append(c.States, "failed")
			if len(words) == 0 {
				words = append(words, "list-units")
			}
		case "--type", "-t", "--lines", "-n":
			take() // there are services only, and status shows ten lines
		case "--state":
			c.States = append(c.States, strings.Split(take(), ",")...)
		case "-s", "--signal":
			c.Signal = strings.TrimPrefix(take(), "SIG")
		case "-p", "--property":
			c.Properties = append(c.Properties, strings.Split(take(), ",")...)
		case "-P":
			c.Properties, c.Bare = append(c.Properties, strings.Split(take(), ",")...), true
		default:
			if strings.HasPrefix(arg, "-") {
				return c, fmt.Errorf("option %s is not done by the lab's systemctl", arg)
			}
			words = append(words, arg)
		}
	}
	if len(words) == 0 {
		words = []string{"list-units"}
	}
	c.Verb = words[0]
	for _, u := range words[1:] {
		c.Units = append(c.Units, fullName(u))
	}
	switch {
	case slices.Contains(unitVerbs, c.Verb):
		if len(c.Units) == 0 {
			return c, fmt.Errorf("%s needs a unit", c.Verb)
		}
	case !slices.Contains(hostVerbs, c.Verb):
		return c, fmt.Errorf("unknown command verb %s: the lab's systemctl knows %s", c.Verb, strings.Join(slices.Concat(unitVerbs, hostVerbs), ", "))
	}
	return c, nil
}

// fullName adds the type that systemctl adds.
func fullName(u string) string {
	if path.Ext(u) == "" && !strings.ContainsAny(u, "*?[") {
		return u + ".service"
	}
	return u
}

// splitOption separates an option from a value that stands in the same word: --name=value, or -nvalue of the letters that
// take one.
func splitOption(arg, letters string) (option, value string, has bool) {
	switch {
	case strings.HasPrefix(arg, "--"):
		return strings.Cut(arg, "=")
	case len(arg) > 2 && arg[0] == '-' && strings.ContainsRune(letters, rune(arg[1])):
		return arg[:2], arg[2:], true
	}
	return arg, "", false
}

// ParseJournalctl reads the arguments of journalctl. sync says that it only was asked to write everything down.
func ParseJournalctl(args []string) (q Query, sync bool, err error) {
	q.Last = -1
	for i := 0; i < len(args); i++ {
		arg, value, has := splitOption(args[i], "uno")
		take := func() string {
			if !has && i+1 < len(args) {
				i++
				return args[i]
			}
			return value
		}
		switch arg {
		case "-u", "--unit":
			q.Units = append(q.Units, fullName(take()))
		case "-n", "--lines":
			if q.Last, err = strconv.Atoi(take()); err != nil {
				return q, false, fmt.Errorf("number of lines: %w", err)
			}
		case "-o", "--output":
			q.Format = take()
		case "-S", "--since":
			at, ok := strings.CutPrefix(take(), "@")
			seconds, err := strconv.ParseFloat(at, 64)
			if !ok || err != nil {
				return q, false, fmt.Errorf("--since takes @SECONDS only on this host")
			}
			q.Since = time.UnixMicro(int64(seconds * 1e6))
		case "--sync", "--flush":
			sync = true
		case "--no-pager", "-q", "--quiet", "-e", "-b", "-a", "--all", "-x":
		default:
			return q, false, fmt.Errorf("argument %s is not done by the lab's journalctl", arg)
		}
	}
	return q, sync, nil
}

// Transient is what systemd-run was asked for.
type Transient struct {
	Unit string
	Text string // of a unit file
}

// ParseRun reads the arguments of systemd-run: --unit, -p and a command.
func ParseRun(args []string, quote func([]string) (string, error)) (Transient, error) {
	t := Transient{}
	settings := []string{"Type=exec"}
	for i := 0; i < len(args); i++ {
		arg, value, has := args[i], "", false
		if strings.HasPrefix(arg, "--") {
			arg, value, has = strings.Cut(arg, "=")
		}
		take := func() string {
			if !has && i+1 < len(args) {
				i++
				return args[i]
			}
			return value
		}
		switch {
		case arg == "--unit" || arg == "-u":
			t.Unit = fullName(take())
		case arg == "-p" || arg == "--property":
			settings = append(settings, take())
		case arg == "--quiet" || arg == "-q" || arg == "--collect" || arg == "-G":
		case arg == "--":
			args = slices.Insert(args, i+1, "")
		case strings.HasPrefix(arg, "-"):
			return t, fmt.Errorf("option %s is not done by the lab's systemd-run", arg)
		default:
			argv := args[i:]
			if argv[0] == "" {
				argv = argv[1:]
			}
			line, err := quote(argv)
			if err != nil {
				return t, err
			}
			t.Text = "[Service]\n" + strings.Join(settings, "\n") + "\nExecStart=" + line + "\n"
			if t.Unit == "" {
				return t, fmt.Errorf("--unit is needed on this host")
			}
			return t, nil
		}
	}
	return t, fmt.Errorf("no command to run")
}
