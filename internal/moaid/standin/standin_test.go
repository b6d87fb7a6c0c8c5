package standin

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata anew")

// call runs a command line on hardware, at a fixed time.
func call(h Hardware, line string, privileged bool) (stdout, stderr string, code int) {
	words := strings.Fields(line)
	a := Run(h, Call{
		Tool: words[0], Args: words[1:], Caller: Caller{Privileged: privileged, RenderGID: "993"},
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Sleep: func(time.Duration) {},
	})
	return a.Out, a.Err, a.Code
}

const query = "nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.used,driver_version,compute_cap," +
	"mig.mode.current,ecc.errors.uncorrected.volatile.total,power.limit,persistence_mode --format="

// TestGolden holds the outputs as files. They were compared, once, with captures: what may differ is ids and time.
func TestGolden(t *testing.T) {
	nvidia, amd := New("h100x8", "h100-0"), New("mi300x8", "mi300x-0")
	twoLeft := amd
	twoLeft.Lost = []int{1, 2, 3, 5, 6, 7}
	bare := twoLeft
	bare.BareList = true
	for _, c := range []struct {
		file       string
		hardware   Hardware
		line       string
		privileged bool
	}{
		{"nvidia-query.csv", nvidia, query + "csv", false},
		{"nvidia-query-nounits.csv", nvidia, query + "csv,noheader,nounits", false},
		{"nvidia-list.txt", nvidia, "nvidia-smi -L", false},
		{"nvidia-table.txt", nvidia, "nvidia-smi", false},
		{"nvidia-topology.txt", nvidia, "nvidia-smi topo -m", false},
		{"nvidia-lspci.txt", nvidia, "lspci -Dnn", false},
		{"amd-version.json", amd, "amd-smi version --json", false},
		{"amd-list.json", amd, "amd-smi list --json", true},
		{"amd-static-2of8.json", twoLeft, "amd-smi static --json", true},
		{"amd-static-2of8-user.txt", twoLeft, "amd-smi static --json", false},
		{"amd-static-2of8-bare.json", bare, "amd-smi static --asic --vram --json", true},
		{"amd-lspci.txt", amd, "lspci -Dnn", false},
	} {
		t.Run(c.file, func(t *testing.T) {
			got, errs, code := call(c.hardware, c.line, c.privileged)
			if code != 0 || errs != "" {
				t.Fatalf("%s: exit status %d, stderr %q", c.line, code, errs)
			}
			file := filepath.Join("testdata", c.file)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs from %s:\n%s", c.line, file, got)
			}
		})
	}
}

