package valkey_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/valkey"
)

// These run against miniredis, everywhere.

func TestConformance(t *testing.T) {
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric { return open(t, "redis://"+miniredis.RunT(t).Addr()) })
}

// TestConformanceOtherwise: small pieces, one connection, no expiry.
func TestConformanceOtherwise(t *testing.T) {
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric {
		return open(t, "valkey://"+miniredis.RunT(t).Addr()+"/2?chunk=64KiB&conns=1&ttl=0&prefix=a.b")
	})
}

func TestExpiry(t *testing.T) {
	m := miniredis.RunT(t)
	f := open(t, "redis://"+m.Addr()+"?ttl=1h")
	value := fabrictest.Value(1, 3<<20)
	fabrictest.MustPush(t, f, "k", value)
	m.FastForward(59 * time.Minute)
	fabrictest.WantPull(t, f, "k", value)
	fabrictest.MustPush(t, f, "k", value) // known, and renewed
	m.FastForward(59 * time.Minute)
	if err := f.Renew(limit(t, time.Minute), "k"); err != nil || f.TTL() != time.Hour {
		t.Fatalf("%v, a time to live of %v", err, f.TTL())
	}
	m.FastForward(59 * time.Minute)
	fabrictest.WantPull(t, f, "k", value)
	m.FastForward(2 * time.Minute)
	_, err := f.Pull(limit(t, time.Minute), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)
	m.FastForward(time.Hour)
	if left := m.Keys(); len(left) != 0 {
		t.Errorf("never expires: %v", left)
	}

	forever := open(t, "redis://"+m.Addr()+"?ttl=0")
	fabrictest.MustPush(t, forever, "k", value)
	fabrictest.MustPush(t, forever, "k", value)
	m.FastForward(1000 * time.Hour)
	fabrictest.WantPull(t, forever, "k", value)
}

// TestNoServer: opening works, using says what is wrong, and it works once there is a server.
func TestNoServer(t *testing.T) {
	// The port is taken, so that nothing else gets it, and nothing listens there.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "port")
	defer file.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, fmt.Sprintf("redis://127.0.0.1:%d", name.(*unix.SockaddrInet4).Port))
	err = f.Push(limit(t, waitfor.Limit), "k", []byte("x"))
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	if !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error is %v", err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	startProxyOn(t, l, miniredis.RunT(t).Addr())
	fabrictest.MustPush(t, f, "k", []byte("x"))
	fabrictest.WantPull(t, f, "k", []byte("x"))
}

// certificate is a self-signed one for 127.0.0.1, and the files that an option names.
func certificate(t testing.TB) (pair tls.Certificate, certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return pair, writeFile(t, "cert.pem", certPEM), writeFile(t, "key.pem", keyPEM)
}

