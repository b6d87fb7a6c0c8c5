package account

import (
	"slices"
	"strings"
	"testing"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n"
	group  = "root:x:0:\nubuntu:x:1000:\nrender:x:999:\n"
)

func TestAccountsComeAndGo(t *testing.T) {
	db := Parse(passwd, group)
	do := func(line string) error { f := strings.Fields(line); return db.Do(f[0], f[1:]) }
	for _, line := range []string{
		"groupadd --system -- moai",
		"useradd --system --gid moai --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin --comment moai -- moai",
		"useradd --system --gid moai --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin --comment moai -- moai-engine",
		"usermod -a -G render -- moai-engine",
	} {
		if err := do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	p, g := db.Text()
	if want := passwd + "moai:x:999:998:moai:/nonexistent:/usr/sbin/nologin\nmoai-engine:x:998:998:moai:/nonexistent:/usr/sbin/nologin\n"; p != want {
		t.Errorf("passwd:\n%s", p)
	}
	if want := "root:x:0:\nubuntu:x:1000:\nrender:x:999:moai-engine\nmoai:x:998:\n"; g != want {
		t.Errorf("group:\n%s", g)
	}
	if u, _ := db.User("moai-engine"); !slices.Equal(db.GroupIDs(u), []int{998, 999}) {
		t.Errorf("groups %v", db.GroupIDs(u))
	}
	if err := do("groupdel -- moai"); err == nil {
		t.Error("a primary group was removed")
	}
	// A group goes with the user of its name only when nobody else is in it.
	for _, line := range []string{"userdel -- moai", "userdel -- moai-engine", "groupdel -- moai"} {
		if err := do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if p, g := db.Text(); p != passwd || g != group {
		t.Errorf("as it was found, but for\n%s%s", p, g)
	}
}

func TestKeptGroup(t *testing.T) {
	db := Parse(passwd, group)
	for _, args := range [][]string{{"useradd", "a"}, {"usermod", "-g", "0", "--", "a"}, {"userdel", "a"}} {
		if err := db.Do(args[0], args[1:]); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := db.Group("a"); !ok {
		t.Error("the group went with a user that was not in it any more")
	}
}

func TestDoRefuses(t *testing.T) {
	for _, line := range []string{
		"useradd ubuntu", "useradd -g nobody a", "useradd A", "useradd a:b", "useradd --uid 5 a", "useradd", "useradd a b", "userdel a", "groupadd root",
		"usermod -G render ubuntu", "usermod -a -G none ubuntu", "passwd a", "useradd --comment x:y a", "groupdel none",
	} {
		db := Parse(passwd, group)
		f := strings.Fields(line)
		if err := db.Do(f[0], f[1:]); err == nil {
			t.Errorf("%s is done", line)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(passwd, group)
	f.Fuzz(func(t *testing.T, p, g string) {
		db := Parse(p, g)
		p1, g1 := db.Text()
		if p2, g2 := Parse(p1, g1).Text(); p1 != p2 || g1 != g2 {
			t.Errorf("not stable: %q %q", p1, g1)
		}
	})
}
