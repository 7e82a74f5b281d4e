package agent

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// protocol is the version of what peers say to each other; TLS refuses another one.
const protocol = "uma-nixl/1"

// identity returns the TLS configuration of both ends of a connection between agents. Agents with one namespace key
// have one key pair, and accept no other. The certificate is only the form that TLS wants.
func identity(k *seal.Key) (*tls.Config, error) {
	private := k.Identity()
	public := private.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("certificate of this agent: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}},
		MinVersion:   tls.VersionTLS13, NextProtos: []string{protocol}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAnyClientCert,
		// VerifyConnection compares keys instead: there are no names and no authority.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !public.Equal(s.PeerCertificates[0].PublicKey) {
				return errors.New("the peer has another namespace key")
			}
			if s.NegotiatedProtocol != protocol {
				return fmt.Errorf("the peer speaks %q, want %q", s.NegotiatedProtocol, protocol)
			}
			return nil
		},
	}, nil
}