func TestTLS(t *testing.T) {
	pair, certFile, keyFile := certificate(t)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	m := miniredis.NewMiniRedis()
	m.RequireUserAuth("uma", "secret")
	if err := m.StartTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: pool}); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	base := "rediss://uma:secret@" + m.Addr()
	client := "&cert=" + certFile + "&key=" + keyFile
	value := fabrictest.Value(1, 10<<20)
	for _, url := range []string{base + "?ca=" + certFile + client, strings.Replace(base, "rediss", "valkeys", 1) +
		"?skip_verify=true" + client} {
		f := open(t, url)
		fabrictest.MustPush(t, f, "k", value)
		fabrictest.WantPull(t, f, "k", value)
	}
	for _, url := range []string{base + "?" + client[1:], base + "?ca=" + certFile,
		strings.Replace(base, "rediss", "redis", 1)} {
		err := open(t, url).Push(limit(t, 5*time.Second), "k", value)
		fabrictest.WantError(t, err, fabric.ErrUnavailable)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestParseURL(t *testing.T) {
	_, certFile, keyFile := certificate(t)
	c, err := valkey.ParseURL(
		"valkeys://me:p%40ss@[::1]:7000/4?ttl=90m&chunk=256KiB&max=2GiB&conns=7&prefix=team-a&connect_timeout=250ms&a" +
			"ddr=b&addr=c:1&ca=" + certFile)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(c.Addresses, " ") != "[::1]:7000 b:6379 c:1" || c.Username != "me" || c.Password != "p@ss" ||
		c.DB != 4 || c.TTL != 90*time.Minute ||
		c.ChunkBytes != 256<<10 || c.MaxBytes != 2<<30 || c.Conns != 7 || c.Prefix != "team-a" ||
		c.ConnectTimeout != 250*time.Millisecond || c.TLS == nil || c.TLS.RootCAs == nil {
		t.Errorf("%+v", c)
	}
	if c, err := valkey.ParseURL("redis://localhost"); err != nil || c.Addresses[0] != "localhost:6379" ||
		c.TLS != nil || c.TTL != 24*time.Hour {
		t.Errorf("%+v, %v", c, err)
	}
	notPEM := writeFile(t, "not.pem", []byte("hello"))
	for url, says := range map[string]string{
		"redis://":                                         "host is missing",
		"redis://:6379":                                    "host is missing",
		"http://h":                                         `scheme "http"`,
		"redis://h:0":                                      "port \"0\"",
		"redis://h:70000":                                  "port \"70000\"",
		"redis://u:secret@h:x":                             "invalid port",
		"redis://u:sec%zzret@h":                            "invalid URL escape",
		"redis://u:secret@h#x":                             "%23",
		"redis://h/x":                                      "database (the path): \"x\"",
		"redis://h/-1":                                     "database (the path)",
		"redis://h/1/2":                                    "database (the path)",
		"redis://h?db=x":                                   "option db",
		"redis://h?ttl=5":                                  "option ttl: \"5\", want a duration",
		"redis://h?ttl=-1s":                                "option ttl",
		"redis://h?ttl=1us":                                "option ttl",
		"redis://h?chunk=1KiB":                             "option chunk: 1KiB is outside of 4096",
		"redis://h?chunk=x":                                "option chunk: \"x\" is not a size",
		"redis://h?chunk=1GiB":                             "option chunk",
		"redis://h?max=0":                                  "option max",
		"redis://h?max=99999999999GiB":                     "option max",
		"redis://h?conns=0":                                "option conns: \"0\", want a number from 1 to 64",
		"redis://h?prefix={a}":                             "option prefix",
		"redis://h?connect_timeout=0":                      "option connect_timeout",
		"redis://h?addr=:1":                                "option addr",
		"redis://h?ttl=1h&ttl=2h":                          "option ttl is given 2 times",
		"redis://h?tll=1h":                                 "option tll: is unknown; known are ttl",
		"redis://h?password_file=" + t.Name():              "option password_file",
		"redis://h?skip_verify=true":                       "use rediss://",
		"rediss://h?skip_verify=perhaps":                   "option skip_verify",
		"rediss://h?ca=" + t.Name():                        "option ca",
		"rediss://h?ca=" + notPEM:                          "no PEM",
		"rediss://h?cert=" + certFile:                      "set both or neither",
		"rediss://h?cert=" + certFile + "&key=" + notPEM:   "options cert and key",
		"rediss://h?cert=" + notPEM + "&key=" + keyFile:    "options cert and key",
		"redis://h?a=%zz":                                  "options",
		"redis://u:secret@h?password_file=" + "/nowhere/x": "option password_file",
	} {
		_, err := valkey.ParseURL(url)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), "zzret") {
			t.Errorf("%s: %v, want it to say %q", url, err, says)
		}
	}
}

// FuzzParseURL: no URL panics, and what is accepted is within the limits.
func FuzzParseURL(f *testing.F) {
	f.Add("valkeys://me:p%40ss@[::1]:7000/4?ttl=90m&chunk=256KiB&max=2GiB&conns=7&prefix=a&addr=b")
	f.Add("redis://h")
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "_file") || strings.Contains(url, "ca=") || strings.Contains(url, "cert") {
			t.Skip("reads files")
		}
		c, err := valkey.ParseURL(url)
		if err != nil {
			return
		}
		if len(c.Addresses) == 0 || c.ChunkBytes < 4096 || c.ChunkBytes > 64<<20 || c.MaxBytes < 4096 || c.Conns < 1 ||
			c.Conns > 64 || c.TTL < 0 || c.ConnectTimeout <= 0 || c.Prefix == "" {
			t.Fatalf("%q gives %+v", url, c)
		}
	})
}

// TestMaxBytes holds both ways: what another client stored may be larger than what this one takes.
func TestMaxBytes(t *testing.T) {
	m := miniredis.RunT(t)
	small, large := open(t, "redis://"+m.Addr()+"?max=1MiB"), open(t, "redis://"+m.Addr())
	value := fabrictest.Value(1, 1<<20+1)
	fabrictest.WantError(t, small.Push(context.Background(), "k", value), fabric.ErrTooLarge)
	fabrictest.MustPush(t, large, "k", value)
	_, err := small.Pull(limit(t, time.Minute), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrTooLarge)
	fabrictest.MustPush(t, small, "k", value[1:])
	fabrictest.WantPull(t, large, "k", value[1:])
}
