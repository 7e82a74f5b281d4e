// Package certs has the certificate of --listen: from files, which are read again when they change, or a self-made one.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	checkEvery = time.Second // between two looks at the files
	maxFile    = 1 << 20     // bytes of a file
	validFor   = 365 * 24 * time.Hour
	renewFor   = 30 * 24 * time.Hour // a self-made certificate with less time left is made anew
	soon       = 14 * 24 * time.Hour // with less time left the log warns, at the start and then once a day
	warnEvery  = 24 * time.Hour
)

// Source has a certificate. It is safe for concurrent use.
type Source struct {
	cert, key string
	names     []string // of a self-made certificate, which is made anew before its end; nil: the files are another's
	log       *slog.Logger
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]stamp
	looked  time.Time
	warned  time.Time // of the end of current
	trouble string    // the newest logged error of reading the files; "": none since they were read
}

// stamp differs where a file has been replaced.
type stamp struct {
	size     int64
	modified time.Time
}

// Open reads a certificate (with the intermediate ones behind it) and its key, PEM files. The error names the option
// and says what to do.
func Open(cert, key string, log *slog.Logger, now func() time.Time) (*Source, error) {
	s := &Source{cert: cert, key: key, log: log, now: now}
	st, err := s.stamps()
	if err != nil {
		return nil, err
	}
	if s.current, err = s.load(); err != nil {
		return nil, err
	}
	s.read, s.looked = st, now()
	s.warn(s.looked)
	return s, nil
}

// warn logs that the certificate expires soon, or has expired. s.mu is held, or s is new.
func (s *Source) warn(now time.Time) {
	end := s.current.Leaf.NotAfter
	if end.Sub(now) >= soon || now.Sub(s.warned) < warnEvery && !now.Before(s.warned) {
		return
	}
	s.warned = now
	if now.After(end) {
		s.log.Error("the certificate of --listen has expired, and clients refuse it: renew it; it is read again when "+
			"its files change", "file", s.cert, "expired", end)
		return
	}
	s.log.Warn("the certificate of --listen expires soon; it is read again when its files change", "file", s.cert,
		"expires", end)
}

// Make returns a source with a self-made certificate for the names and addresses, which it keeps in a folder and makes
// anew when it expires or lacks a name.
func Make(dir string, names []string, log *slog.Logger, now func() time.Time) (*Source, error) {
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if s, err := Open(cert, key, slog.New(slog.DiscardHandler), now); err == nil && s.serves(names) {
		s.log, s.names = log, names
		return s, nil
	}
	if err := write(cert, key, names, now()); err != nil {
		return nil, err
	}
	s, err := Open(cert, key, log, now)
	if err == nil {
		s.names = names
	}
	return s, err
}

// write makes a certificate for the names and writes it and its key.
func write(cert, key string, names []string, now time.Time) error {
	if err := os.MkdirAll(filepath.Dir(cert), 0o700); err != nil {
		return fmt.Errorf("--tls-cert self: %w", err)
	}
	certText, keyText, err := selfMade(names, now)
	if err == nil {
		err = replace(key, keyText)
	}
	if err == nil {
		err = replace(cert, certText)
	}
	if err != nil {
		return fmt.Errorf("--tls-cert self: %w", err)
	}
	return nil
}

// serves reports whether the certificate has all of the names, and renewFor left.
func (s *Source) serves(names []string) bool {
	leaf := s.current.Leaf
	if leaf.NotAfter.Sub(s.now()) < renewFor {
		return false
	}
	return !slices.ContainsFunc(names, func(n string) bool { return leaf.VerifyHostname(n) != nil })
}

// Config returns a configuration whose handshakes use the current certificate.
func (s *Source) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate(), nil }}
}

// Fingerprint returns the SHA-256 of the certificate as browsers and openssl show it: "AB:CD:…".
func (s *Source) Fingerprint() string {
	sum := sha256.Sum256(s.certificate().Certificate[0])
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// Expires returns the end of the certificate.
func (s *Source) Expires() time.Time { return s.certificate().Leaf.NotAfter }

// certificate returns the certificate, read again if the files have changed. A certificate and a key that do not
// belong together, as between two writes, change nothing.
func (s *Source) certificate() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.looked) >= checkEvery || now.Before(s.looked) {
		s.looked = now
		s.look()
		s.warn(now)
	}
	return s.current
}

