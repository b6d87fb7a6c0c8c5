package sshtest

import "slices"

func (c *call) unit() int {
	verb, name := c.args[0], c.args[1]
	m := c.m
	m.mu.Lock()
	if c.fenced() {
		m.mu.Unlock()
		return c.lostLock()
	}
	if verb == "daemon-reload" {
		for n, u := range m.units {
			u.loaded = nil
			if e, ok := m.files[unitPath(n)]; ok {
				u.loaded = slices.Clone(e.Content)
			}
		}
		m.mu.Unlock()
		return c.say("done")
	}
	_, ok := m.files[unitPath(name)]
	active := m.unit(name).Active
	m.mu.Unlock()
	if !ok && active != "active" {
		switch verb {
		case "stop", "disable", "disable-now", "reset-failed":
			return c.say("gone")
		}
		return c.die(70, "Failed to %s %s: Unit %s not found.", verb, name, name)
	}
	switch verb {
	case "enable", "enable-now":
		m.SetUnit(name, func(u *Unit) { u.Enabled = true })
		if verb == "enable-now" && active != "active" {
			return c.start(name)
		}
	case "disable", "disable-now":
		m.SetUnit(name, func(u *Unit) { u.Enabled = false })
		if verb == "disable-now" {
			return c.stop(name)
		}
	case "start":
		if active != "active" {
			return c.start(name)
		}
	case "restart":
		if active == "active" {
			_ = c.m.event("stop", name) // a restart goes on
		}
		return c.start(name)
	case "stop":
		return c.stop(name)
	case "reset-failed":
		m.SetUnit(name, func(u *Unit) {
			if u.Active == "failed" {
				u.Active = "inactive"
			}
		})
	default:
		return Unmatched
	}
	return c.say("done")
}

func (m *Machine) event(event, unit string) error {
	if m.OnUnit == nil {
		return nil
	}
	return m.OnUnit(event, unit)
}

func (c *call) start(name string) int {
	err := c.m.event("start", name)
	c.m.SetUnit(name, func(u *Unit) {
		u.Starts++
		if err != nil {
			u.Active, u.MainPID = "failed", 0
			return
		}
		c.m.pids++
		u.Active, u.MainPID = "active", c.m.pids
	})
	if err != nil {
		return c.die(70, "Job for %s failed: %v", name, err)
	}
	return c.say("done")
}

func (c *call) stop(name string) int {
	if err := c.m.event("stop", name); err != nil {
		return c.die(70, "%v", err)
	}
	c.m.SetUnit(name, func(u *Unit) { u.Active, u.MainPID = "inactive", 0 })
	return c.say("done")
}
