//go:build !moai_damage

package kvd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoFaultsInNormalBuild: neither the switch nor the code of the test build's
// faults is in the program that is shipped.
func TestNoFaultsInNormalBuild(t *testing.T) {
	for _, c := range []struct {
		tags string
		want bool
	}{{"", false}, {"moai_damage", true}} {
		out := filepath.Join(t.TempDir(), "moaid")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-tags="+c.tags, "-o", out, "../cmd/moaid")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"MOAI_KVD_FAULT", "kvd.usedByte"} {
			if got := strings.Contains(string(b), s); got != c.want {
				t.Errorf("tags %q: %s in the program: %v", c.tags, s, got)
			}
		}
	}
}