// look reads the files again if they have changed, after a self-made certificate near its end was made anew. s.mu is
// held.
func (s *Source) look() {
	failed := func(err error) {
		if text := err.Error(); text != s.trouble { // which comes again with each look
			s.trouble = text
			s.log.Error("the certificate of --listen cannot be read again; the old one stays", "error", err)
		}
	}
	st, err := s.stamps()
	if err == nil && st == s.read && s.names != nil && s.current.Leaf.NotAfter.Sub(s.now()) < renewFor {
		if err = write(s.cert, s.key, s.names, s.now()); err == nil {
			st, err = s.stamps()
		}
	}
	if err != nil {
		failed(err)
		return
	}
	s.trouble = ""
	if st == s.read {
		return
	}
	s.read = st
	next, err := s.load()
	if err != nil {
		failed(err)
		return
	}
	s.current, s.warned = next, time.Time{}
	s.log.Info("the certificate of --listen was read again", "file", s.cert, "expires", next.Leaf.NotAfter)
}

func (s *Source) stamps() (st [2]stamp, err error) {
	for i, f := range []struct{ option, path string }{{"--tls-cert", s.cert}, {"--tls-key", s.key}} {
		info, err := os.Stat(f.path)
		switch {
		case err != nil:
			return st, fmt.Errorf("%s: %w", f.option, err)
		case !info.Mode().IsRegular() || info.Size() > maxFile:
			return st, fmt.Errorf("%s %s: it must be a PEM file of at most %d bytes", f.option, f.path, maxFile)
		case i == 1 && info.Mode()&0o007 != 0:
			return st, fmt.Errorf("--tls-key %s: every user can read the key (mode %04o); chmod 600 it", f.path,
				info.Mode().Perm())
		}
		st[i] = stamp{info.Size(), info.ModTime()}
	}
	return st, nil
}

func (s *Source) load() (*tls.Certificate, error) {
	certText, err := os.ReadFile(s.cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	keyText, err := os.ReadFile(s.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	if b, _ := pem.Decode(keyText); b != nil && (b.Headers["DEK-Info"] != "" || b.Type == "ENCRYPTED PRIVATE KEY") {
		return nil, fmt.Errorf("--tls-key %s: the key has a passphrase, and no one types it at a start; write it "+
			"without one: openssl pkey -in FILE -out FILE", s.key)
	}
	c, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s with --tls-key %s: %w", s.cert, s.key, err)
	}
	if c.Leaf == nil { // GODEBUG=x509keypairleaf=0
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return nil, fmt.Errorf("--tls-cert %s: %w", s.cert, err)
		}
	}
	switch now := s.now(); {
	case now.After(c.Leaf.NotAfter):
		return nil, fmt.Errorf("--tls-cert %s: the certificate has expired on %s; renew it", s.cert,
			c.Leaf.NotAfter.Format(time.DateTime))
	case now.Before(c.Leaf.NotBefore):
		return nil, fmt.Errorf("--tls-cert %s: the certificate is not valid before %s; is the clock of this machine "+
			"right?", s.cert, c.Leaf.NotBefore.Format(time.DateTime))
	}
	return &c, nil
}

// selfMade returns a certificate and its key as PEM.
func selfMade(names []string, now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "uma-serve"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		// A client may trust it as it is: then it signs itself, and nothing else.
		IsCA: true, MaxPathLenZero: true}
	c.KeyUsage |= x509.KeyUsageCertSign
	for _, n := range names {
		if a, err := netip.ParseAddr(n); err == nil {
			c.IPAddresses = append(c.IPAddresses, net.IP(a.Unmap().AsSlice()))
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), nil
}

// replace writes a file that only this user can read.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // removes it after an error
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Names returns the names and addresses for which a self-made certificate is good: those of this machine and of
// addresses, and hosts.
func Names(addresses []netip.AddrPort, hosts []string) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if h, err := os.Hostname(); err == nil {
		hosts = append([]string{h}, hosts...)
	}
	any := false
	for _, a := range addresses {
		any = any || a.Addr().IsUnspecified()
		names = append(names, a.Addr().WithZone("").String())
	}
	if any {
		own, _ := net.InterfaceAddrs()
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				names = append(names, n.IP.String())
			}
		}
	}
	for _, h := range hosts {
		names = append(names, strings.ToLower(strings.TrimSuffix(strings.Trim(h, "[]"), ".")))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool {
		a, err := netip.ParseAddr(n)
		return err != nil && !validName(n) || err == nil && a.IsUnspecified()
	})
}

// validName reports whether a certificate can have a name.
func validName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	})
}
