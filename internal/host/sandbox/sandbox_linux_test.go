//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// confinedDir names the folder of a process that this test starts in its own program.
const confinedDir = "UMA_TEST_CONFINED_DIR"

// TestMain is the confined process where it is asked for: it moves a file into a folder below its own.
func TestMain(m *testing.M) {
	dir := os.Getenv(confinedDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	_, err := Enter(Policy{Write: []string{dir}})
	if err == nil {
		err = os.Rename(filepath.Join(dir, "file"), filepath.Join(dir, "quarantine", "file"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestFilesMoveIntoQuarantine: a confined process may move a damaged snapshot into the folder of those.
func TestFilesMoveIntoQuarantine(t *testing.T) {
	if v, err := ll.LandlockGetABIVersion(); err != nil || v < referFrom {
		t.Skipf("this kernel has Landlock %d (%v); files move between folders from version %d on", v, err, referFrom)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "quarantine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), confinedDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "quarantine", "file")); err != nil {
		t.Error(err)
	}
}
