package facts

import (
	"strconv"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

func FuzzNVIDIAQuery(f *testing.F) {
	f.Add(fixture(f, "h100x8-query.csv"))
	f.Add(fixture(f, "h200x2-query.csv"))
	f.Fuzz(func(t *testing.T, s string) {
		gpus, err := ParseNVIDIAQuery(s)
		if err != nil {
			return
		}
		for _, g := range gpus {
			if g.PCI == "" || g.Index < 0 || g.MemoryBytes < 0 {
				t.Fatalf("%+v", g)
			}
		}
	})
}

func FuzzAMDStatic(f *testing.F) {
	f.Add(fixture(f, "mi300x-2-static.json"))
	f.Add(fixture(f, "mi300x-2-static-nonroot.txt"))
	f.Add(`[{"gpu":0,"bus":{"bdf":"0000:1b:00.0"},"vram":{"size":"192 GB"}}]`)
	f.Fuzz(func(t *testing.T, s string) {
		gpus, err := ParseAMDStatic(s)
		if err != nil {
			return
		}
		for _, g := range gpus {
			if g.PCI == "" || g.Index < 0 || g.MemoryBytes < 0 {
				t.Fatalf("%+v", g)
			}
		}
	})
}

func FuzzAMDVersion(f *testing.F) {
	f.Add(fixture(f, "mi300x-version.json"))
	f.Fuzz(func(_ *testing.T, s string) { _, _, _ = ParseAMDVersion(s) })
}

func FuzzLspci(f *testing.F) {
	f.Add(fixture(f, "h100x8-lspci.txt"))
	f.Add(fixture(f, "mi300x8-lspci.txt"))
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range ParseLspci(s) {
			if again, err := NormalPCI(d.Address); err != nil || again != d.Address || len(d.Vendor) != 4 || len(d.Device) != 4 || len(d.Class) != 4 {
				t.Fatalf("%+v %v", d, err)
			}
		}
	})
}

func FuzzBasic(f *testing.F) {
	f.Add("PRETTY_NAME=\"a\\\"b\"\nID='x'\n")
	f.Add("MemTotal: 12 kB\n")
	f.Add("Linux 6.1 aarch64")
	f.Add("systemd 252.1~rc1 (x)")
	f.Add(`noise [{"ifname":"a","mtu":1,"addr_info":[{"local":"10.0.0.1","prefixlen":8}]}]`)
	f.Fuzz(func(t *testing.T, s string) {
		_ = ParseOSRelease(s)
		_, _, _ = ParseUname(s)
		_, _ = ParseSystemdVersion(s)
		_, _ = ParseIPAddr(s)
		_ = ParseSpeeds(s)
		_ = ParseCUDAVersion(s)
		if n, err := ParseMeminfo(s); err == nil && n < 0 {
			t.Fatal(n)
		}
		if n, err := ParseNproc(s); err == nil && n < 1 {
			t.Fatal(n)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("N", "\n@@N begin lspci\nx\n\n@@N end lspci 0\n")
	f.Fuzz(func(t *testing.T, nonce, s string) {
		facts := Parse(Sections(nonce, s))
		if facts.Vendor == "" {
			t.Fatal("no vendor")
		}
	})
}
