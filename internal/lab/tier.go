package lab

import (
	"fmt"
	"os"
	"runtime"
)

// Tier is a way to make hosts. All tiers answer to the same commands.
type Tier string

// TierN makes hosts with systemd-nspawn, as root: real systemd, real sshd, their own addresses.
const TierN Tier = "N"

// MissingError says what this machine lacks for a lab. Nothing was changed.
type MissingError struct{ What string }

// Error says what is missing and what to do.
func (e *MissingError) Error() string { return e.What }

// Detect returns the tier that this machine can do, or a *MissingError.
func Detect() (Tier, error) {
	if runtime.GOOS != "linux" {
		return "", &MissingError{fmt.Sprintf("the lab needs Linux; this is %s", runtime.GOOS)}
	}
	if os.Geteuid() != 0 {
		return "", &MissingError{"the lab needs root (systemd-nspawn, network namespaces, mounts): run it with sudo"}
	}
	return TierN, nil
}
