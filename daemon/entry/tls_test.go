package entry

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestSelfMadeCertificate: a client that trusts the file reaches the daemon by https, for which addresses and metrics
// say so.
func TestSelfMadeCertificate(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	e, err := open(t, t.TempDir(), nil, "--tls-cert", "self")
	if err != nil {
		t.Fatal(err)
	}
	ended := e.Start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}), nil)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(cache, "uma-serve", "tls", "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	a := e.Addresses()
	if !strings.HasPrefix(a.Listen[1], "https://127.0.0.1:") || !a.Listeners[1].TLS || a.Listeners[0].TLS {
		t.Errorf("%+v", a)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	resp, err := web.Get(a.Listen[1])
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot || resp.TLS.Version < tls.VersionTLS12 {
		t.Errorf("%s", resp.Status)
	}
	web.CloseIdleConnections()
	resp, err = http.Get(strings.Replace(a.Listen[1], "https:", "http:", 1))
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Fatalf("plain HTTP: %v", err)
	}
	resp.Body.Close()
	e.Stop(time.Second)
	waitfor.Recv(t, "the end", ended)
}

func TestWrongCertificates(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tls-cert", "/nowhere", "--tls-key", "/nowhere"}, "--tls-cert: stat /nowhere"},
	} {
		e, err := open(t, t.TempDir(), nil, c.args...)
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}
