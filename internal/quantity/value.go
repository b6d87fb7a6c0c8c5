package quantity

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
)

// dimension is what a quantity measures. It is a type parameter and not a field
// so that the zero value of a quantity knows how to read itself.
type dimension interface {
	name() string
	parse(string) (int64, error)
	format(int64) string
}

type (
	bytesDimension    struct{}
	bitrateDimension  struct{}
	durationDimension struct{}
)

func (bytesDimension) name() string                    { return "Size" }
func (bytesDimension) parse(s string) (int64, error)   { return ParseSize(s) }
func (bytesDimension) format(n int64) string           { return FormatSize(n) }
func (bitrateDimension) name() string                  { return "Rate" }
func (bitrateDimension) parse(s string) (int64, error) { return ParseRate(s) }
func (bitrateDimension) format(n int64) string         { return FormatRate(n) }
func (durationDimension) name() string                 { return "Duration" }
func (durationDimension) parse(s string) (int64, error) {
	return ParseDuration(s)
}
func (durationDimension) format(n int64) string { return FormatDuration(n) }

type (
	// Size is a number of bytes with a unit.
	Size = Value[bytesDimension]
	// Rate is a number of bits a second with a unit.
	Rate = Value[bitrateDimension]
	// Duration is a time span with units.
	Duration = Value[durationDimension]

	// SizeType is the attribute type of Size.
	SizeType = Type[bytesDimension]
	// RateType is the attribute type of Rate.
	RateType = Type[bitrateDimension]
	// DurationType is the attribute type of Duration.
	DurationType = Type[durationDimension]
)

// NewSize is the size of n bytes.
func NewSize(n int64) Size { return Size{basetypes.NewStringValue(FormatSize(n))} }

// NewRate is the rate of n bits a second.
func NewRate(n int64) Rate { return Rate{basetypes.NewStringValue(FormatRate(n))} }

// NewDuration is the duration d.
func NewDuration(d time.Duration) Duration {
	return Duration{basetypes.NewStringValue(FormatDuration(int64(d)))}
}

// Null is the null value of a dimension.
func Null[D dimension]() Value[D] { return Value[D]{basetypes.NewStringNull()} }

// Value is a quantity of dimension D.
type Value[D dimension] struct {
	basetypes.StringValue
}

var (
	_ basetypes.StringValuableWithSemanticEquals = Size{}
	_ xattr.ValidateableAttribute                = Size{}
	_ basetypes.StringTypable                    = SizeType{}
)

// Amount is the quantity in its base unit: bytes, bits a second or nanoseconds.
// It is 0 for null and unknown.
func (v Value[D]) Amount() (int64, error) {
	if v.IsNull() || v.IsUnknown() {
		return 0, nil
	}
	var d D
	return d.parse(v.ValueString())
}

// Type implements attr.Value.
func (v Value[D]) Type(context.Context) attr.Type { return Type[D]{} }

// Equal implements attr.Value: the same spelling.
func (v Value[D]) Equal(o attr.Value) bool {
	other, ok := o.(Value[D])
	return ok && v.StringValue.Equal(other.StringValue)
}

// StringSemanticEquals says whether two spellings mean one amount.
func (v Value[D]) StringSemanticEquals(_ context.Context, o basetypes.StringValuable) (bool, diag.Diagnostics) {
	other, ok := o.(Value[D])
	if !ok {
		return false, nil
	}
	a, errA := v.Amount()
	b, errB := other.Amount()
	return errA == nil && errB == nil && a == b, nil
}

// ValidateAttribute refuses what cannot be read.
func (v Value[D]) ValidateAttribute(_ context.Context, req xattr.ValidateAttributeRequest, resp *xattr.ValidateAttributeResponse) {
	if _, err := v.Amount(); err != nil {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid quantity", err.Error()+"."))
	}
}

// Type is the attribute type of quantities of dimension D.
type Type[D dimension] struct {
	basetypes.StringType
}

// Equal implements attr.Type.
func (t Type[D]) Equal(o attr.Type) bool {
	_, ok := o.(Type[D])
	return ok
}

func (t Type[D]) String() string {
	var d D
	return "quantity." + d.name() + "Type"
}

// ValueType implements attr.Type.
func (t Type[D]) ValueType(context.Context) attr.Value { return Value[D]{} }

// ValueFromString implements basetypes.StringTypable.
func (t Type[D]) ValueFromString(_ context.Context, in basetypes.StringValue) (basetypes.StringValuable, diag.Diagnostics) {
	return Value[D]{in}, nil
}

// ValueFromTerraform implements attr.Type.
func (t Type[D]) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	v, err := t.StringType.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("reading a quantity: %w", err)
	}
	s, ok := v.(basetypes.StringValue)
	if !ok {
		return nil, fmt.Errorf("a quantity is a string, not %T", v)
	}
	return Value[D]{s}, nil
}
