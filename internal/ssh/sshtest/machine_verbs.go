package sshtest

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// call is one verb being answered.
type call struct {
	m     *Machine
	r     *Request
	verb  string
	token string
	args  []string
}

// verbs mirror internal/host/scripts: same arguments, same answers, same exit statuses. The host's tests run against
// both.
var verbs = map[string]func(*call) int{
	"inspect": (*call).inspect, "put-file": (*call).putFile, "set-attr": (*call).setAttr, "read-file": (*call).readFile,
	"make-dir": (*call).makeDir, "remove": (*call).remove, "ensure-user": (*call).ensureUser, "remove-user": (*call).removeUser,
	"unit": (*call).unit, "journal": (*call).journal, "lock": (*call).lock, "probe": (*call).probe, "accounts": (*call).accounts, "list-dir": (*call).listDir,
}

func (c *call) say(format string, a ...any) int {
	_, _ = fmt.Fprintf(c.r.Stdout, format+"\n", a...)
	return 0
}

func (c *call) die(code int, format string, a ...any) int {
	_, _ = fmt.Fprintf(c.r.Stderr, "moai: "+format+"\n", a...)
	return code
}

// fenced reports whether the writer lost the lock. Called with the mutex held.
func (c *call) fenced() bool { return c.token != "-" && c.token != c.m.lock.token }

func (c *call) lostLock() int { return c.die(73, "this run no longer holds the host's lock") }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (c *call) inspect() int {
	n, err := strconv.Atoi(c.args[0])
	if err != nil || n > len(c.args)-1 {
		return Unmatched
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.say("can gzip")
	for i, p := range c.args[1 : 1+n] {
		e, ok := c.m.files[p]
		switch {
		case !ok:
			c.say("gone %d", i)
		case e.Dir:
			c.say("file %d - %o %s %s 4096 directory", i, e.Mode, e.Owner, e.Group)
		default:
			kind := "regular file"
			if len(e.Content) == 0 {
				kind = "regular empty file"
			}
			c.say("file %d %s %o %s %s %d %s", i, sum(e.Content), e.Mode, e.Owner, e.Group, len(e.Content), kind)
		}
	}
	units := c.args[1+n:]
	if len(units) == 0 {
		return 0
	}
	c.say("units")
	for i, u := range units {
		if i > 0 {
			c.say("")
		}
		_, _ = io.WriteString(c.r.Stdout, c.m.show(u))
	}
	return 0
}

func (c *call) putFile() int {
	name, want, owner, group, enc := c.args[0], c.args[1], c.args[3], c.args[4], c.args[5]
	mode, err := strconv.ParseUint(c.args[2], 8, 32)
	if err != nil {
		return Unmatched
	}
	in := c.r.Stdin
	if enc == "gzip" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return c.die(65, "what arrived is not whole")
		}
		in = z
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return c.die(65, "what arrived is not whole")
	}
	if got := sum(body); got != want {
		return c.die(65, "sha256 of what arrived is %s, of what was sent %s", got, want)
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if e, ok := c.m.files[name]; ok && e.Dir {
		return c.die(65, "%s is a directory", name)
	}
	if code := c.known(owner, group); code != 0 {
		return code
	}
	if c.fenced() {
		return c.lostLock()
	}
	c.m.put(name, Entry{Content: body, Mode: uint32(mode), Owner: owner, Group: group})
	return c.say("done")
}

// known is chown's refusal of names that do not exist.
func (c *call) known(owner, group string) int {
	if _, ok := c.m.users[owner]; !ok || !c.m.groups[group] {
		return c.die(1, "chown: invalid user: '%s:%s'", owner, group)
	}
	return 0
}

