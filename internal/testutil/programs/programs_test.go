package programs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBuilt: a program that was built is taken, and one that was not is an error.
func TestBuilt(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	t.Setenv(Variable, from)
	if err := os.WriteFile(filepath.Join(from, "uma-cli"), []byte("built"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Build(to, "uma-cli"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "uma-cli")); err != nil || string(b) != "built" {
		t.Errorf("%q, %v", b, err)
	}
	if err := Build(to, "uma-sim"); err == nil {
		t.Error("a program that does not exist is there")
	}
}
