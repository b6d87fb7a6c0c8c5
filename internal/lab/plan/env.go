package plan

import (
	"fmt"
	"path/filepath"
	"strings"
)

// HostEnv is what a user of the lab needs to know of one host.
type HostEnv struct {
	Name           string `json:"name"`
	Address        string `json:"address"`        // management address, where sshd answers
	FabricAddress  string `json:"fabric_address"` // where KV traffic goes
	Port           int    `json:"port"`
	User           string `json:"user"`
	PrivateKeyFile string `json:"private_key_file"`
	HostKey        string `json:"host_key"` // "ssh-ed25519 AAAA…", as in known_hosts without the host column
	Namespace      string `json:"namespace"`
	Profile        string `json:"profile"` // accelerators; empty: none
	MachineID      string `json:"machine_id"`
}

// Env is what a user of the lab needs to know. Addresses mean something behind Enter only.
type Env struct {
	Name       string             `json:"name"`
	Tier       string             `json:"tier"`
	Enter      []string           `json:"enter"`       // put before a command, it runs where the hosts have their addresses
	Namespace  string             `json:"namespace"`   // the network namespace of that place, if it has a name
	KnownHosts string             `json:"known_hosts"` // path
	SSHConfig  string             `json:"ssh_config"`  // path
	Hosts      map[string]HostEnv `json:"hosts"`
}

// Env describes the plan's hosts. dir is the lab's state folder, hostKeys the public host key by host name.
func (p Plan) Env(tier, dir string, hostKeys map[string]string) Env {
	e := Env{
		Name: p.Name, Tier: tier, Namespace: p.Namespace(), Hosts: map[string]HostEnv{},
		KnownHosts: filepath.Join(dir, "known_hosts"), SSHConfig: filepath.Join(dir, "ssh_config"),
	}
	for _, h := range p.Hosts {
		e.Hosts[h.Name] = HostEnv{
			Name: h.Name, Address: h.Address(Mgmt).String(), FabricAddress: h.Address(Fabric).String(),
			Port: h.SSHPort(), User: h.User, PrivateKeyFile: filepath.Join(dir, "keys", h.Name),
			HostKey: hostKeys[h.Name], Namespace: p.HostNamespace(h.Name), Profile: h.Profile, MachineID: h.MachineID(),
		}
	}
	return e
}

// Shell renders the environment as export lines for a POSIX shell, hosts in the given order.
func (e Env) Shell(order []string) string {
	var b strings.Builder
	put := func(key, value string) { fmt.Fprintf(&b, "export %s=%s\n", key, quote(value)) }
	put("MOAI_LAB_NAME", e.Name)
	put("MOAI_LAB_NAMESPACE", e.Namespace)
	put("MOAI_LAB_KNOWN_HOSTS", e.KnownHosts)
	put("MOAI_LAB_SSH_CONFIG", e.SSHConfig)
	put("MOAI_LAB_HOSTS", strings.Join(order, " "))
	for _, name := range order {
		h := e.Hosts[name]
		prefix := "MOAI_LAB_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		put(prefix+"_ADDRESS", h.Address)
		put(prefix+"_FABRIC_ADDRESS", h.FabricAddress)
		put(prefix+"_PORT", fmt.Sprint(h.Port))
		put(prefix+"_USER", h.User)
		put(prefix+"_PRIVATE_KEY_FILE", h.PrivateKeyFile)
		put(prefix+"_HOST_KEY", h.HostKey)
		put(prefix+"_NAMESPACE", h.Namespace)
	}
	return b.String()
}

// KnownHostsFile renders the hosts' keys as a known_hosts file.
func (e Env) KnownHostsFile(order []string) string {
	var b strings.Builder
	for _, name := range order {
		fmt.Fprintf(&b, "%s,%s %s\n", name, e.Hosts[name].Address, e.Hosts[name].HostKey)
	}
	return b.String()
}

// SSHConfigFile renders a client configuration that knows the hosts by name and takes nothing from the machine.
func (e Env) SSHConfigFile(order []string) string {
	var b strings.Builder
	for _, name := range order {
		h := e.Hosts[name]
		fmt.Fprintf(&b, "Host %s\n  HostName %s\n  HostKeyAlias %s\n  Port %d\n  User %s\n  IdentityFile %s\n",
			name, h.Address, name, h.Port, h.User, h.PrivateKeyFile)
	}
	fmt.Fprintf(&b, "Host *\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n  GlobalKnownHostsFile none\n"+
		"  StrictHostKeyChecking yes\n  BatchMode yes\n  ConnectTimeout 20\n  LogLevel ERROR\n", e.KnownHosts)
	return b.String()
}

// quote makes one word of a POSIX shell from any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
