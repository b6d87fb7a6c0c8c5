package quantity

import (
	"context"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"256MiB": 256 << 20, "32 GiB": 32 << 30, "1.5KiB": 1536, "0B": 0, "2TB": 2e12, "0.1kB": 100} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "256", "MiB", "1.MiB", ".5MiB", "1..5MiB", "-1MiB", "1.5B", "0.3KiB", "256mib", "256 M", "99999999999TiB", "1e3MiB", "１MiB"} {
		if n, err := ParseSize(s); err == nil {
			t.Errorf("%q is read as %d bytes", s, n)
		}
	}
}

func TestFormatIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<60).Draw(t, "n")
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Fatalf("%d is written %q and read as %d, %v", n, FormatSize(n), got, err)
		}
	})
}

func TestSemanticEquality(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	size := func(s string) Size { return Size{StringValue: basetypes.NewStringValue(s)} }
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1GiB", "1024MiB", true},
		{"1GiB", "1GB", false},
		{"1GiB", "broken", false},
	} {
		got, diags := size(c.a).StringSemanticEquals(ctx, size(c.b))
		if diags.HasError() || got != c.want {
			t.Errorf("%q and %q: equal is %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if size("1GiB").Equal(size("1024MiB")) {
		t.Error("different spellings are equal")
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	for s, bad := range map[string]bool{"256MiB": false, "256": true} {
		var resp xattr.ValidateAttributeResponse
		Size{StringValue: basetypes.NewStringValue(s)}.ValidateAttribute(context.Background(), xattr.ValidateAttributeRequest{Path: path.Root("memory")}, &resp)
		if resp.Diagnostics.HasError() != bad {
			t.Errorf("%q: %v", s, resp.Diagnostics)
		}
	}
}

func TestFromTerraform(t *testing.T) {
	t.Parallel()
	v, err := SizeType{}.ValueFromTerraform(context.Background(), tftypes.NewValue(tftypes.String, "4MiB"))
	if err != nil {
		t.Fatal(err)
	}
	s, ok := v.(Size)
	if !ok {
		t.Fatalf("got a %T", v)
	}
	if n, err := s.Amount(); err != nil || n != 4<<20 {
		t.Errorf("got %d, %v", n, err)
	}
	u, err := SizeType{}.ValueFromTerraform(context.Background(), tftypes.NewValue(tftypes.String, tftypes.UnknownValue))
	if err != nil || !u.IsUnknown() {
		t.Errorf("unknown is read as %v, %v", u, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"256MiB", "1.5GiB", "32 kB", "", "9999999999999999999TB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is read as %d", s, n)
		}
		if again, err := ParseSize(FormatSize(n)); err != nil || again != n {
			t.Fatalf("%q: %d is written %q and read as %d, %v", s, n, FormatSize(n), again, err)
		}
	})
}
