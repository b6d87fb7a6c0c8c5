package node

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// Fixed places and names on a host.
const (
	unitName   = fleet.KVDUnit
	unitPath   = host.UnitDir + "/" + unitName
	configPath = "/etc/moai/kvd.json"
	keyPath    = "/var/lib/moai/kvd/node.key"

	userDaemon = "moai"
	userEngine = "moai-engine"
	groupMoai  = "moai"
)

// trees are removed with the node; the one that holds the marker comes last, so that a removal that was interrupted
// still knows whose the rest is.
var trees = []string{"/opt/moai", "/run/moai", "/var/lib/moai", "/etc/moai"}

// tenants are folders that must be empty before a node goes: their files belong to other resources.
var tenants = []string{"/etc/moai/engines", "/etc/moai/routers"}

// users are the system users of a node. Engines need the accelerators' device groups.
func users() []host.User {
	return []host.User{
		{Name: userDaemon, Group: groupMoai, System: true},
		{Name: userEngine, Group: groupMoai, System: true, Extra: []string{"video", "render"}},
	}
}

// accounts are what users() need: all that may have to be made, and removed again.
func accounts() []host.Account {
	out := []host.Account{host.GroupAccount(groupMoai)}
	for _, u := range users() {
		out = append(out, host.UserAccount(u.Name))
	}
	return out
}

// owner names a node's resource in markers, unit files and locks.
func owner(fleetName, name string) systemd.Owner {
	return systemd.Owner{Fleet: fleetName, Resource: resourceName(name), Writer: "terraform-provider-moai"}
}

func resourceName(name string) string { return "moai_node." + name }

// daemonConfig is /etc/moai/kvd.json.
type daemonConfig struct {
	Node   string   `json:"node"`
	Listen []string `json:"listen"`
}

// desired is what belongs on a host, but for the binary.
type desired struct {
	unit   host.File
	config host.File
}

func desire(fleetName string, c fleet.Coordinates) (desired, error) {
	text, err := unit().Render(owner(fleetName, c.Name))
	if err != nil {
		return desired{}, fmt.Errorf("render %s: %w", unitName, err)
	}
	config, err := json.MarshalIndent(daemonConfig{Node: c.Name, Listen: c.ListenAddrs()}, "", "  ")
	if err != nil {
		return desired{}, fmt.Errorf("render %s: %w", configPath, err)
	}
	return desired{
		unit:   host.File{Path: unitPath, Content: []byte(text)},
		config: host.File{Path: configPath, Content: append(config, '\n')},
	}, nil
}

// unit is the daemon's unit. The daemon looks at its clients' processes in /proc to see which unit they belong to, so
// ProtectProc stays off.
func unit() systemd.Service {
	hard := systemd.Strict()
	hard.ProtectProc = false
	return systemd.Service{
		Description:            "moai KV daemon",
		After:                  []string{"network-online.target"},
		Wants:                  []string{"network-online.target"},
		Type:                   "notify",
		Exec:                   []string{host.MoaidPath, "kvd", "--config", configPath},
		User:                   userDaemon,
		Group:                  groupMoai,
		UMask:                  "0027",
		StateDirectory:         "moai/kvd",
		StateDirectoryMode:     "0700",
		RuntimeDirectory:       "moai",
		RuntimeDirectoryMode:   "0755",
		TimeoutStartSec:        time.Minute,
		TimeoutStopSec:         30 * time.Second, // more than kvd.DrainTime
		FileDescriptorStoreMax: 128,
		NoStartLimit:           true,
		LimitMEMLOCK:           "infinity",
		LimitNOFILE:            65536,
		OOMScore:               -500,
		Hardening:              hard,
	}
}
