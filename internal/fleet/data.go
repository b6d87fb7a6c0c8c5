package fleet

import "fmt"

// FromProviderData is what the provider handed to Configure; nil while the provider is not configured, as in validation.
func FromProviderData(data any) (*Fleet, error) {
	if data == nil {
		return nil, nil //nolint:nilnil // documented
	}
	f, ok := data.(*Fleet)
	if !ok {
		return nil, fmt.Errorf("provider data is %T, not *fleet.Fleet: this is a bug in the provider", data)
	}
	return f, nil
}
