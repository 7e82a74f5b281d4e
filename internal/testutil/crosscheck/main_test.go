package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck: an error in a file for another system is reported for that system alone, in tests too.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module example.org/m\n\ngo 1.24\n",
		"a.go":            "package m\n\nimport \"os\"\n\nvar _ = os.Getpid()\n",
		"a_darwin.go":     "package m\n\nvar x int = \"darwin\"\n",
		"a_linux_test.go": "package m\n\nvar _ = missing\n",
		"b/b_linux.go":    "package b\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ target, want string }{
		{"darwin/arm64", "a_darwin.go:3:"},
		{"linux/amd64", "undefined: missing"},
		{"freebsd/amd64", ""},
	} {
		if testing.Short() && c.target != "darwin/arm64" {
			continue // each checks a part of the standard library, too
		}
		var out strings.Builder
		n, err := check(dir, c.target, []string{"./..."}, &out)
		if err != nil || (n > 0) != (c.want != "") || !strings.Contains(out.String(), c.want) ||
			n != strings.Count(out.String(), "\n") || n > 1 {
			t.Errorf("%s: %d errors, %v:\n%s", c.target, n, err, out.String())
		}
	}
	for _, c := range [][]string{{"darwin", "./..."}, {"darwin/arm64", "./nothing/..."}} {
		if n, err := check(dir, c[0], c[1:], os.Stderr); err == nil && n == 0 {
			t.Errorf("%q passes", c)
		}
	}
}
