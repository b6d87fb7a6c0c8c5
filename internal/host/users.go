package host

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// User is a user as it shall be. It cannot log in.
type User struct {
	Name   string
	Group  string   // primary group, made when missing
	System bool     // below the first ordinary user id
	Home   string   // not created; "" means /nonexistent
	Extra  []string // supplementary groups, skipped where the host has none of that name
}

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// EnsureUser makes a user and its group exist and reports whether anything changed. A user that exists with another
// primary group is refused ([ErrConflict]).
func (h *Host) EnsureUser(ctx context.Context, u User) (changed bool, err error) {
	for _, n := range append([]string{u.Name, u.Group}, u.Extra...) {
		if !userName.MatchString(n) {
			return false, fmt.Errorf("user or group name %q is not valid", n)
		}
	}
	system, home := "no", u.Home
	if u.System {
		system = "yes"
	}
	if home == "" {
		home = "/nonexistent"
	}
	res, err := h.call(ctx, "ensure-user", u.Name, nil, u.Name, u.Group, system, home, strings.Join(u.Extra, ","))
	switch {
	case err != nil:
		return false, err
	case word(res) == "kept":
		return false, nil
	}
	return true, h.done("ensure-user", u.Name, res, nil)
}

// Account names a user or a group of a host.
type Account string

// UserAccount is the account of a user.
func UserAccount(name string) Account { return Account("user:" + name) }

// GroupAccount is the account of a group.
func GroupAccount(name string) Account { return Account("group:" + name) }

// Missing returns those of the accounts that the host provably does not have.
func (h *Host) Missing(ctx context.Context, accounts ...Account) ([]Account, error) {
	args := make([]string, len(accounts))
	for i, a := range accounts {
		args[i] = string(a)
	}
	subject := strings.Join(args, " ")
	res, err := h.call(ctx, "accounts", subject, nil, args...)
	if err != nil {
		return nil, err
	}
	said := strings.Fields(string(res.Stdout))
	if len(said) != len(accounts) {
		return nil, h.unexpected("accounts", subject, res)
	}
	var missing []Account
	for i, w := range said {
		switch w {
		case "there":
		case "gone":
			missing = append(missing, accounts[i])
		default:
			return nil, h.unexpected("accounts", subject, res)
		}
	}
	return missing, nil
}

// RemoveUser removes a user; its home is left alone. Its primary group of the same name goes with it, where the host does
// so and nobody else is in it, unless keepGroup.
func (h *Host) RemoveUser(ctx context.Context, name string, keepGroup bool) (Removal, error) {
	keep := "-"
	if keepGroup {
		keep = "keep"
	}
	res, err := h.call(ctx, "remove-user", name, nil, "user", name, keep)
	return h.removal("remove-user", name, res, err)
}

// RemoveGroup removes a group.
func (h *Host) RemoveGroup(ctx context.Context, name string) (Removal, error) {
	res, err := h.call(ctx, "remove-user", name, nil, "group", name, "-")
	return h.removal("remove-user", name, res, err)
}

// done checks the answer of a verb that says "done".
func (h *Host) done(verb, subject string, res ssh.Result, err error) error {
	if err == nil && word(res) != "done" {
		err = h.unexpected(verb, subject, res)
	}
	return err
}

func (h *Host) removal(verb, subject string, res ssh.Result, err error) (Removal, error) {
	if err != nil {
		return "", err
	}
	switch r := Removal(word(res)); r {
	case Gone, Removed, Kept:
		return r, nil
	}
	return "", h.unexpected(verb, subject, res)
}
