// Package programs has the module's programs built for tests that run them.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Variable names a folder with programs that the caller of go test has built of this tree, once for all packages:
// linking one with the engine takes seconds. Of variables that begin with UMA_ the programs say that they are unknown.
const Variable = "TEST_PROGRAMS"

// Build puts the named programs of cmd into dir, built as by default but for symbols and debug information, which are
// left out.
func Build(dir string, names ...string) error {
	if built := os.Getenv(Variable); built != "" {
		for _, name := range names {
			if err := place(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		return nil
	}
	args := []string{"build", "-ldflags=-s -w", "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "github.com/uma-serve/uma-serve/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %q: %w\n%s", names, err, out)
	}
	return nil
}

// place links a file, or copies it into another file system. go test runs a package again when a file has changed that
// its tests have looked at.
func place(from, to string) error {
	if _, err := os.Stat(from); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
