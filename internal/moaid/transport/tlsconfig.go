package transport

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// peerIdentity is who the other end of a TLS connection turned out to be. It is
// filled by VerifyConnection and holds once the handshake has returned nil.
type peerIdentity struct {
	key        ed25519.PublicKey
	name, node string // of the pin
	proto      string // negotiated ALPN
}

// keyError says that a key was presented which is not the one that is trusted.
type keyError struct {
	presented ed25519.PublicKey
	reason    string
}

func (e *keyError) Error() string { return e.reason }

// serverTLS makes the configuration for one incoming connection.
func (m *Mux) serverTLS(who *peerIdentity) *tls.Config {
	c := m.baseTLS()
	c.ClientAuth = tls.RequireAnyClientCert
	c.NextProtos = []string{wire.ALPNPeer}
	if m.http != nil {
		c.NextProtos = append(c.NextProtos, wire.ALPNGateway)
	}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		key, err := presentedKey(cs)
		if err != nil {
			return err
		}
		role := api.RolePeer
		switch cs.NegotiatedProtocol {
		case wire.ALPNPeer:
		case wire.ALPNGateway:
			role = api.RoleGateway
		default:
			return errors.New("the connection asks for no ALPN protocol")
		}
		name, node, ok := m.opt.Pins.Allowed(key, role)
		if !ok {
			return &keyError{presented: key, reason: fmt.Sprintf("key %s is not trusted here with role %s", KeyString(key), role)}
		}
		*who = peerIdentity{key: key, name: name, node: node, proto: cs.NegotiatedProtocol}
		return nil
	}
	return c
}

// clientTLS makes the configuration for one dial of the link.
func (m *Mux) clientTLS(cfg *PeerConfig) *tls.Config {
	c := m.baseTLS()
	c.NextProtos = []string{wire.ALPNPeer}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		key, err := presentedKey(cs)
		if err != nil {
			return err
		}
		if !key.Equal(cfg.Key) {
			return &keyError{presented: key, reason: fmt.Sprintf("presented key %s, expected %s", KeyString(key), KeyString(cfg.Key))}
		}
		if _, node, ok := m.opt.Pins.Allowed(key, api.RolePeer); !ok || node != cfg.Node {
			return &keyError{presented: key, reason: fmt.Sprintf("has key %s, which is not trusted here as a peer for node %s", KeyString(key), cfg.Node)}
		}
		if cs.NegotiatedProtocol != wire.ALPNPeer {
			return fmt.Errorf("does not speak %s", wire.ALPNPeer)
		}
		return nil
	}
	return c
}

func (m *Mux) baseTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		SessionTicketsDisabled: true,
		// There is no authority to verify against: VerifyConnection compares
		// the key itself, and the handshake proves its possession.
		InsecureSkipVerify: true, //nolint:gosec // pinned key, see VerifyConnection
	}
}

func presentedKey(cs tls.ConnectionState) (ed25519.PublicKey, error) {
	if len(cs.PeerCertificates) == 0 {
		return nil, errors.New("the other side presented no certificate")
	}
	key, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the other side's key is not ed25519")
	}
	return key, nil
}
