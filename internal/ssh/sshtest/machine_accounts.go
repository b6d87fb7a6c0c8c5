package sshtest

import (
	"slices"
	"strings"
)

func (c *call) accounts() int {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	for _, a := range c.args {
		kind, name, _ := strings.Cut(a, ":")
		_, ok := c.m.users[name]
		if kind == "group" {
			ok = c.m.groups[name]
		}
		if ok {
			c.say("there")
		} else {
			c.say("gone")
		}
	}
	return 0
}

func (c *call) ensureUser() int {
	name, group := c.args[0], c.args[1]
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	have, ok := c.m.users[name]
	switch {
	case ok && have != group:
		return c.die(65, "user %s exists with primary group %s, not %s", name, have, group)
	case ok:
		return c.say("kept")
	case c.fenced():
		return c.lostLock()
	}
	c.m.groups[group] = true
	c.m.users[name] = group
	return c.say("done")
}

func (c *call) removeUser() int {
	kind, name := c.args[0], c.args[1]
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	_, ok := c.m.users[name]
	if kind == "group" {
		ok = c.m.groups[name]
	}
	switch {
	case !ok:
		return c.say("gone")
	case c.fenced():
		return c.lostLock()
	case kind == "group":
		for _, g := range c.m.users {
			if g == name {
				return c.die(70, "cannot remove group %s", name)
			}
		}
		delete(c.m.groups, name)
		return c.say("done")
	}
	group := c.m.users[name]
	delete(c.m.users, name)
	if group == name && c.args[2] != "keep" && !slices.ContainsFunc(c.otherGroups(), func(g string) bool { return g == name }) {
		delete(c.m.groups, name)
	}
	return c.say("done")
}

func (c *call) otherGroups() []string {
	var out []string
	for _, g := range c.m.users {
		out = append(out, g)
	}
	return out
}
