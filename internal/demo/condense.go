package demo

import (
	"fmt"
	"io"
	"strings"
)

// condenser passes the CLI's output on, less the bodies of planned resources:
// what is planned stays as one line a resource.
type condenser struct {
	out    io.Writer
	inBody bool
}

// condense gives a writer whose whole text goes to full and whose condensed
// lines go to out.
func condense(out, full io.Writer) io.Writer {
	c := &condenser{out: out}
	return io.MultiWriter(full, &lines{line: c.line})
}

func (c *condenser) line(text string) error {
	if !c.keep(text) {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "          %s\n", text)
	return err
}

// keep decides on one line. A body begins where the CLI announces actions or
// drift, and ends at the summary.
func (c *condenser) keep(line string) bool {
	t := strings.TrimSpace(line)
	switch {
	case strings.HasSuffix(t, "will perform the following actions:"), strings.HasPrefix(t, "Note: Objects have changed outside of"):
		c.inBody = true
		return false
	case strings.HasPrefix(t, "Plan: "), strings.HasPrefix(t, "Changes to Outputs:"), strings.HasPrefix(t, "Warning: "), strings.HasPrefix(t, "Error: "):
		c.inBody = false
		return true
	case c.inBody:
		return strings.HasPrefix(t, "# moai_")
	}
	return t != "" && !strings.HasPrefix(t, "─") && !refreshing(t) && !boilerplate(t)
}

func refreshing(t string) bool {
	return strings.Contains(t, ": Refreshing state...") || strings.HasPrefix(t, "data.") && strings.Contains(t, ": Read")
}

// boilerplate is what the CLI says at every run.
func boilerplate(t string) bool {
	for _, start := range []string{
		"Terraform used the selected providers", "OpenTofu used the selected providers", "plan. Resource actions are indicated", "execution plan. Resource actions",
		"+ create", "- destroy", "~ update in-place", "-/+ destroy", "Note: You didn't use the -out option", "guarantee to take exactly", "now.", "following symbols:",
	} {
		if strings.HasPrefix(t, start) {
			return true
		}
	}
	return false
}
