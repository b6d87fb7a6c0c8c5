package quantity

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// unit is a suffix and how many base units it stands for.
type unit struct {
	suffix string
	factor int64
}

// Largest first: Format takes the first that divides, and no suffix is the end
// of another one once the number's digits are cut off.
var sizeUnits = []unit{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
}

// maxDigits bounds each side of the decimal point; every int64 has at most as many.
const maxDigits = 19

// ParseSize gives the bytes of a size such as "256MiB", "1.5GiB" or "32GB".
// The amount must be a whole number of bytes.
func ParseSize(s string) (int64, error) {
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == '.') {
		end++
	}
	number, suffix := s[:end], strings.TrimSpace(s[end:])
	bad := func(err error) error {
		return fmt.Errorf(`%q is not a size (%w): write a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as "256MiB"`, s, err)
	}
	if number == "" {
		return 0, bad(errors.New("it begins with no number"))
	}
	if suffix == "" {
		return 0, bad(errors.New("it has no unit"))
	}
	for _, u := range sizeUnits {
		if u.suffix != suffix {
			continue
		}
		n, err := scale(number, u.factor)
		if err != nil {
			return 0, bad(err)
		}
		return n, nil
	}
	return 0, bad(fmt.Errorf("%q is no known unit", suffix))
}

// FormatSize writes bytes with the largest binary unit that divides them.
func FormatSize(n int64) string {
	for _, u := range sizeUnits {
		if strings.Contains(u.suffix, "i") && n != 0 && n%u.factor == 0 {
			return fmt.Sprintf("%d%s", n/u.factor, u.suffix)
		}
	}
	return fmt.Sprintf("%dB", n)
}

// scale multiplies a decimal number exactly: no float, since 0.1 has none.
func scale(number string, factor int64) (int64, error) {
	whole, frac, point := strings.Cut(number, ".")
	switch {
	case whole == "" || point && frac == "" || strings.Contains(frac, "."):
		return 0, fmt.Errorf("%q is no decimal number", number)
	case len(whole) > maxDigits || len(frac) > maxDigits:
		return 0, errors.New("the number has too many digits")
	}
	n, ok := new(big.Int).SetString(whole+frac, 10)
	if !ok {
		return 0, fmt.Errorf("%q is no decimal number", number)
	}
	n.Mul(n, big.NewInt(factor))
	n, rest := n.QuoRem(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(frac))), nil), new(big.Int))
	if rest.Sign() != 0 {
		return 0, errors.New("it is no whole number of its smallest unit")
	}
	if !n.IsInt64() || n.Int64() > math.MaxInt64/2 {
		return 0, errors.New("it is too large")
	}
	return n.Int64(), nil
}
