package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

func testKey(t testing.TB, fill byte) *Key {
	k, err := NewKey(bytes.Repeat([]byte{fill}, keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(k *Key, name string, value []byte) []byte {
	return k.Seal(name, k.Header(name, value), value)
}

func TestSeal(t *testing.T) {
	k, name := testKey(t, 1), testKey(t, 1).Name("k")
	if len(name) != 64 || name == testKey(t, 2).Name("k") || name == k.Name("l") {
		t.Errorf("name %q", name)
	}
	for _, n := range []int{0, 1, 15, 16, 17, 4096} {
		value := bytes.Repeat([]byte("v"), n)
		b := sealed(k, name, value)
		if len(b) != n+Overhead || n > 8 && bytes.Contains(b, value[:8]) {
			t.Errorf("%d bytes sealed to %d", n, len(b))
		}
		got, err := k.Open(name, bytes.Clone(b))
		if err != nil || !bytes.Equal(got, value) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if !bytes.Equal(b, sealed(k, name, value)) {
			t.Errorf("%d bytes: sealed differently the second time", n)
		}
	}
}

// TestOpenRefuses: each changed bit, another name, another key, each shorter length.
func TestOpenRefuses(t *testing.T) {
	k, name := testKey(t, 1), testKey(t, 1).Name("k")
	b := sealed(k, name, []byte("a value"))
	refused := func(what string, k *Key, name string, b []byte) {
		t.Helper()
		if v, err := k.Open(name, b); !errors.Is(err, fault.ErrCorrupt) || v != nil {
			t.Errorf("%s: %q, %v", what, v, err)
		}
	}
	for i := range 8 * len(b) {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		refused("a changed bit", k, name, c)
	}
	for n := range b {
		refused("cut", k, name, bytes.Clone(b[:n]))
	}
	refused("another name", k, k.Name("other"), bytes.Clone(b))
	refused("another namespace key", testKey(t, 2), name, bytes.Clone(b))
	refused("a byte more", k, name, append(bytes.Clone(b), 0))
}

func TestReadKey(t *testing.T) {
	dir := t.TempDir()
	good := strings.Repeat("0f", keyBytes)
	for _, c := range []struct {
		name, content, says string
		mode                os.FileMode
	}{
		{"good", good + "\n", "", 0o600},
		{"open", good, "chmod 600", 0o644},
		{"short", good[2:], "want 64 hexadecimal digits", 0o600},
		{"letters", strings.Repeat("xy", keyBytes), "want 64 hexadecimal digits", 0o600},
		{"long", strings.Repeat("0", 2000), "2000 bytes long", 0o600},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.content), c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadKey(path)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := ReadKey(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	k, err := NewKey(bytes.Repeat([]byte{1}, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	name := k.Name("k")
	good := sealed(k, name, []byte("a value"))
	f.Add(good)
	f.Add(good[:Overhead])
	f.Fuzz(func(t *testing.T, b []byte) {
		value, err := k.Open(name, bytes.Clone(b))
		if err == nil && !bytes.Equal(b, sealed(k, name, value)) {
			t.Errorf("%x opens, but sealing its value gives other bytes", b)
		}
	})
}