func TestFaultsAndRefusals(t *testing.T) {
	nvidia, amd := New("h100x8", "h"), New("mi300x8", "h")
	noDriver := func(h Hardware) Hardware { h.DriverLoaded = false; return h }
	lost := func(h Hardware) Hardware { h.Lost = []int{3}; return h }
	for _, c := range []struct {
		name     string
		hardware Hardware
		line     string
		code     int
		out, err string // parts of what is printed
	}{
		{"no driver", noDriver(nvidia), "nvidia-smi -L", 9, "couldn't communicate with the NVIDIA driver", ""},
		{"no driver, lspci works", noDriver(nvidia), "lspci -n -d 10de:2330", 0, "19:00.0 0302: 10de:2330 (rev a1)\n", ""},
		{"lost", lost(nvidia), "nvidia-smi --query-gpu=name --format=csv", 15, "GPU3: 0000:5D:00.0: Unknown Error", ""},
		{"lost, table", lost(nvidia), "nvidia-smi", 15, "GPU3", ""},
		{"lost, asked for", lost(nvidia), "nvidia-smi -i 3", 15, "GPU3", ""},
		{"lost, another", lost(nvidia), "nvidia-smi -i 4 --query-gpu=index --format=csv,noheader", 0, "4\n", ""},
		{"lost, list", lost(nvidia), "nvidia-smi -L", 0, "GPU 4: ", ""},
		{"lost, lspci", lost(nvidia), "lspci -d 10de:2330", 0, "5d:00.0 3D controller: NVIDIA Corporation GH100[H100 SXM5 80GB] (rev ff)", ""},
		{"by address", nvidia, "nvidia-smi -i 0000:5d:00.0 --query-gpu=index --format=csv,noheader", 0, "3\n", ""},
		{"separate value", nvidia, "nvidia-smi -i 1 --query-gpu gpu_name --format csv", 0, "gpu_name\nNVIDIA H100 80GB HBM3\n", ""},
		{"no such GPU", nvidia, "nvidia-smi -i 9", 6, "No devices were found", ""},
		{"bad field", nvidia, "nvidia-smi --query-gpu=colour --format=csv", 2, `Field "colour" is not a valid field`, ""},
		{"no format", nvidia, "nvidia-smi --query-gpu=name", 2, `"--format=csv" is missing`, ""},
		{"bad option", nvidia, "nvidia-smi --frobnicate", 2, "Invalid combination", ""},
		{"no processes", nvidia, "nvidia-smi --query-compute-apps=pid,used_memory --format=csv", 0, "pid, used_memory [MiB]\n", ""},
		{"plain lspci", amd, "lspci", 0, "1b:00.0 Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Device 74a1\n", ""},
		{"bad lspci option", amd, "lspci -x", 1, "", "Usage: lspci"},
		{"amdgpu not loaded", noDriver(amd), "amd-smi static --json", 255, "", "amdgpu not found in modules"},
		{"amdgpu not loaded, version", noDriver(amd), "amd-smi version --json", 0, `"amdgpu_version": "N/A"`, "amdgpu not found in modules"},
		{"version, text", amd, "amd-smi version", 0, "ROCm version: 7.2.1 | amdgpu version: 6.16.13", ""},
		{"bad amd option", amd, "amd-smi static --jsno", 2, "", "unrecognized arguments: --jsno"},
		{"wrong vendor", amd, "nvidia-smi -L", 127, "", "has no nvidia-smi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, code := call(c.hardware, c.line, true)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) {
				t.Errorf("%s: exit status %d (want %d)\nstdout %q\nstderr %q", c.line, code, c.code, out, errs)
			}
		})
	}
}

func TestHangAsksTheDriverOnly(t *testing.T) {
	h := New("mi300x8", "h")
	h.HangSeconds = 7
	for tool, want := range map[string]time.Duration{"amd-smi version": 7 * time.Second, "lspci -n": 0} {
		var slept time.Duration
		words := strings.Fields(tool)
		Run(h, Call{Tool: words[0], Args: words[1:], Sleep: func(d time.Duration) { slept += d }})
		if slept != want {
			t.Errorf("%s slept %v, want %v", tool, slept, want)
		}
	}
}

func TestHostsDiffer(t *testing.T) {
	a, _, _ := call(New("h100x8", "a"), "nvidia-smi --query-gpu=uuid,serial --format=csv,noheader", false)
	b, _, _ := call(New("h100x8", "b"), "nvidia-smi --query-gpu=uuid,serial --format=csv,noheader", false)
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(a+b), "\n") {
		if seen[line] {
			t.Errorf("%s twice", line)
		}
		seen[line] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d GPUs on two hosts, want 16", len(seen))
	}
}

// TestStaticIsJSON checks that an answer with the notice before it is JSON from its first brace on.
func TestStaticIsJSON(t *testing.T) {
	out, _, _ := call(New("mi300x8", "h"), "amd-smi static --json", false)
	var v struct {
		GPUs []struct {
			GPU  int               `json:"gpu"`
			ASIC map[string]string `json:"asic"`
		} `json:"gpu_data"`
	}
	if err := json.Unmarshal([]byte(out[strings.IndexByte(out, '{'):]), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.GPUs) != 8 || v.GPUs[7].ASIC["market_name"] != "N/A" {
		t.Errorf("want 8 GPUs with hidden names, got %+v", v.GPUs)
	}
}

func TestLoadSave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hardware.json")
	h := New("h100x8", "h")
	h.Lost = []int{1}
	if err := h.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil || !got.lost(1) || got.lost(0) || got.Host != "h" {
		t.Errorf("loaded %+v, %v", got, err)
	}
	if err := New("gb999", "h").Save(file); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "gb999") {
		t.Errorf("an unknown profile loads: %v", err)
	}
}
