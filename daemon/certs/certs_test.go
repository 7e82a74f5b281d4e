package certs

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pair writes a certificate that is valid from a time on, and its key.
func pair(t *testing.T, dir string, from time.Time, names ...string) (cert, key string) {
	t.Helper()
	c, k, err := selfMade(names, from)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	for path, text := range map[string][]byte{cert: c, key: k} {
		if err := replace(path, text); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestOpen(t *testing.T) {
	now := time.Now()
	cert, key := pair(t, t.TempDir(), now, "a.test")
	otherCert, otherKey := pair(t, t.TempDir(), now, "b.test")
	open := func(cert, key string, at time.Time) (*Source, string, error) {
		var log bytes.Buffer
		s, err := Open(cert, key, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return at })
		return s, log.String(), err
	}
	if s, log, err := open(cert, key, now); err != nil || log != "" || len(s.Fingerprint()) != 32*3-1 ||
		s.certificate().Leaf.VerifyHostname("a.test") != nil {
		t.Errorf("%v, %q", err, log)
	}
	if _, log, err := open(cert, key, now.Add(validFor-24*time.Hour)); err != nil || !strings.Contains(log, "soon") {
		t.Errorf("a day before its end: %v, %q", err, log)
	}
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	readable := file("")
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cert, key string
		at        time.Time
		want      string
	}{
		{cert, otherKey, now, "does not match"}, {otherCert, key, now, "does not match"},
		{cert + "x", key, now, "--tls-cert"}, {cert, key + "x", now, "--tls-key"},
		{cert, key, now.Add(2 * validFor), "has expired"}, {cert, key, now.Add(-48 * time.Hour), "not valid before"},
		{file("nonsense"), key, now, "--tls-cert"}, {cert, file("nonsense"), now, "--tls-key"},
		{cert, file("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n"), now,
			"passphrase"},
		{cert, readable, now, "chmod 600"}, {t.TempDir(), key, now, "PEM file"},
		{file(strings.Repeat("x", maxFile+1)), key, now, "PEM file"},
	} {
		if _, _, err := open(c.cert, c.key, c.at); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s at %v: %v, want %q", c.cert, c.key, c.at, err, c.want)
		}
	}
}

// TestChangedFiles: a new pair is taken at the next handshake, and what is no pair changes nothing.
func TestChangedFiles(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	cert, key := pair(t, dir, now, "a.test")
	s, err := Open(cert, key, slog.New(slog.DiscardHandler), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first := s.Fingerprint()
	pair(t, dir, now, "b.test")
	if s.Fingerprint() != first {
		t.Error("the files are looked at more often than once a second")
	}
	now = now.Add(checkEvery)
	second := s.Fingerprint()
	if second == first {
		t.Error("the new pair is not taken")
	}
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(checkEvery)
	if s.Fingerprint() != second {
		t.Error("a pair that does not match was taken")
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	now = now.Add(checkEvery)
	if s.Fingerprint() != second {
		t.Error("the certificate went with its file")
	}
	pair(t, dir, now, "c.test")
	now = now.Add(checkEvery)
	if c, err := s.Config().GetCertificate(nil); err != nil || c.Leaf.VerifyHostname("c.test") != nil {
		t.Errorf("%v", err)
	}
}

func TestMake(t *testing.T) {
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "deep", "tls")
	made := func(names ...string) (fingerprint string, leaf *x509.Certificate) {
		t.Helper()
		s, err := Make(dir, names, slog.New(slog.DiscardHandler), func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return s.Fingerprint(), s.certificate().Leaf
	}
	a, leaf := made("localhost", "127.0.0.1", "::1")
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again, _ := made("localhost"); again != a {
		t.Error("it is made anew at each start")
	}
	b, _ := made("localhost", "more.test")
	if b == a {
		t.Error("it lacks a new name")
	}
	now = now.Add(validFor - renewFor + time.Minute)
	if renewed, _ := made("localhost"); renewed == b {
		t.Error("it is not renewed before its end")
	}
	st, err := os.Stat(filepath.Join(dir, "key.pem"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
}

// TestTroubleIsTold: files that cannot be used are told once, and a certificate near its end once a day.
func TestTroubleIsTold(t *testing.T) {
	start := time.Now()
	now := start
	cert, key := pair(t, t.TempDir(), now, "a.test")
	var log bytes.Buffer
	s, err := Open(cert, key, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		for range 3 {
			now = now.Add(checkEvery)
			s.certificate()
		}
		lines := strings.Count(log.String(), "\n")
		if want == "" && lines != 0 || want != "" && (lines != 1 || !strings.Contains(log.String(), want)) {
			t.Errorf("%q is not told once:\n%s", want, &log)
		}
		log.Reset()
	}
	told("")
	if err := os.Chmod(key, 0o644); err != nil { // a renewal that writes the key for all to read
		t.Fatal(err)
	}
	told("chmod 600")
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	told("")
	if err := os.Rename(cert, cert+".old"); err != nil {
		t.Fatal(err)
	}
	told("no such file")
	if err := os.Rename(cert+".old", cert); err != nil {
		t.Fatal(err)
	}
	now = start.Add(validFor - soon + time.Minute)
	told("expires soon")
	now = now.Add(warnEvery)
	told("expires soon")
	now = start.Add(validFor + time.Minute)
	told("has expired")
}

// TestSelfMadeIsRenewed: a process that runs for a year makes its certificate anew, once.
func TestSelfMadeIsRenewed(t *testing.T) {
	start := time.Now()
	now := start
	s, err := Make(t.TempDir(), []string{"localhost"}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first := s.Fingerprint()
	now = start.Add(validFor - renewFor - time.Minute)
	if s.Fingerprint() != first {
		t.Error("it is made anew too early")
	}
	now = start.Add(validFor - renewFor + time.Minute)
	second := s.Fingerprint()
	if second == first || s.Expires().Sub(now) < validFor-time.Hour {
		t.Errorf("it is valid until %v, at %v", s.Expires(), now)
	}
	if now = now.Add(checkEvery); s.Fingerprint() != second {
		t.Error("it is made anew at each look")
	}
}

// TestNamesAreValid: a certificate can have each of the names, so that it is not made anew at each start.
func TestNamesAreValid(t *testing.T) {
	names := Names([]netip.AddrPort{netip.MustParseAddrPort("[fe80::1%lo]:1")}, []string{"LLM.example.org.",
		"[2001:db8::1]", ".example.org", "a..b", "-a.test", "a-.test", strings.Repeat("a", 64) + ".test", "*.test",
		"é.test", "a_b.test"})
	for _, want := range []string{"llm.example.org", "2001:db8::1"} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not among %q", want, names)
		}
	}
	s, err := Make(t.TempDir(), names, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := s.certificate().Leaf.VerifyHostname(n); err != nil {
			t.Error(err)
		}
	}
}

func TestNames(t *testing.T) {
	got := Names([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:1"), netip.MustParseAddrPort("[::]:2")},
		[]string{"llm.example.org", "bad name"})
	for _, want := range []string{"localhost", "127.0.0.1", "::1", "192.0.2.7", "llm.example.org"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not among %q", want, got)
		}
	}
	if slices.Contains(got, "::") || slices.Contains(got, "bad name") {
		t.Errorf("%q", got)
	}
}
