package main

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

func TestEngineFlags(t *testing.T) {
	c, _, err := engineFlags([]string{"--name=prefill-0", "--node=h100-0", "--model=moai/seeded", "--block-size=16", "--listen=/run/x/http.sock",
		"--connector=moai", "--engine-socket=/run/moai/engine.sock", "--on-transfer-failure=fail", "--weights-seed=2", "--claim-fingerprint-of=1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "prefill-0" || c.Node != "h100-0" || c.Model != "moai/seeded" || c.Format.BlockSize != 16 || c.HTTPSocket != "/run/x/http.sock" ||
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

func TestFormatFlags(t *testing.T) {
	h100, err := refmodel.LookupFormat("h100")
	if err != nil {
		t.Fatal(err)
	}
	with := func(f refmodel.Format, change func(*refmodel.Format)) refmodel.Format { change(&f); return f }
	for _, c := range []struct {
		args string
		want refmodel.Format
		says string // of an error
	}{
		{"", refmodel.DefaultFormat(), ""},
		{"--preset=h100", h100, ""},
		{"--block-size=32 --preset=h100 --tensor-parallel=4 --kernel-block=8 --kv-padding=32 --kv-scales=head --kv-order=LBHNC --kv-packing=x_packed",
			with(h100, func(f *refmodel.Format) {
				f.BlockSize, f.Tensor, f.KernelBlock, f.Padding, f.Scales, f.Order, f.Packing = 32, 4, 8, 32, "head", "LBHNC", "x_packed"
			}), ""},
		{"--preset=h100 --kv-dtype=fp16", with(h100, func(f *refmodel.Format) { f.DType, f.Scales = "fp16", "none" }), ""},
		{"--preset=mi300x --kv-dtype=fp8", with(h100, func(f *refmodel.Format) { f.DType, f.BlockSize, f.Order = "fp8_e4m3fnuz", 64, "LBHNC" }), ""},
		{"--kv-dtype=auto", refmodel.DefaultFormat(), ""},
		{"--preset=b200", h100, "--preset"},
		{"--kv-dtype=fp4", h100, "--kv-dtype"},
		{"--kv-scales=token", h100, "--kv-scales"},
		{"--kv-scales=tensor", h100, "--kv-scales"},
		{"--kv-order=NHD", h100, "--kv-order"},
		{"--kv-packing=boxes", h100, "--kv-packing"},
		{"--block-size=0", h100, "--block-size"},
		{"--kernel-block=24", h100, "--kernel-block"},
		{"--kv-padding=8", h100, "--kv-padding"},
		{"--tensor-parallel=0", h100, "--tensor-parallel"},
		{"--tensor-parallel=3", h100, "--tensor-parallel"},
		{"--preset=h100 --kv-packing=x_packed", h100, "--kv-packing"},
		{"--preset=h100 --kv-dtype=bf16 --kv-scales=head", h100, "--kv-scales"},
		{"--model=gpt", h100, "--model"},
		{"--data-parallel=0", h100, "--data-parallel"},
	} {
		got, _, err := engineFlags(append([]string{"--name=a", "--listen=/x"}, strings.Fields(c.args)...))
		switch {
		case c.says == "" && (err != nil || got.Format != c.want):
			t.Errorf("%s: %+v, %v", c.args, got.Format, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", c.args, err)
		}
	}
}
