// Package userns makes the hosts of tier G, on any Linux and without root: each host is namespaces of its own with a root
// that it shares with nobody (package guest). What runs outside of them is one process, the holder:
//
//	lab up ── starts ──> holder: user, network, mount and process namespace of the lab
//	                       └── host: mount, network, process and name namespace, process 1 of package guest
//
// The holder keeps the lab's networks (a bridge each, into which every host has a cable) and the hosts' disks (a tmpfs
// each), so that a host keeps its disk over a power cut. It is process 1 of the lab's process namespace: when it ends, for
// whatever reason, the kernel ends every process of the lab, and with them go mounts, network and disks. Nothing of a lab
// is left outside but its state folder.
//
// Nobody but processes that entered the lab's network can reach a host: no port is opened on the machine.
package userns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/guest"
)

// Names of this package's processes; the lab's name follows after a dash.
const (
	holderName = "moai-lab-holder"
	probeName  = "moai-lab-probe"
)

// Main runs what this program was started as, if that is a part of a lab: a program that makes labs calls it first.
// It returns if it was started as nothing of the kind.
func Main(args []string) {
	if guest.Main(args) {
		return
	}
	name := filepath.Base(args[0])
	var err error
	switch {
	case strings.HasPrefix(name, holderName+"-"):
		err = hold()
	case name == probeName:
		err = probe()
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
