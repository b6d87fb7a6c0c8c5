package conformance_test

import (
	"context"
	"crypto/ed25519"
	"net"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

type onePin ed25519.PublicKey

func (p onePin) Allowed(pub ed25519.PublicKey, role api.Role) (string, string, bool) {
	return "link", "client", role == api.RolePeer && pub.Equal(ed25519.PublicKey(p))
}

// nothing is a Handler that knows no transfer.
type nothing struct{}

func (nothing) SessionUp(transport.Session)                          {}
func (nothing) SessionDown(transport.Session, error)                 {}
func (nothing) Message(transport.Session, wire.Message)              {}
func (nothing) ChunkDone(transport.Session, wire.ChunkHeader, error) {}
func (nothing) ChunkTarget(transport.Session, wire.ChunkHeader) ([][]byte, bool, error) {
	return nil, false, nil
}

func TestTransportConforms(t *testing.T) {
	for _, enc := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		t.Run(string(enc), func(t *testing.T) {
			server, err := transport.NewIdentity()
			if err != nil {
				t.Fatal(err)
			}
			client, err := transport.NewIdentity()
			if err != nil {
				t.Fatal(err)
			}
			m := transport.New(transport.Options{
				Node: "server", Instance: wire.ID{1}, Identity: server, Pins: onePin(client.Public()), Handler: nothing{},
				Timing: transport.Timing{Linger: 200 * time.Millisecond},
			})
			m.SetPeer(transport.PeerConfig{Link: "l", Node: "client", Key: client.Public(), Encryption: enc, Streams: 1})
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- m.Serve(context.Background(), ln) }()
			t.Cleanup(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
			mode := wire.EncryptionAEAD
			if enc == api.EncryptionNone {
				mode = wire.EncryptionNone
			}
			conformance.Run(t, conformance.Target{
				Addr: ln.Addr().String(), Node: "server", Key: server.Public(), Client: client.Key, ClientNode: "client", Encryption: mode,
			})
		})
	}
}
