package engine

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	other := []fleet.EngineClaim{{Node: "n", Engine: "other", GPUs: []int{0, 1}, StagingBytes: 600}}
	for _, c := range []struct {
		name, at, says string
		r              room
	}{
		{"all fits", "", "", room{spec: engines.Spec{GPUs: []int{2, 3}, StagingBytes: 300}, memory: 1000, gpus: 4, others: other}},
		{"nothing is known", "", "", room{spec: engines.Spec{GPUs: []int{7}, StagingBytes: 1 << 40}, gpus: -1}},
		{"no labels", "", "", room{spec: engines.Spec{StagingBytes: 1}, memory: 1000, others: other}},
		{"beyond the last", "gpus[1]", "indexes 0 to 3", room{spec: engines.Spec{GPUs: []int{3, 4}}, gpus: 4}},
		{"of a node without any", "gpus[0]", "no accelerator", room{spec: engines.Spec{GPUs: []int{0}}, gpus: 0}},
		{"taken", "gpus[1]", "belongs to engine other", room{spec: engines.Spec{GPUs: []int{2, 1}}, gpus: -1, others: other}},
		{"too much memory", "staging.memory", "1000 bytes of memory", room{spec: engines.Spec{StagingBytes: 1000}, memory: 1000, gpus: -1}},
		{"too much together", "staging.memory", "2 engines of node n ask for 1000 bytes", room{spec: engines.Spec{StagingBytes: 400}, memory: 1000, gpus: -1, others: other}},
	} {
		c.r.node = "n"
		ds := c.r.refusals()
		if c.at == "" {
			if ds.HasError() {
				t.Errorf("%s: %v", c.name, ds)
			}
			continue
		}
		if len(ds) != 1 || !strings.Contains(ds[0].Detail(), "Attribute: "+c.at) || !strings.Contains(ds[0].Detail(), c.says) {
			t.Errorf("%s: got %v, want one at %s that says %q", c.name, ds, c.at, c.says)
		}
	}
}
