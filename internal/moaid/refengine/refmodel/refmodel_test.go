package refmodel

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
)

func mustPrint(t *testing.T, name string, seed uint64, block int) kvcache.Fingerprint {
	t.Helper()
	m, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Fingerprint(seed, formatWith(block))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPresetsAreConsistent(t *testing.T) {
	for _, name := range Names() {
		m, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		c := m.Config
		if len(c.Windows) != c.Layers || c.Heads%c.KVHeads != 0 || c.HeadDim%8 != 0 {
			t.Errorf("%s: %+v does not fit together", name, c)
		}
		if (m.Weights == Reciting) != (len(c.Lags) == c.Layers) {
			t.Errorf("%s: %d lags", name, len(c.Lags))
		}
		for l, lag := range c.Lags {
			if w := c.Windows[l]; w != 0 && lag >= w {
				t.Errorf("%s: layer %d cannot see %d back in a window of %d", name, l, lag, w)
			}
		}
		f := mustPrint(t, name, DefaultSeed, DefaultFormat().BlockSize)
		if c.Latent.Dim > 0 {
			if len(f.Groups) != 1 || f.Groups[0].Kind != kvcache.GroupLatent || c.KVHeads != 1 || c.Latent.Dim%8 != 0 {
				t.Errorf("%s: groups %+v", name, f.Groups)
			}
			continue
		}
		if len(f.Groups) != 2 || f.Groups[0].Kind != kvcache.GroupFull || len(f.Groups[0].Layers) != len(f.Groups[1].Layers) {
			t.Errorf("%s: groups %+v", name, f.Groups)
		}
	}
}

func TestLagIsTheSumOfTheLayers(t *testing.T) {
	m, err := Lookup("moai/reciting")
	if err != nil {
		t.Fatal(err)
	}
	if m.Lag() != 887 {
		t.Errorf("lag is %d", m.Lag())
	}
}

func TestFingerprintsTellApartWhatMayNotMeet(t *testing.T) {
	base := mustPrint(t, "moai/seeded", 1, 64)
	if v := kvcompat.Check(base, mustPrint(t, "moai/seeded", 1, 64), kvcompat.Options{}); !v.Allowed() {
		t.Errorf("equal engines: %v", v.Err())
	}
	for attr, other := range map[string]kvcache.Fingerprint{
		"model.weights":      mustPrint(t, "moai/seeded", 2, 64),
		"storage.block_size": mustPrint(t, "moai/seeded", 1, 32),
		"groups":             mustPrint(t, "moai/seeded-wide", 1, 64),
	} {
		v := kvcompat.Check(base, other, kvcompat.Options{})
		found := false
		for _, name := range cases.Named(v) {
			found = found || name == attr
		}
		if !found {
			t.Errorf("%s: %+v", attr, v)
		}
	}
	if v := kvcompat.Check(base, mustPrint(t, "moai/reciting", 1, 64), kvcompat.Options{}); v.Allowed() {
		t.Error("seeded and reciting weights may meet")
	}
}

func TestLookupNamesWhatExists(t *testing.T) {
	if _, err := Lookup("moai/other"); err == nil {
		t.Error("an unknown model was found")
	}
	m, err := Lookup("moai/reciting")
	if err != nil {
		t.Fatal(err)
	}
	m.Config.Lags[0] = 1
	if again, err := Lookup("moai/reciting"); err != nil || again.Config.Lags[0] == 1 {
		t.Error("a caller can change the presets")
	}
}

func formatWith(block int) Format {
	f := DefaultFormat()
	f.BlockSize = block
	return f
}
