package account

import (
	"fmt"
	"strings"
)

// Commands are the programs that Do stands in for.
var Commands = []string{"groupadd", "groupdel", "useradd", "userdel", "usermod"}

// Do does what one of Commands would do to the database. Options that are not read are an error: nothing is done halfway.
func (db *DB) Do(program string, args []string) error {
	opts, words, err := options(args)
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return fmt.Errorf("one name is needed, got %q", words)
	}
	name := words[0]
	if !valid(name) {
		return fmt.Errorf("invalid name '%s'", name)
	}
	_, system := opts["system"]
	switch program {
	case "groupadd":
		return db.AddGroup(name, system)
	case "groupdel":
		return db.RemoveGroup(name)
	case "userdel":
		return db.RemoveUser(name)
	case "useradd":
		u := User{Name: name, Home: "/home/" + name, Shell: "/bin/sh", Comment: opts["comment"]}
		if h, ok := opts["home-dir"]; ok {
			u.Home = h
		}
		if s, ok := opts["shell"]; ok {
			u.Shell = s
		}
		if strings.ContainsAny(u.Home+u.Shell+u.Comment, ":\n") {
			return fmt.Errorf("home, shell and comment hold no colon and no line end")
		}
		return db.AddUser(u, opts["gid"], system)
	case "usermod":
		if g, ok := opts["gid"]; ok {
			if err := db.SetPrimary(name, g); err != nil {
				return err
			}
		}
		if g, ok := opts["groups"]; ok {
			if _, ok := opts["append"]; !ok {
				return fmt.Errorf("-G is done with -a only")
			}
			for _, one := range strings.Split(g, ",") {
				if err := db.Join(name, one); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return fmt.Errorf("%s is not done here", program)
}

// options splits arguments into options, by long name, and words.
func options(args []string) (opts map[string]string, words []string, err error) {
	long := map[string]string{
		"-r": "system", "-g": "gid", "-d": "home-dir", "-s": "shell", "-c": "comment", "-a": "append", "-G": "groups", "-M": "no-create-home",
		"-f": "force",
	}
	takes := map[string]bool{"gid": true, "home-dir": true, "shell": true, "comment": true, "groups": true}
	flags := map[string]bool{"system": true, "append": true, "no-create-home": true, "no-user-group": true, "force": true}
	opts = map[string]string{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			words = append(words, args[i+1:]...)
			break
		}
		if !strings.HasPrefix(arg, "-") {
			words = append(words, arg)
			continue
		}
		key, value, has := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if l, ok := long[arg]; ok {
			key = l
		}
		switch {
		case flags[key]:
			opts[key] = ""
		case takes[key] && has:
			opts[key] = value
		case takes[key] && i+1 < len(args):
			i++
			opts[key] = args[i]
		default:
			return nil, nil, fmt.Errorf("option %s is not done here", arg)
		}
	}
	return opts, words, nil
}

func valid(name string) bool {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r == '_':
		case (r >= '0' && r <= '9' || r == '-') && i > 0:
		default:
			return false
		}
	}
	return name != "" && len(name) <= 32
}
