package main

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/internal/release"
)

// TestUserFolders: an installation in a home never purges the system's folders.
func TestUserFolders(t *testing.T) {
	home := map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data"}
	getenv := func(name string) string { return home[name] }
	mine, _ := userFolders(getenv, &release.Place{Prefix: "/home/u/.local", Home: "/home/u"})
	want := []string{"/data/uma-serve/models", "/home/u/.cache/uma-serve", "/home/u/.config/uma-serve",
		"/home/u/.local/state/uma-serve"}
	if !slices.Equal(mine, want) {
		t.Errorf("in a home: %q, want %q", mine, want)
	}
	mine, _ = userFolders(getenv, &release.Place{Prefix: "/usr/local", Home: "/home/u"})
	for _, dir := range []string{"/var/lib/uma-serve", "/etc/uma-serve"} {
		if !slices.Contains(mine, dir) {
			t.Errorf("of the system: %q lacks %s", mine, dir)
		}
	}
	delete(home, "XDG_DATA_HOME")
	mine, others := userFolders(getenv, &release.Place{Prefix: "/home/u/.local", Home: "/home/u"})
	for _, dir := range mine {
		if dir[:len("/home/u/")] != "/home/u/" {
			t.Errorf("%s is purged", dir)
		}
	}
	for _, dir := range others {
		if slices.Contains(mine, dir) {
			t.Errorf("%s is in both lists", dir)
		}
	}
}
