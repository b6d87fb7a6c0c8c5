package node_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
)

// What was there before a node is there after it.
func TestNodeLeavesAccountsOfOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		setUp func(h *acctest.Host)
	}{
		{name: "user and group", setUp: func(h *acctest.Host) { h.SetUser("moai", "moai") }},
		{
			name: "group of another user", setUp: func(h *acctest.Host) { h.SetUser("alice", "moai") },
		},
		{
			// The daemon's start fails after the users were made: the next apply still knows which.
			name: "interrupted create", setUp: func(h *acctest.Host) {
				h.SetUser("moai", "moai")
				h.Daemon.FailStart(errors.New("address already in use"))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, h := h100(t)
			c.setUp(h)
			_, hadUser := h.User("moai")
			config := f.ProviderBlock() + h.Node(expect)
			steps := []resource.TestStep{{Config: config}}
			if c.name == "interrupted create" {
				steps = []resource.TestStep{
					{Config: config, ExpectError: flexible("address already in use")},
					{PreConfig: func() { h.Daemon.FailStart(nil) }, Config: config},
				}
			}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: f.Factories(), Steps: steps,
				CheckDestroy: func(*terraform.State) error {
					if _, ok := h.User("moai"); ok != hadUser {
						return fmt.Errorf("user moai is there: %v; before: %v", ok, hadUser)
					}
					if _, ok := h.User("moai-engine"); ok {
						return fmt.Errorf("user moai-engine is left")
					}
					if !h.Group("moai") {
						return fmt.Errorf("group moai was removed, which was there before")
					}
					return nil
				},
			})
		})
	}
}
