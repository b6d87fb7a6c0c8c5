package main

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
)

func TestEngineFlags(t *testing.T) {
	c, _, err := engineFlags([]string{"--name=prefill-0", "--node=h100-0", "--model=moai/seeded", "--block-size=16", "--listen=/run/x/http.sock",
		"--connector=moai", "--engine-socket=/run/moai/engine.sock", "--on-transfer-failure=fail", "--weights-seed=2", "--claim-fingerprint-of=1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "prefill-0" || c.Node != "h100-0" || c.Model != "moai/seeded" || c.BlockSize != 16 || c.HTTPSocket != "/run/x/http.sock" ||
		c.DaemonSocket != "/run/moai/engine.sock" || !c.FailTransfers || c.Seed != 2 || c.ClaimSeed != 1 || c.Role != refengine.RoleBoth {
		t.Errorf("%+v", c)
	}
	c, _, err = engineFlags([]string{"--name=a", "--http-socket=/x", "--role=decode", "--no-kv-connector", "--weights-seed=0"})
	if err != nil || c.DaemonSocket != "" || c.Seed != 0 || c.ClaimSeed != 0 || c.Role != refengine.RoleDecode {
		t.Errorf("%+v, %v", c, err)
	}
	for _, wrong := range [][]string{
		{"--name=a"}, {"--name=a", "--listen=/x", "extra"}, {"--name=a", "--listen=/x", "--connector=nixl"},
		{"--name=a", "--listen=/x", "--on-transfer-failure=ignore"}, {"--name=a", "--listen=/x", "--claim-fingerprint-of=me"},
	} {
		if _, _, err := engineFlags(wrong); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
