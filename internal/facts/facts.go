package facts

// Vendors of accelerators.
const (
	VendorNVIDIA = "nvidia"
	VendorAMD    = "amd"
	VendorNone   = "none"
	VendorMixed  = "mixed"
)

// Accelerator is one GPU.
type Accelerator struct {
	Index       int    // as the vendor's tool counts; by PCI address where no tool answered
	Vendor      string // nvidia or amd
	Model       string // H100, H200, A100, MI300X, …, or "" if unknown
	Name        string // as the tool or the PCI database says
	PCI         string // 0000:19:00.0
	MemoryBytes int64  // 0 if unknown
	UUID        string // "" if unknown
}

// NIC is one network interface.
type NIC struct {
	Name      string
	Addresses []string // "192.0.2.1/24", without link-local ones
	MTU       int
	SpeedMbps int // 0 if unknown
}

// OS is the operating system.
type OS struct {
	ID         string // debian, ubuntu, rhel, …
	VersionID  string
	PrettyName string
}

// Finding is something a person should know about a host.
type Finding struct {
	Subject string // section name or device
	Text    string // what is wrong
	Fix     string // what to do
}

// Facts is what a host is.
type Facts struct {
	Vendor        string // nvidia, amd, none or mixed
	Accelerators  []Accelerator
	DriverVersion string
	CUDAVersion   string // the newest the driver supports
	ROCmVersion   string
	CPUs          int
	MemoryBytes   int64
	NICs          []NIC
	OS            OS
	Kernel        string
	Arch          string // amd64 or arm64; else as the kernel says
	MachineID     string
	BootID        string
	Hostname      string
	Systemd       int   // version; 0 when systemd does not run the host
	UnixTime      int64 // the host's clock, seconds
	Findings      []Finding
}

// Models returns the number of accelerators by model.
func (f Facts) Models() map[string]int {
	m := map[string]int{}
	for _, a := range f.Accelerators {
		m[a.Model]++
	}
	return m
}
