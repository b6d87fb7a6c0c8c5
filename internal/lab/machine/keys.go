package machine

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Keys are the two key pairs of a host: the one its user logs in with and the one it shows. No two hosts share any.
type Keys struct {
	User     ssh.Signer
	UserFile string // the user's private key
	Host     []byte // the host's private key, in OpenSSH's format
	HostKey  string // the public part, "ssh-ed25519 AAAA…"
}

// LoadKeys reads the keys of a host from files that start with prefix, and makes what is not there. name is the
// comment that the keys carry.
func LoadKeys(prefix, name string) (Keys, error) {
	user, err := loadKey(prefix, name)
	if err != nil {
		return Keys{}, err
	}
	host, err := loadKey(prefix+".host", "root@"+name)
	if err != nil {
		return Keys{}, err
	}
	k := Keys{UserFile: prefix, Host: host}
	if k.User, err = ssh.ParsePrivateKey(user); err != nil {
		return Keys{}, fmt.Errorf("key %s: %w", prefix, err)
	}
	hostSigner, err := ssh.ParsePrivateKey(host)
	if err != nil {
		return Keys{}, fmt.Errorf("key %s.host: %w", prefix, err)
	}
	k.HostKey = authorized(hostSigner.PublicKey())
	return k, nil
}

func loadKey(file, comment string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return text, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	text = pem.EncodeToMemory(block)
	// Under another name first: a file that was cut off would be taken for a key at the next run.
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return nil, fmt.Errorf("save key: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return nil, fmt.Errorf("save key: %w", err)
	}
	return text, nil
}

// authorized is a public key as one line without a comment.
func authorized(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
