package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/account"
)

// commands are the tools that the lab's program is inside a host, by name. Each returns its exit status.
var commands map[string]func(args []string) int

func init() {
	commands = map[string]func(args []string) int{
		"systemctl": asked("systemctl"), "journalctl": asked("journalctl"), "systemd-run": asked("systemd-run"),
		"sudo": sudo, "runuser": runuser, "getent": getent, "ip": ipTool, "chown": chownTool, "id": idTool, "stat": statTool,
	}
	for _, name := range account.Commands {
		commands[name] = func(args []string) int { return ask(Request{Do: "account", Args: append([]string{name}, args...)}) }
	}
}

// tools lists the names that a host has in /usr/local/bin.
func tools() []string { return slices.Sorted(maps.Keys(commands)) }

func asked(what string) func([]string) int {
	return func(args []string) int { return ask(Request{Do: what, Args: args}) }
}

// ask has the server do something and prints what it says.
func ask(q Request) int {
	r, err := Ask(context.Background(), ControlPath, q)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: the lab's supervisor does not answer: %v\n", q.Do, err)
		return 1
	}
	_, _ = os.Stdout.WriteString(r.Stdout)
	_, _ = os.Stderr.WriteString(r.Stderr)
	return r.Exit
}

// lookPath finds a program for a person who logged in.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	return exec.LookPath(name)
}

// become replaces this process.
func become(name string, argv []string) int {
	path, err := lookPath(argv[0])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s: command not found\n", name, argv[0])
		return 1
	}
	err = syscall.Exec(path, argv, os.Environ())
	fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, path, err)
	return 126
}

// sudo runs a command as root, without a question: everybody is root to the kernel.
func sudo(args []string) int {
	target := "root"
	i := 0
options:
	for ; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			i++
			break options
		case a == "-u" || a == "-p" || a == "-g":
			if a == "-u" && i+1 < len(args) {
				target = args[i+1]
			}
			i++
		case strings.HasPrefix(a, "-"):
		default:
			break options
		}
	}
	if i >= len(args) {
		return 0 // sudo -v and the like
	}
	return as("sudo", target, args[i:])
}

// runuser is "runuser -u USER -- COMMAND".
func runuser(args []string) int {
	if len(args) < 3 || args[0] != "-u" {
		fmt.Fprintln(os.Stderr, "runuser: the lab's takes -u USER -- COMMAND only")
		return 1
	}
	rest := args[2:]
	if rest[0] == "--" {
		rest = rest[1:]
	}
	return as("runuser", args[1], rest)
}

func as(name, target string, argv []string) int {
	db, err := readAccounts()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	u, ok := db.User(target)
	if !ok || len(argv) == 0 {
		fmt.Fprintf(os.Stderr, "%s: user %s does not exist\n", name, target)
		return 1
	}
	for key, value := range map[string]string{"USER": u.Name, "LOGNAME": u.Name, "HOME": u.Home, "PATH": defaultPath} {
		_ = os.Setenv(key, value) // the keys are good
	}
	return become(name, argv)
}

// getent answers for passwd and group from the host's own files.
func getent(args []string) int {
	db, err := readAccounts()
	if err != nil || len(args) < 1 {
		return 1
	}
	status := 0
	for _, key := range args[1:] {
		line := ""
		switch args[0] {
		case "passwd":
			if u, ok := db.User(key); ok {
				line = u.Line()
			}
		case "group":
			if g, ok := db.Group(key); ok {
				line = g.Line()
			}
		default:
			return 1
		}
		if line == "" {
			status = 2
			continue
		}
		fmt.Println(line)
	}
	return status
}

// ipTool is "ip -j addr", for machines without iproute2.
func ipTool([]string) int {
	type addr struct {
		Family string `json:"family"`
		Local  string `json:"local"`
		Prefix int    `json:"prefixlen"`
		Scope  string `json:"scope"`
	}
	type link struct {
		Name  string   `json:"ifname"`
		Flags []string `json:"flags"`
		MTU   int      `json:"mtu"`
		Type  string   `json:"link_type"`
		Addrs []addr   `json:"addr_info"`
	}
	text, err := os.ReadFile("/usr/local/lib/moai-lab/addresses")
	if err != nil {
		fmt.Fprintln(os.Stderr, "ip:", err)
		return 1
	}
	links := []link{{Name: "lo", Flags: []string{"LOOPBACK", "UP", "LOWER_UP"}, MTU: 65536, Type: "loopback", Addrs: []addr{{"inet", "127.0.0.1", 8, "host"}}}}
	for i, a := range strings.Fields(string(text)) {
		a, _, _ := strings.Cut(a, "/")
		links = append(links, link{Name: fmt.Sprintf("eth%d", i), Flags: []string{"BROADCAST", "MULTICAST", "UP", "LOWER_UP"}, MTU: 1500, Type: "ether",
			Addrs: []addr{{"inet", a, 24, "global"}}})
	}
	if err := json.NewEncoder(os.Stdout).Encode(links); err != nil {
		return 1
	}
	return 0
}

// real runs the machine's tool of the same name.
func real(name string, args []string) int {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return become(name, append([]string{path}, args...))
		}
	}
	fmt.Fprintf(os.Stderr, "%s: not found\n", name)
	return 127
}
