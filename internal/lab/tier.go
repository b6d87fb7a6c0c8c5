package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/userns"
)

// TierVariable names the tier to take instead of the best one.
const TierVariable = "MOAI_LAB_TIER"

// Tier is a way to make hosts. All tiers answer to the same commands.
type Tier struct {
	Name string
	// What says in a few words what a host is made of.
	What string
	// Available returns why this machine cannot have such hosts (a *MissingError), or nil. It changes nothing.
	Available func(context.Context) error
	// Open finds out what is known of a lab of this tier. It changes nothing.
	Open func(Config) (Driver, error)
	// Enter returns what is put before this program to run one of its words where the tier's hosts are, or nothing where that is
	// here. nil: always here.
	Enter func(ctx context.Context, c Config, word string) ([]string, error)
	// Leave takes away that place, from outside, once the lab is down. nil where Enter is.
	Leave func(context.Context, Config) error
}

// Driver is one lab: what can be done with it, whatever its hosts are made of. It need not be up.
type Driver interface {
	// Build prepares what all labs of the tier share and returns where it lies, or an empty string where they share nothing.
	Build(context.Context) (string, error)
	// Up makes the lab what was asked for and returns when every host can be used.
	Up(context.Context, UpOptions) error
	// Down ends everything that the lab started and takes away everything that it made, from any half state.
	Down(context.Context) error
	// Env describes the lab to its users; an error says that it is not up.
	Env() (plan.Env, error)
	// Status says what each host is doing, in the order of the plan.
	Status() ([]HostStatus, error)
	// Power does one of PowerVerbs with every named host.
	Power(ctx context.Context, verb string, hosts []string) error
	// Cut drops packets between every two of the hosts on the networks, or takes that back.
	Cut(ctx context.Context, heal bool, hosts []string, nets []plan.Net) error
	// Snapshot writes down what a host consists of.
	Snapshot(ctx context.Context, host string) (manifest.Manifest, error)
}

// PowerVerbs are what [Driver.Power] takes: kill is a power cut, start powers on again.
var PowerVerbs = []string{"kill", "start", "reboot", "freeze", "thaw"}

// HostStatus is what a host is doing.
type HostStatus struct {
	Host  plan.Host
	State string // on, off or frozen
}

// MissingError says what this machine lacks for a lab. Nothing was changed.
type MissingError struct{ What string }

// Error says what is missing and what to do.
func (e *MissingError) Error() string { return e.What }

// Tiers lists the tiers, best first: the more a host is like a real one, the better.
func Tiers() []Tier { return []Tier{tierN(), tierNR(), tierG()} }

// Refusal is a tier that was not taken, and why.
type Refusal struct {
	Tier Tier
	Why  error
}

// Choice is the tier of a lab.
type Choice struct {
	Tier
	Better []Refusal // the tiers before it
}

// String says which tier it is, and why no better one.
func (c Choice) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tier %s: %s", c.Name, c.What)
	for _, r := range c.Better {
		fmt.Fprintf(&b, "\n  not %s (%s): %v", r.Tier.Name, r.Tier.What, r.Why)
	}
	return b.String()
}

// Choose decides the tier of a lab. A lab that is there keeps its tier; otherwise it is the one that TierVariable names,
// or the first of Tiers that this machine can do. A *MissingError lists why none can be.
func Choose(ctx context.Context, c Config) (Choice, error) {
	recorded := recordedTier(c)
	if recorded == "" && c.place().Inside() {
		recorded = TierNR
	}
	return choose(ctx, Tiers(), recorded, os.Getenv(TierVariable))
}

func choose(ctx context.Context, tiers []Tier, recorded, forced string) (Choice, error) {
	if recorded != "" && forced != "" && recorded != forced {
		return Choice{}, fmt.Errorf("the lab is of tier %s, and %s asks for %s: take it down first", recorded, TierVariable, forced)
	}
	if recorded != "" {
		for _, t := range tiers {
			if t.Name == recorded {
				return Choice{Tier: t}, nil
			}
		}
		return Choice{}, fmt.Errorf("the lab is of tier %q, which is unknown here", recorded)
	}
	var names, why []string
	var refused []Refusal
	for _, t := range tiers {
		names = append(names, t.Name)
		if forced != "" && t.Name != forced {
			continue
		}
		err := t.Available(ctx)
		if err == nil {
			return Choice{Tier: t, Better: refused}, nil
		}
		refused = append(refused, Refusal{Tier: t, Why: err})
		why = append(why, fmt.Sprintf("tier %s (%s): %v", t.Name, t.What, err))
	}
	if len(refused) == 0 {
		return Choice{}, fmt.Errorf("%s=%s is none of %s", TierVariable, forced, strings.Join(names, ", "))
	}
	return Choice{}, &MissingError{"no lab can be made on this machine\n  " + strings.Join(why, "\n  ")}
}

// tierFile holds the tier of a lab from before its first host is made until it is down.
func (c Config) tierFile() string { return filepath.Join(c.Dir, "labs", c.Name, "tier") }

func recordedTier(c Config) string {
	text, err := os.ReadFile(c.tierFile())
	if err == nil {
		return strings.TrimSpace(string(text))
	}
	return ""
}

// Record keeps the lab's tier: commands that follow open the lab as what it is. Down of any tier removes the folder in which
// it lies.
func (c Config) Record(t Tier) error {
	if err := os.MkdirAll(filepath.Dir(c.tierFile()), 0o755); err != nil {
		return fmt.Errorf("state of lab %s: %w", c.Name, err)
	}
	return replace(c.tierFile(), []byte(t.Name+"\n"))
}

// DefaultDir is where labs of this user have their state. Root's and each other user's are apart: neither can change the
// other's.
func DefaultDir() string {
	if uid := os.Geteuid(); uid > 0 {
		return fmt.Sprintf("/var/tmp/moai-lab-%d", uid)
	}
	return "/var/tmp/moai-lab"
}

// Dir is where labs have their state: what MOAI_LAB_DIR names, or DefaultDir.
func Dir() string {
	if d := os.Getenv("MOAI_LAB_DIR"); d != "" {
		return d
	}
	return DefaultDir()
}

// onLinux is what all tiers need.
func onLinux() error {
	if runtime.GOOS != "linux" {
		return &MissingError{fmt.Sprintf("the lab needs Linux; this is %s", runtime.GOOS)}
	}
	return nil
}

// Main runs what this program was started as, if that is a part of a lab. Programs that make labs, and their tests, call it
// before anything else.
func Main(args []string) { userns.Main(args) }
