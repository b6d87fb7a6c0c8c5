package main

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/standin"
)

// standIn is the command which answers as the named tool.
func standIn(tool string) command {
	return func(args []string) int {
		h, err := standin.Load(standin.HardwareFile)
		if err != nil {
			fmt.Fprintf(os.Stderr, "moaid-lab: %v\n", err)
			return 127
		}
		answer := standin.Run(h, standin.Call{Tool: tool, Args: args, Caller: caller(), Now: time.Now(), Sleep: wait})
		_, errOut := os.Stderr.WriteString(answer.Err)
		if _, err := os.Stdout.WriteString(answer.Out); err != nil || errOut != nil {
			return 1 // whoever asked has gone
		}
		return answer.Code
	}
}

// caller finds out whether this process could open the device nodes of accelerators.
func caller() standin.Caller {
	c := standin.Caller{Privileged: os.Geteuid() == 0, RenderGID: "993"}
	own, err := os.Getgroups()
	if err != nil {
		return c
	}
	for _, name := range []string{"video", "render"} {
		g, err := user.LookupGroup(name)
		if err != nil {
			continue
		}
		if name == "render" {
			c.RenderGID = g.Gid
		}
		if slices.ContainsFunc(own, func(gid int) bool { return fmt.Sprint(gid) == g.Gid }) {
			c.Privileged = true
		}
	}
	return c
}

// wait is how a tool hangs: it can be killed, and nothing else ends it early.
func wait(d time.Duration) { <-time.After(d) }
