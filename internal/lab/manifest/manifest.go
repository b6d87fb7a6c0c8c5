// Package manifest writes down what a host consists of (files, accounts, units, processes) and compares two such
// lists. It is how "destroy leaves the host as it was found" is checked, so what may differ is an explicit list with
// reasons (Tolerated) and everything else is a difference. Comparing is pure; collecting reads a host.
package manifest

// File is one entry of the file system. Times are not part of it.
type File struct {
	Path   string `json:"path"`
	Type   string `json:"type"` // file, dir, link, socket, fifo, char, block
	Mode   string `json:"mode"` // octal, with the setuid, setgid and sticky bits
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	SHA256 string `json:"sha256,omitempty"` // of a regular file
	Target string `json:"target,omitempty"` // of a link
}

// Process is a set of processes that look the same.
type Process struct {
	Command string   `json:"comm"`
	Exe     string   `json:"exe"`
	Args    []string `json:"args"`
	Cgroup  string   `json:"cgroup"` // inside the host
	Count   int      `json:"count"`
}

// Unit is a unit file and whether it is enabled, or a service that runs or has failed.
type Unit struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// Account is a user or a group, as one line of its database without the password.
type Account struct {
	Name  string `json:"name"`
	Entry string `json:"entry"`
}

// Manifest is what a host consists of. All lists are sorted.
type Manifest struct {
	Host      string    `json:"host"`
	Powered   bool      `json:"powered"` // processes and units are known only of a host that is on
	Files     []File    `json:"files"`
	Users     []Account `json:"users"`
	Groups    []Account `json:"groups"`
	UnitFiles []Unit    `json:"unit_files"`
	Services  []Unit    `json:"services"`
	Processes []Process `json:"processes"`
}
