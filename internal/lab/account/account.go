// Package account edits the texts of /etc/passwd and /etc/group as useradd and its kin do, for hosts whose own tools
// cannot be counted on. It is pure: texts in, texts out.
package account

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DB is the account database of a host.
type DB struct {
	Users  []User
	Groups []Group
}

// User is one line of passwd.
type User struct {
	Name     string
	UID, GID int
	Comment  string
	Home     string
	Shell    string
}

// Group is one line of group.
type Group struct {
	Name    string
	GID     int
	Members []string
}

// Parse reads the two texts. Lines that are none are dropped.
func Parse(passwd, group string) DB {
	var db DB
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) != 7 {
			continue
		}
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err1 == nil && err2 == nil {
			db.Users = append(db.Users, User{Name: f[0], UID: uid, GID: gid, Comment: f[4], Home: f[5], Shell: f[6]})
		}
	}
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) != 4 {
			continue
		}
		gid, err := strconv.Atoi(f[2])
		if err == nil {
			db.Groups = append(db.Groups, Group{Name: f[0], GID: gid, Members: slices.DeleteFunc(strings.Split(f[3], ","), func(s string) bool { return s == "" })})
		}
	}
	return db
}

// Text renders the two files.
func (db DB) Text() (passwd, group string) {
	var p, g strings.Builder
	for _, u := range db.Users {
		p.WriteString(u.Line() + "\n")
	}
	for _, x := range db.Groups {
		g.WriteString(x.Line() + "\n")
	}
	return p.String(), g.String()
}

// Line is the user's line of passwd.
func (u User) Line() string {
	return fmt.Sprintf("%s:x:%d:%d:%s:%s:%s", u.Name, u.UID, u.GID, u.Comment, u.Home, u.Shell)
}

// Line is the group's line.
func (g Group) Line() string {
	return fmt.Sprintf("%s:x:%d:%s", g.Name, g.GID, strings.Join(g.Members, ","))
}

// User finds a user by name.
func (db DB) User(name string) (User, bool) {
	i := slices.IndexFunc(db.Users, func(u User) bool { return u.Name == name })
	if i < 0 {
		return User{}, false
	}
	return db.Users[i], true
}

// Group finds a group by name or number.
func (db DB) Group(name string) (Group, bool) {
	i := slices.IndexFunc(db.Groups, func(g Group) bool { return g.Name == name || strconv.Itoa(g.GID) == name })
	if i < 0 {
		return Group{}, false
	}
	return db.Groups[i], true
}

// GroupIDs lists the ids of all groups of a user, the primary one first.
func (db DB) GroupIDs(u User) []int {
	ids := []int{u.GID}
	for _, g := range db.Groups {
		if slices.Contains(g.Members, u.Name) && g.GID != u.GID {
			ids = append(ids, g.GID)
		}
	}
	return ids
}

// Ids of system accounts go down from 999, of others up from 1000, as useradd has it.
const (
	lastSystem = 999
	firstUser  = 1000
)

func free(taken func(int) bool, system bool) int {
	id, step := firstUser, 1
	if system {
		id, step = lastSystem, -1
	}
	for taken(id) {
		id += step
	}
	return id
}

// AddGroup adds a group.
func (db *DB) AddGroup(name string, system bool) error {
	if _, ok := db.Group(name); ok {
		return fmt.Errorf("group '%s' already exists", name)
	}
	gid := free(func(n int) bool { return slices.ContainsFunc(db.Groups, func(g Group) bool { return g.GID == n }) }, system)
	db.Groups = append(db.Groups, Group{Name: name, GID: gid})
	return nil
}

// AddUser adds u; its id is chosen. group is the name of its primary group, or empty for one of its own name.
func (db *DB) AddUser(u User, group string, system bool) error {
	if _, ok := db.User(u.Name); ok {
		return fmt.Errorf("user '%s' already exists", u.Name)
	}
	if group == "" {
		if err := db.AddGroup(u.Name, system); err != nil {
			return err
		}
		group = u.Name
	}
	g, ok := db.Group(group)
	if !ok {
		return fmt.Errorf("group '%s' does not exist", group)
	}
	u.GID = g.GID
	u.UID = free(func(n int) bool { return slices.ContainsFunc(db.Users, func(u User) bool { return u.UID == n }) }, system)
	db.Users = append(db.Users, u)
	return nil
}

// Join adds a user to a group.
func (db *DB) Join(user, group string) error {
	if _, ok := db.User(user); !ok {
		return fmt.Errorf("user '%s' does not exist", user)
	}
	for i := range db.Groups {
		if g := &db.Groups[i]; g.Name == group {
			if !slices.Contains(g.Members, user) {
				g.Members = append(g.Members, user)
			}
			return nil
		}
	}
	return fmt.Errorf("group '%s' does not exist", group)
}

// SetPrimary changes a user's primary group.
func (db *DB) SetPrimary(user, group string) error {
	g, ok := db.Group(group)
	if !ok {
		return fmt.Errorf("group '%s' does not exist", group)
	}
	for i := range db.Users {
		if db.Users[i].Name == user {
			db.Users[i].GID = g.GID
			return nil
		}
	}
	return fmt.Errorf("user '%s' does not exist", user)
}

// RemoveUser removes a user, and the group of its name if it is its primary one and nobody else's.
func (db *DB) RemoveUser(name string) error {
	u, ok := db.User(name)
	if !ok {
		return fmt.Errorf("user '%s' does not exist", name)
	}
	db.Users = slices.DeleteFunc(db.Users, func(u User) bool { return u.Name == name })
	for i := range db.Groups {
		db.Groups[i].Members = slices.DeleteFunc(db.Groups[i].Members, func(m string) bool { return m == name })
	}
	db.Groups = slices.DeleteFunc(db.Groups, func(g Group) bool {
		others := len(g.Members) > 0 || slices.ContainsFunc(db.Users, func(u User) bool { return u.GID == g.GID })
		return g.Name == name && g.GID == u.GID && !others
	})
	return nil
}

// RemoveGroup removes a group that is nobody's primary one.
func (db *DB) RemoveGroup(name string) error {
	g, ok := db.Group(name)
	if !ok {
		return fmt.Errorf("group '%s' does not exist", name)
	}
	if i := slices.IndexFunc(db.Users, func(u User) bool { return u.GID == g.GID }); i >= 0 {
		return fmt.Errorf("cannot remove the primary group of user '%s'", db.Users[i].Name)
	}
	db.Groups = slices.DeleteFunc(db.Groups, func(x Group) bool { return x.Name == name })
	return nil
}
