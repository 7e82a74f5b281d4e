//go:build unix

package release

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/internal/release/releasetest"
)

// TestInstallAgain: a version that is installed again replaces itself without a moment in which there is none, and
// --rollback still leads to the version before.
func TestInstallAgain(t *testing.T) {
	home := t.TempDir()
	p := &Place{Prefix: filepath.Join(home, ".local"), Home: home,
		Run: func(context.Context, string, ...string) error { return nil }}
	signer := releasetest.NewSigner(1)
	inUse := filepath.Join(p.Prefix, "bin/uma-serve")
	for i, version := range []string{"v1.0.0", "v1.1.0", "v1.1.0", "v1.1.0"} {
		before, _ := filepath.EvalSymlinks(inUse)
		if err := install(t, p, signer, version); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(inUse); err != nil || string(b) != version {
			t.Errorf("%d: in use: %q, %v", i, b, err)
		}
		if after, err := filepath.EvalSymlinks(inUse); err != nil || after == before {
			t.Errorf("%d: the folder in use was replaced in place: %s, %v", i, after, err)
		}
	}
	if name, err := p.Rollback(); err != nil || !strings.HasPrefix(name, "v1.0.0_") {
		t.Errorf("Rollback: %q, %v", name, err)
	}
	if name, err := p.Rollback(); err != nil || versionOf(name) != "v1.1.0" {
		t.Errorf("Rollback of the rollback: %q, %v", name, err)
	}
	before := listing(t, home)
	for _, name := range []string{"", ".", "..", "../..", "a/b", ".new-1", "x" + again} {
		err := p.Install(t.Context(), home, name, Receipt{})
		if err == nil || !strings.Contains(err.Error(), "folder") {
			t.Errorf("a version named %q: %v", name, err)
		}
	}
	if after := listing(t, home); !slices.Equal(before, after) {
		t.Errorf("a refused name has changed %v to %v", before, after)
	}
}

// TestRemoveRespectsForeignFiles: make install has put its files over the links.
func TestRemoveRespectsForeignFiles(t *testing.T) {
	home := t.TempDir()
	p := &Place{Prefix: filepath.Join(home, ".local"), Home: home,
		Run: func(context.Context, string, ...string) error { return nil }}
	if err := install(t, p, releasetest.NewSigner(1), "v1.0.0"); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(p.Prefix, "bin/uma-cli")
	if err := errors.Join(os.Remove(foreign), os.WriteFile(foreign, []byte("mine"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := listing(t, home); !slices.Equal(left, []string{".local", ".local/bin", ".local/bin/uma-cli"}) {
		t.Errorf("left: %v", left)
	}
}

// TestSystem: a home that a symbolic link leads to is a home.
func TestSystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, link := filepath.Join(dir, "real"), filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Symlink(home, link)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix, home string
		want         bool
	}{{link + "/.local", link, false}, {home + "/.local", link, false}, {link + "/.local", home + "/", false},
		{"/usr/local", link, true}, {home + "2", home, true}, {"/usr/local", "/", true}, {home, "", true}} {
		if got := (&Place{Prefix: c.prefix, Home: c.home}).System(); got != c.want {
			t.Errorf("prefix %s, home %s: %v", c.prefix, c.home, got)
		}
	}
}

// TestUnpackForAll: an administrator's umask does not keep the other users out.
func TestUnpackForAll(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	archive := releasetest.Archive(t, map[string]string{"top/share/doc/x.md": "x", "top/bin/uma-cli": "x"})
	if err := unpack(bytes.NewReader(archive), dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"share", "share/doc", "bin", "bin/uma-cli"} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// TestFetchAsksForTheBytes: a server that calls archives encoded sends what was signed.
func TestFetchAsksForTheBytes(t *testing.T) {
	name, content := archiveOf(t, "v1.0.0")
	files := releasetest.Release(releasetest.NewSigner(1), map[string][]byte{name: content})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".gz") {
			w.Header().Set("Content-Encoding", "gzip")
		}
		w.Write(files[strings.TrimPrefix(r.URL.Path, "/")])
	}))
	defer server.Close()
	key, err := ParseKey(releasetest.NewSigner(1).Public())
	if err != nil {
		t.Fatal(err)
	}
	source := &Source{URL: server.URL, Key: key, Client: server.Client()}
	archives, err := source.Archives(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Fetch(t.Context(), archives[0], t.TempDir()); err != nil {
		t.Error(err)
	}
}
