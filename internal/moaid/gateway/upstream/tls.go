package upstream

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
)

// ALPN is the protocol that a gateway asks a daemon for.
const ALPN = "moai-http/1"

// KeyError says that the other end has another key than the pinned one.
type KeyError struct {
	Node string
	Want string
	Got  string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("node %s has the key %s, but %s is pinned: the router's configuration is older than the daemon's key, or this is another host",
		e.Node, e.Got, e.Want)
}

// tlsConfig accepts exactly one key.
func tlsConfig(node string, pinned ed25519.PublicKey, cert tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{ALPN},
		Certificates: []tls.Certificate{cert},
		ServerName:   node,
		// There is no authority and no name to check: VerifyConnection compares
		// the key itself.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != ALPN {
				return fmt.Errorf("node %s does not speak %s: is this the port of its KV daemon?", node, ALPN)
			}
			if len(cs.PeerCertificates) == 0 {
				return errors.New("the daemon showed no certificate")
			}
			key, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !key.Equal(pinned) {
				got := "of another kind"
				if ok {
					got = config.KeyString(key)
				}
				return &KeyError{Node: node, Want: config.KeyString(pinned), Got: got}
			}
			return nil
		},
	}
}

// dialer connects to a node's daemon over the first address that works.
type dialer struct {
	node      string
	addresses []string
	timeout   time.Duration // for one address, TLS included
	tls       *tls.Config
	slots     chan struct{} // taken while a connection is being made
	good      atomic.Int64  // index of the address that worked last
}

// DialError says that no address worked.
type DialError struct {
	Node string
	Err  error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("connect to the KV daemon of node %s: %v", e.Node, e.Err)
}

// Unwrap gives the errors of the addresses.
func (e *DialError) Unwrap() error { return e.Err }

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	first := int(d.good.Load())
	var errs []error
	for i := range d.addresses {
		at := (first + i) % len(d.addresses)
		c, err := d.one(ctx, d.addresses[at])
		if err == nil {
			d.good.Store(int64(at))
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", d.addresses[at], err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, &DialError{Node: d.node, Err: errors.Join(errs...)}
}

func (d *dialer) one(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	td := tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 15 * time.Second}, Config: d.tls}
	return td.DialContext(ctx, "tcp", address)
}
