package demo

import (
	"bytes"
	"strings"
	"testing"
)

const planText = `
Terraform used the selected providers to generate the following execution
plan. Resource actions are indicated with the following symbols:
  + create

Terraform will perform the following actions:

  # moai_node.h100 will be created
  + resource "moai_node" "h100" {
      + id = (known after apply)
    }

Plan: 1 to add, 0 to change, 0 to destroy.
moai_node.h100: Creating...

Warning: something
  with moai_node.h100
`

func TestCondense(t *testing.T) {
	for _, step := range []int{1, 7, len(planText)} {
		var out, full bytes.Buffer
		c := condense(&out, &full)
		for rest := planText; rest != ""; {
			n := min(step, len(rest))
			if _, err := c.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if full.String() != planText {
			t.Error("the whole text was not kept")
		}
		for _, want := range []string{"# moai_node.h100 will be created", "Plan: 1 to add", "moai_node.h100: Creating", "Warning: something", "with moai_node.h100"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("in writes of %d: %q is missing in\n%s", step, want, out.String())
			}
		}
		if strings.Contains(out.String(), "known after apply") || strings.Contains(out.String(), "symbols") {
			t.Errorf("in writes of %d: noise in\n%s", step, out.String())
		}
	}
}
