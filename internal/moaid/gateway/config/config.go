// Package config is the configuration file of the gateway (`moaid router
// --config FILE`): what the provider renders and the gateway reads. It is pure.
package config

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxBytes bounds the file.
const MaxBytes = 1 << 20

// RouterConfig is the whole file.
type RouterConfig struct {
	Name     string   `json:"name"`     // of the router; 1 to 63 of a-z 0-9 -
	Listen   string   `json:"listen"`   // "address:port" for clients, plain HTTP
	KeyFile  string   `json:"key_file"` // absolute path of the router's own ed25519 key; made with mode 0600 if absent
	Pairs    []Pair   `json:"pairs"`    // at least one; pairs of the same model share its requests
	Timeouts Timeouts `json:"timeouts,omitzero"`
}

// Pair is a pool of prefill and one of decode engines that may exchange KV.
type Pair struct {
	Name    string   `json:"name"`
	Model   string   `json:"model"`   // served name: what clients write as "model"
	Prefill []Engine `json:"prefill"` // may be empty: then decode does everything
	Decode  []Engine `json:"decode"`  // at least one
}

// Engine says where an engine is: behind the KV daemon of its node.
type Engine struct {
	Node      string   `json:"node"`
	Engine    string   `json:"engine"`
	Addresses []string `json:"addresses"`  // "host:port" of the node's daemon, tried in order
	PublicKey string   `json:"public_key"` // of the node's daemon: "ed25519:" and base64 of 32 bytes
}

// Timeouts of the router; zero means the default.
type Timeouts struct {
	Dial       Duration `json:"dial,omitzero"`        // connect and TLS to one address; 3s
	Prefill    Duration `json:"prefill,omitzero"`     // the whole prefill request, then decode does everything; 10m
	FirstByte  Duration `json:"first_byte,omitzero"`  // decode's response header, waiting for KV included; 10m
	StreamIdle Duration `json:"stream_idle,omitzero"` // silence of a decode stream; 5m
	Client     Duration `json:"client,omitzero"`      // a client that neither sends its request nor reads its answer; 60s
	Drain      Duration `json:"drain,omitzero"`       // for running requests at shutdown; 30s
}

// WithDefaults fills what is zero.
func (t Timeouts) WithDefaults() Timeouts {
	for _, d := range []struct {
		field *Duration
		value time.Duration
	}{
		{&t.Dial, 3 * time.Second},
		{&t.Prefill, 10 * time.Minute},
		{&t.FirstByte, 10 * time.Minute},
		{&t.StreamIdle, 5 * time.Minute},
		{&t.Client, time.Minute},
		{&t.Drain, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = Duration(d.value)
		}
	}
	return t
}

// Duration is written as a string: "1m30s".
type Duration time.Duration

// MarshalText writes it as time.Duration does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads, if it is not negative.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("duration %s is negative", b)
	}
	*d = Duration(v)
	return nil
}

// Parse reads and validates a file. Unknown fields are refused: they would be
// settings that silently do nothing.
func Parse(b []byte) (*RouterConfig, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("the configuration is longer than %d bytes", MaxBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	c := new(RouterConfig)
	if err := dec.Decode(c); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is data after the configuration")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Render writes the file for a valid configuration; equal configurations are
// equal bytes.
func (c *RouterConfig) Render() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Validate says what is wrong, all of it, each with the path of the field.
func (c *RouterConfig) Validate() error {
	v := &validator{nodes: map[string]Engine{}}
	v.name("name", c.Name)
	v.address("listen", c.Listen, true)
	if !path.IsAbs(c.KeyFile) || path.Clean(c.KeyFile) != c.KeyFile {
		v.bad("key_file", "%q is no clean absolute path", c.KeyFile)
	}
	if len(c.Pairs) == 0 {
		v.bad("pairs", "there is none: the router would have no model to serve")
	}
	names := map[string]bool{}
	for i, p := range c.Pairs {
		at := fmt.Sprintf("pairs[%d]", i)
		v.name(at+".name", p.Name)
		if names[p.Name] {
			v.bad(at+".name", "%q is there twice", p.Name)
		}
		names[p.Name] = true
		if p.Model == "" || len(p.Model) > 256 {
			v.bad(at+".model", "it must have 1 to 256 bytes, not %d", len(p.Model))
		}
		if len(p.Decode) == 0 {
			v.bad(at+".decode", "there is none: nothing could answer")
		}
		v.engines(at+".prefill", p.Prefill)
		v.engines(at+".decode", p.Decode)
	}
	return errors.Join(v.errs...)
}

type validator struct {
	errs  []error
	nodes map[string]Engine // the first mention of each node
}

func (v *validator) bad(at, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

func (v *validator) name(at, s string) {
	if !nameRE.MatchString(s) {
		v.bad(at, "%q must be 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit", s)
	}
}

// address checks "host:port"; a listen address may leave the host out.
func (v *validator) address(at, s string, listen bool) {
	host, port, err := net.SplitHostPort(s)
	switch n, perr := strconv.Atoi(port); {
	case err != nil:
		v.bad(at, "%q is no host:port: %v", s, err)
	case perr != nil || n < 0 || n > 65535 || n == 0 && !listen:
		v.bad(at, "%q has no port from 1 to 65535", s)
	case host == "" && !listen:
		v.bad(at, "%q has no host", s)
	case strings.ContainsAny(host, " \t\r\n/"):
		v.bad(at, "%q has no usable host", s)
	}
}

func (v *validator) engines(at string, es []Engine) {
	seen := map[string]bool{}
	for i, e := range es {
		at := fmt.Sprintf("%s[%d]", at, i)
		v.name(at+".node", e.Node)
		v.name(at+".engine", e.Engine)
		if id := e.Node + "/" + e.Engine; seen[id] {
			v.bad(at, "%s is there twice", id)
		} else {
			seen[id] = true
		}
		if len(e.Addresses) == 0 {
			v.bad(at+".addresses", "there is none")
		}
		for j, a := range e.Addresses {
			v.address(fmt.Sprintf("%s.addresses[%d]", at, j), a, false)
		}
		if _, err := ParseKey(e.PublicKey); err != nil {
			v.bad(at+".public_key", "%v", err)
		}
		first, known := v.nodes[e.Node]
		if !known {
			v.nodes[e.Node] = e
		} else if first.PublicKey != e.PublicKey || !slices.Equal(first.Addresses, e.Addresses) {
			v.bad(at, "node %s has another key or other addresses elsewhere in this file", e.Node)
		}
	}
}

const keyPrefix = "ed25519:"

// KeyString writes a public key as this file and the management API do.
func KeyString(k ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(k)
}

// ParseKey reads a public key.
func ParseKey(s string) (ed25519.PublicKey, error) {
	rest, ok := strings.CutPrefix(s, keyPrefix)
	if !ok {
		return nil, fmt.Errorf("%q does not begin with %s", s, keyPrefix)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q is not the base64 of %d bytes", s, ed25519.PublicKeySize)
	}
	return b, nil
}
