package peercred

import (
	"os"
	"testing"
)

func TestInUnit(t *testing.T) {
	const unit = "moai-engine-a.service"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"unified":         {"0::/system.slice/moai-engine-a.service\n", true},
		"below":           {"0::/system.slice/moai-engine-a.service/worker\n", true},
		"hybrid":          {"4:memory:/x\n1:name=systemd:/system.slice/moai-engine-a.service\n0::/\n", true},
		"other unit":      {"0::/system.slice/moai-engine-b.service\n", false},
		"suffix":          {"0::/system.slice/x-moai-engine-a.service\n", false},
		"container":       {"0::/lab/host/payload/system.slice/moai-engine-a.service\n", true},
		"own slice":       {"0::/moai.slice/moai-gpu.slice/moai-engine-a.service\n", true},
		"root slice":      {"0::/moai-engine-a.service\n", true},
		"user's manager":  {"0::/user.slice/user-1001.slice/user@1001.service/app.slice/moai-engine-a.service\n", false},
		"below another":   {"0::/system.slice/moai-engine-b.service/moai-engine-a.service\n", false},
		"slice below":     {"0::/system.slice/moai-engine-b.service/system.slice/moai-engine-a.service\n", false},
		"in a scope":      {"0::/init.scope/moai-engine-a.service\n", false},
		"not systemd's":   {"4:memory:/moai-engine-a.service\n", false},
		"empty":           {"", false},
		"no colon":        {"moai-engine-a.service", false},
		"controller name": {"0:moai-engine-a.service\n", false},
	} {
		if got := InUnit(c.text, unit); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzInUnit(f *testing.F) {
	f.Add("0::/system.slice/a.service\n")
	f.Fuzz(func(_ *testing.T, s string) { InUnit(s, "a.service") })
}

func TestCheck(t *testing.T) {
	uid, pid := os.Getuid(), os.Getpid()
	if err := Check(uid, pid, uid, ""); err != nil {
		t.Error(err)
	}
	if err := Check(uid, pid, uid+1, ""); err == nil {
		t.Error("another user was accepted")
	}
	if err := Check(uid, pid, uid, "no-such.service"); err == nil {
		t.Error("another unit was accepted")
	}
}
