package quantity

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
)

// NewSize is the size of n bytes.
func NewSize(n int64) Size { return Size{StringValue: basetypes.NewStringValue(FormatSize(n))} }

// Size is a number of bytes with a unit.
type Size struct {
	basetypes.StringValue
}

var (
	_ basetypes.StringValuableWithSemanticEquals = Size{}
	_ xattr.ValidateableAttribute                = Size{}
	_ basetypes.StringTypable                    = SizeType{}
)

// Amount is the size in bytes, 0 for null and unknown.
func (v Size) Amount() (int64, error) {
	if v.IsNull() || v.IsUnknown() {
		return 0, nil
	}
	return ParseSize(v.ValueString())
}

// Type implements attr.Value.
func (v Size) Type(context.Context) attr.Type { return SizeType{} }

// Equal implements attr.Value: the same spelling.
func (v Size) Equal(o attr.Value) bool {
	other, ok := o.(Size)
	return ok && v.StringValue.Equal(other.StringValue)
}

// StringSemanticEquals says whether two spellings mean one amount.
func (v Size) StringSemanticEquals(_ context.Context, o basetypes.StringValuable) (bool, diag.Diagnostics) {
	other, ok := o.(Size)
	if !ok {
		return false, nil
	}
	a, errA := v.Amount()
	b, errB := other.Amount()
	return errA == nil && errB == nil && a == b, nil
}

// ValidateAttribute refuses what cannot be read.
func (v Size) ValidateAttribute(_ context.Context, req xattr.ValidateAttributeRequest, resp *xattr.ValidateAttributeResponse) {
	if _, err := v.Amount(); err != nil {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid quantity", err.Error()+"."))
	}
}

// SizeType is the attribute type of [Size].
type SizeType struct {
	basetypes.StringType
}

// Equal implements attr.Type.
func (t SizeType) Equal(o attr.Type) bool {
	_, ok := o.(SizeType)
	return ok
}

func (SizeType) String() string { return "quantity.SizeType" }

// ValueType implements attr.Type.
func (t SizeType) ValueType(context.Context) attr.Value { return Size{} }

// ValueFromString implements basetypes.StringTypable.
func (t SizeType) ValueFromString(_ context.Context, in basetypes.StringValue) (basetypes.StringValuable, diag.Diagnostics) {
	return Size{StringValue: in}, nil
}

// ValueFromTerraform implements attr.Type.
func (t SizeType) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	v, err := t.StringType.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("reading a size: %w", err)
	}
	s, ok := v.(basetypes.StringValue)
	if !ok {
		return nil, fmt.Errorf("a size is a string, not %T", v)
	}
	return Size{StringValue: s}, nil
}