func (c *call) setAttr() int {
	mode, err := strconv.ParseUint(c.args[1], 8, 32)
	if err != nil {
		return Unmatched
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	e, ok := c.m.files[c.args[0]]
	if !ok {
		return c.die(1, "chown: cannot access '%s': No such file or directory", c.args[0])
	}
	if code := c.known(c.args[2], c.args[3]); code != 0 {
		return code
	}
	if c.fenced() {
		return c.lostLock()
	}
	e.Mode, e.Owner, e.Group = uint32(mode), c.args[2], c.args[3]
	return c.say("done")
}

func (c *call) readFile() int {
	e, ok := c.m.File(c.args[0])
	limit, err := strconv.Atoi(c.args[1])
	switch {
	case err != nil:
		return Unmatched
	case !ok:
		return c.say("gone")
	case e.Dir:
		return c.die(65, "%s is not a regular file", c.args[0])
	case len(e.Content) > limit:
		return c.die(65, "%s has %d bytes, more than the limit of %d", c.args[0], len(e.Content), limit)
	}
	c.say("file")
	_, _ = c.r.Stdout.Write(e.Content)
	return 0
}

func (c *call) listDir() int {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	e, ok := c.m.files[c.args[0]]
	switch {
	case !ok:
		return c.say("gone")
	case !e.Dir:
		return c.die(65, "%s is not a directory", c.args[0])
	}
	c.say("dir")
	for _, p := range slices.Sorted(maps.Keys(c.m.files)) {
		if path.Dir(p) == c.args[0] {
			c.say("%s", path.Base(p))
		}
	}
	return 0
}

func (c *call) makeDir() int {
	mode, err := strconv.ParseUint(c.args[1], 8, 32)
	if err != nil {
		return Unmatched
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if code := c.known(c.args[2], c.args[3]); code != 0 {
		return code
	}
	if c.fenced() {
		return c.lostLock()
	}
	c.m.put(c.args[0], Entry{Dir: true, Mode: uint32(mode), Owner: c.args[2], Group: c.args[3]})
	return c.say("done")
}

func (c *call) remove() int {
	kind, name := c.args[0], c.args[1]
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	e, ok := c.m.files[name]
	if !ok {
		return c.say("gone")
	}
	if c.fenced() {
		return c.lostLock()
	}
	switch kind {
	case "file":
		if e.Dir {
			return c.die(65, "%s is a directory", name)
		}
		delete(c.m.files, name)
	case "empty":
		if !e.Dir {
			return c.die(65, "%s is not a directory", name)
		}
		for p := range c.m.files {
			if path.Dir(p) == name {
				return c.say("kept")
			}
		}
		delete(c.m.files, name)
	case "tree":
		c.m.removeTree(name)
	default:
		return Unmatched
	}
	return c.say("done")
}

func (c *call) journal() int {
	return c.say("%s: log of the test machine", c.args[0])
}

func (c *call) lock() int {
	verb, owner := c.args[0], c.args[2]
	ttl, err := strconv.Atoi(c.args[3])
	if err != nil {
		return Unmatched
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	l := &c.m.lock
	now := c.m.now()
	switch {
	case verb == "acquire":
		old := ""
		if l.token != "" && l.token != c.token {
			age := int(now.Sub(l.beat).Seconds())
			old = l.owner
			if age <= ttl {
				return c.say("held %d %s", age, l.owner)
			}
		}
		c.m.fence++
		l.token, l.owner, l.fence, l.beat = c.token, owner, c.m.fence, now
		return c.say("mine %d %s", l.fence, old)
	case l.token != c.token:
		return c.say("lost")
	case verb == "beat":
		l.beat = now
		return c.say("mine")
	case verb == "release":
		l.token, l.owner = "", ""
		return c.say("done")
	}
	return Unmatched
}

// ProbeSection is what one tool of the probe script says.
type ProbeSection struct {
	Text string
	Exit int
}

// SetProbe replaces sections of what the machine's tools say.
func (m *Machine) SetProbe(sections map[string]ProbeSection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, v := range sections {
		m.probe[k] = v
	}
}

// probeOrder is the order of the probe script.
var probeOrder = []string{
	"os-release", "uname", "machine-id", "boot-id", "hostname", "meminfo", "init", "net-speed", "date", "nproc", "systemd", "ip",
	"lspci", "nvidia-smi", "nvidia-smi-table", "amd-smi-version", "amd-smi-static",
}

func (c *call) probe() int {
	nonce := c.args[0]
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	for _, name := range probeOrder {
		s, ok := c.m.probe[name]
		if !ok {
			s = ProbeSection{Exit: 127}
		}
		_, _ = fmt.Fprintf(c.r.Stdout, "\n@@%s begin %s\n%s\n\n@@%s end %s %d\n", nonce, name, strings.TrimSuffix(s.Text, "\n"), nonce, name, s.Exit)
	}
	return c.say("\n@@%s done", nonce)
}

func plainProbe() map[string]ProbeSection {
	return map[string]ProbeSection{
		"os-release": {Text: "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n"},
		"uname":      {Text: "Linux 6.1.0-28-amd64 x86_64\n"},
		"machine-id": {Text: "0123456789abcdef0123456789abcdef\n"},
		"boot-id":    {Text: "11111111-2222-3333-4444-555555555555\n"},
		"hostname":   {Text: "test\n"},
		"meminfo":    {Text: "MemTotal:       263921664 kB\n"},
		"init":       {Text: "systemd\n"},
		"date":       {Text: "1800000000\n"},
		"nproc":      {Text: "64\n"},
		"systemd":    {Text: "systemd 252 (252.31-1~deb12u1)\n+PAM\n"},
		"ip":         {Text: `[{"ifname":"eth0","mtu":1500,"flags":["UP"],"addr_info":[{"family":"inet","local":"192.0.2.10","prefixlen":24,"scope":"global"}]}]`},
		"lspci":      {Text: ""},
	}
}
