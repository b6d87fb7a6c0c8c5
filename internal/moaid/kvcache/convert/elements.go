package convert

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
)

// elements gives the recoder of two storages' elements, nil for opaque ones.
func elements(src, dst *kvcache.Storage) (*element.Recoder, error) {
	if src.DType.Opaque() || dst.DType.Opaque() {
		if src.DType != dst.DType {
			return nil, fmt.Errorf("elements of %s cannot become %s", src.DType, dst.DType)
		}
		return nil, scalesDiffer(src, dst)
	}
	if src.DType != dst.DType && (src.DType == kvcache.FP8E5M2 || dst.DType == kvcache.FP8E5M2) {
		return nil, fmt.Errorf("elements of %s are not converted to %s", src.DType, dst.DType)
	}
	if err := scalesDiffer(src, dst); err != nil {
		return nil, err
	}
	return element.NewRecoder(src.DType, dst.DType, Factor(src.Scales, dst.Scales))
}

func scalesDiffer(src, dst *kvcache.Storage) error {
	s, d := src.Scales, dst.Scales
	switch {
	case s.Kind == kvcache.ScaleToken || d.Kind == kvcache.ScaleToken:
		return fmt.Errorf("scales of kind %s are not in the pages", kvcache.ScaleToken)
	case s.Kind != d.Kind:
		return fmt.Errorf("scales of kind %s are not of kind %s, and their factors are not known", s.Kind, d.Kind)
	case s.Hash != d.Hash:
		return fmt.Errorf("scales %.12s are not %.12s, and their factors are not known", s.Hash, d.Hash)
	}
	return nil
}

// Factor is what elements are multiplied by when scales of equal kind and hash
// become others: the destination's scales may be twice or half the source's.
func Factor(src, dst kvcache.Scales) float32 {
	switch {
	case src.Doubled && !dst.Doubled:
		return 2
	case !src.Doubled && dst.Doubled:
		return 0.5
	}
	return 1
}
