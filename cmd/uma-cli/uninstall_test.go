package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/release"
)

// TestUserFolders: only the installation that owns the machine's folders purges them.
func TestUserFolders(t *testing.T) {
	home := map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data", "XDG_CONFIG_HOME": "/settings/"}
	getenv := func(name string) string { return home[name] }
	own := func(dir string) bool { return strings.HasPrefix(dir, "/home/u/") }
	mine, _ := userFolders(getenv, &release.Place{Prefix: "/home/u/.local", Home: "/home/u/"}, false)
	want := []string{"/data/uma-serve/models", "/home/u/.cache/uma-serve", "/home/u/.local/state/uma-serve",
		"/home/u/Library/Caches/uma-serve", "/settings/uma-serve"}
	if !slices.Equal(mine, want) {
		t.Errorf("in a home: %q, want %q", mine, want)
	}
	clear(home)
	home["HOME"] = "/home/u"
	machine := []string{"/var/lib/uma-serve", "/var/cache/uma-serve", "/etc/uma-serve"}
	mine, _ = userFolders(getenv, &release.Place{Prefix: "/usr/local", Home: "/home/u"}, true)
	for _, dir := range machine {
		if !slices.Contains(mine, dir) {
			t.Errorf("of the system: %q lacks %s", mine, dir)
		}
	}
	// Also for root, whose models are in /var/lib.
	for _, p := range []*release.Place{{Prefix: "/home/u/.local", Home: "/home/u"},
		{Prefix: "/usr/local", Home: "/home/u"}, {Prefix: "/tmp/scratch", Home: "/home/u"},
		{Prefix: "/tmp/scratch"}, {Prefix: "/tmp/scratch", Home: "/"}, {Prefix: "/tmp/scratch", Home: "relative"}} {
		mine, others := userFolders(getenv, p, false)
		for _, dir := range mine {
			if !own(dir) {
				t.Errorf("%+v: %s is purged", p, dir)
			}
		}
		for _, dir := range others {
			if !filepath.IsAbs(dir) || slices.Contains(mine, dir) {
				t.Errorf("%+v: %s is kept", p, dir)
			}
		}
	}
}

// TestOwnsMachine: the folders of the machine belong to the installation in /usr/local, and not beside a package.
func TestOwnsMachine(t *testing.T) {
	none := func(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }
	there := func(string) (fs.FileInfo, error) { return nil, nil }
	denied := func(string) (fs.FileInfo, error) { return nil, fs.ErrPermission }
	for _, c := range []struct {
		prefix string
		lstat  func(string) (fs.FileInfo, error)
		want   bool
	}{{"/usr/local", none, true}, {"/usr/local", there, false}, {"/usr/local", denied, false}, {"/opt/x", none, false},
		{t.TempDir(), none, false}, {"/usr", none, false}, {"/", none, false}, {"", none, false}} {
		if got := ownsMachine(c.prefix, c.lstat); got != c.want {
			t.Errorf("%q: %v, want %v", c.prefix, got, c.want)
		}
	}
}

// TestLeaveDeletesItsFoldersAlone: a folder of the user that is empty then stays; uma-serve's goes.
func TestLeaveDeletesItsFoldersAlone(t *testing.T) {
	dir := t.TempDir()
	cache, models := filepath.Join(dir, "cache/uma-serve"), filepath.Join(dir, "data/uma-serve/models")
	for _, d := range []string{cache, models} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := leave([]string{cache, models}, true); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"cache": true, "cache/uma-serve": false, "data": true,
		"data/uma-serve": false} {
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestNotOurs(t *testing.T) {
	for _, c := range []struct{ verb, owner, want, not string }{
		{"upgrade", "a Debian package: apt install ./x.deb", "apt install", ""},
		{"remove", "a Debian package: apt install ./x.deb", "a Debian package", "install"},
		{"upgrade", "", "make install", ""}, {"remove", "", "scripts/get.sh", "git pull"},
	} {
		if err := notOurs("/usr/bin/uma-cli", c.verb, c.owner).Error(); !strings.Contains(err, c.want) ||
			c.not != "" && strings.Contains(err, c.not) {
			t.Errorf("%+v: %s", c, err)
		}
	}
}
