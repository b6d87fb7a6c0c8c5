package standin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// profile is a kind of host: which accelerators and network cards sit where.
type profile struct {
	vendor   string
	name     string // as the vendor's tool prints it
	driver   string
	platform string    // CUDA or ROCm version
	chip     chip      // the accelerator as lspci sees it
	buses    []int     // PCI bus of each accelerator
	cpus     [2]string // of the two NUMA nodes; the first half of the accelerators is on node 0
	nics     []nic
	switches []int // PCI buses of NVSwitches
}

// nic is one PCI function of a network card.
type nic struct {
	name     string
	bus      int
	function int
	chip     chip
	near     int // index of the accelerator behind the same PCIe switch; -1: none
}

// chip is what lspci knows of a kind of device. A device without a name is one that the PCI id database does not have.
type chip struct {
	class, className string
	vendor, device   string // ids
	vendorName, name string
	rev              int
}

var (
	h100      = chip{"0302", "3D controller", "10de", "2330", "NVIDIA Corporation", "GH100[H100 SXM5 80GB]", 0xa1}
	nvSwitch  = chip{"0680", "Bridge", "10de", "22a3", "NVIDIA Corporation", "", 0xa1}
	mi300x    = chip{"1200", "Processing accelerators", "1002", "74a1", "Advanced Micro Devices, Inc. [AMD/ATI]", "", 0}
	ndr400    = chip{"0207", "Infiniband controller", "15b3", "1021", "Mellanox Technologies", "MT2910 Family [ConnectX-7]", 0}
	roce400   = chip{"0200", "Ethernet controller", "15b3", "1021", "Mellanox Technologies", "MT2910 Family [ConnectX-7]", 0}
	ether100  = chip{"0200", "Ethernet controller", "15b3", "101d", "Mellanox Technologies", "MT2892 Family [ConnectX-6 Dx]", 0}
	rootPort  = chip{"0604", "PCI bridge", "8086", "352a", "Intel Corporation", "", 4}
	pciSwitch = chip{"0604", "PCI bridge", "1000", "c030", "Broadcom / LSI", "PEX890xx PCIe Gen 5 Switch", 0xb0}
)

var profiles = map[string]profile{
	"h100x8": {
		vendor: "nvidia", name: "NVIDIA H100 80GB HBM3", driver: "550.90.07", platform: "12.4", chip: h100,
		buses:    []int{0x19, 0x3b, 0x4c, 0x5d, 0x9b, 0xbb, 0xcb, 0xdb},
		cpus:     [2]string{"0-55,112-167", "56-111,168-223"},
		switches: []int{0x07, 0x08, 0x09, 0x0a},
		nics: []nic{
			{"mlx5_0", 0x1a, 0, ndr400, 0}, {"mlx5_1", 0x1b, 0, ether100, -1}, {"mlx5_2", 0x1b, 1, ether100, -1},
			{"mlx5_3", 0x3c, 0, ndr400, 1}, {"mlx5_4", 0x4d, 0, ndr400, 2}, {"mlx5_5", 0x5e, 0, ndr400, 3},
			{"mlx5_6", 0x9c, 0, ndr400, 4}, {"mlx5_7", 0x9d, 0, ether100, -1}, {"mlx5_8", 0x9d, 1, ether100, -1},
			{"mlx5_9", 0xbc, 0, ndr400, 5}, {"mlx5_10", 0xcc, 0, ndr400, 6}, {"mlx5_11", 0xdc, 0, ndr400, 7},
		},
	},
	"mi300x8": {
		vendor: "amd", name: "AMD Instinct MI300X", driver: "6.16.13", platform: "7.2.1", chip: mi300x,
		buses: []int{0x1b, 0x3d, 0x4e, 0x5f, 0x9d, 0xbd, 0xcd, 0xdd},
		cpus:  [2]string{"0-63", "64-127"},
		nics: []nic{
			{"mlx5_0", 0x1c, 0, roce400, 0}, {"mlx5_1", 0x3e, 0, roce400, 1}, {"mlx5_2", 0x4f, 0, roce400, 2},
			{"mlx5_3", 0x60, 0, roce400, 3}, {"mlx5_4", 0x9e, 0, roce400, 4}, {"mlx5_5", 0xbe, 0, roce400, 5},
			{"mlx5_6", 0xce, 0, roce400, 6}, {"mlx5_7", 0xde, 0, roce400, 7},
		},
	},
}

// node is the NUMA node of the i-th accelerator.
func (p profile) node(i int) int {
	if i >= len(p.buses)/2 {
		return 1
	}
	return 0
}

// digest is n hexadecimal digits that are the same for the same host and thing, and differ between hosts.
func digest(n int, host, thing string) string {
	sum := sha256.Sum256([]byte(host + "/" + thing))
	return hex.EncodeToString(sum[:])[:n]
}

// decimal is a number below limit made in the same way.
func decimal(limit uint64, host, thing string) uint64 {
	v, err := strconv.ParseUint(digest(12, host, thing), 16, 64)
	if err != nil {
		panic(err) // twelve hexadecimal digits
	}
	return v % limit
}

func gpuThing(i int) string { return fmt.Sprintf("gpu%d", i) }
