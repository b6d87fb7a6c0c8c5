package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// Marker says to whom a host belongs. It holds no secret.
type Marker struct {
	Fleet       string `json:"fleet"`
	Resource    string `json:"resource"`
	Writer      string `json:"writer"`
	MoaidSHA256 string `json:"moaid_sha256"`
	// Created are the users and groups that were not there before: only these go with the node.
	Created []Account `json:"created,omitempty"`
}

// ReadMarker returns the host's marker, or nil when the host provably has none.
func (h *Host) ReadMarker(ctx context.Context) (*Marker, error) {
	b, err := h.ReadFile(ctx, MarkerPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m Marker
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s: ownership marker %s cannot be read, so nothing on this host is touched; remove it by hand if it is damaged: %w", h, MarkerPath, err)
	}
	return &m, nil
}

// WriteMarker writes the host's marker.
func (h *Host) WriteMarker(ctx context.Context, m Marker) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("ownership marker: %w", err)
	}
	_, err = h.PutFile(ctx, File{Path: MarkerPath, Content: append(b, '\n')})
	return err
}
