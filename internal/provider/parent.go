package provider

import (
	"os"
	"time"
)

// parentPoll is how often the parent is looked for. Linux tells a child of its parent's death only per thread, so it is
// asked for instead.
const parentPoll = time.Second

// orphanGrace is how long remote work has to notice that its requests were cancelled.
const orphanGrace = 5 * time.Second

// ExitWithParent ends this process when the process that started it is gone. The end of the CLI's connection has
// cancelled every request by then; a remote command that ignores that dies with its SSH session.
func ExitWithParent() { exitWithParent(parent, parentPoll, orphanGrace) }

// parent is read as early as possible: a CLI that dies before it was read would never be missed.
var parent = os.Getppid()

func exitWithParent(parent int, poll, grace time.Duration) {
	tick := time.NewTicker(poll)
	for os.Getppid() == parent {
		<-tick.C
	}
	<-time.After(grace)
	os.Exit(1)
}
