package transport

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Identity is the key of a daemon or a gateway. It never leaves its host.
type Identity struct {
	Key ed25519.PrivateKey
}

// keyPrefix begins the text form of a public key.
const keyPrefix = "ed25519:"

// NewIdentity makes a new key.
func NewIdentity() (Identity, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Identity{}, fmt.Errorf("make an ed25519 key: %w", err)
	}
	return Identity{Key: key}, nil
}

// LoadOrCreate reads the key at path, or makes one there with mode 0600 if there
// is none. A key that others may read is refused, not repaired: it may already
// have been read.
func LoadOrCreate(path string) (Identity, error) {
	id, err := load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if id, err = NewIdentity(); err != nil {
		return Identity{}, err
	}
	if err := create(path, id); err != nil {
		return Identity{}, fmt.Errorf("store the node key: %w", err)
	}
	// Read back: another process may have been first.
	return load(path)
}

func load(path string) (Identity, error) {
	f, err := os.Open(path)
	if err != nil {
		return Identity{}, fmt.Errorf("read the node key: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return Identity{}, fmt.Errorf("read the node key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Identity{}, fmt.Errorf("the node key %s has mode %04o: others may have read it; remove it (a new one is made, and every pin of it must follow) or set 0600",
			path, info.Mode().Perm())
	}
	buf := make([]byte, 4096)
	n, err := f.Read(buf)
	if err != nil {
		return Identity{}, fmt.Errorf("read the node key %s: %w", path, err)
	}
	block, _ := pem.Decode(buf[:n])
	if block == nil || block.Type != "PRIVATE KEY" {
		return Identity{}, fmt.Errorf("the node key %s is not a PEM private key", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Identity{}, fmt.Errorf("the node key %s is damaged: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return Identity{}, fmt.Errorf("the node key %s is not ed25519", path)
	}
	return Identity{Key: key}, nil
}

// create writes the whole key beside path and links it there, so that neither a
// crash nor a second process leaves half a key or replaces one.
func create(path string, id Identity) (err error) {
	der, err := x509.MarshalPKCS8PrivateKey(id.Key)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".node-key-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Peers will pin the key: it must outlive a loss of power.
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Public is the public half.
func (i Identity) Public() ed25519.PublicKey {
	pub, _ := i.Key.Public().(ed25519.PublicKey)
	return pub
}

// PublicString is the public key as configuration and status write it.
func (i Identity) PublicString() string { return KeyString(i.Public()) }

// KeyString is "ed25519:" and the base64 of the 32 bytes.
func KeyString(pub ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(pub)
}

// ParseKey reads what KeyString wrote.
func ParseKey(s string) (ed25519.PublicKey, error) {
	rest, ok := strings.CutPrefix(s, keyPrefix)
	if !ok {
		return nil, fmt.Errorf("public key %q does not begin with %q", s, keyPrefix)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key %q is not the base64 of %d bytes", s, ed25519.PublicKeySize)
	}
	return b, nil
}

// Certificate wraps the key in a self-signed certificate, since TLS wants one.
// Nothing in it but the key means anything.
func (i Identity) Certificate() (tls.Certificate, error) {
	if len(i.Key) != ed25519.PrivateKeySize {
		return tls.Certificate{}, errors.New("the identity has no key")
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "moai"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no expiry
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, i.Public(), i.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the node's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: i.Key}, nil
}
