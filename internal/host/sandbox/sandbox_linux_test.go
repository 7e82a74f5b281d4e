//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// confinedDir names the folder of a process that this test starts in its own program.
const confinedDir = "UMA_TEST_CONFINED_DIR"

// confinedIoctl has that process try ioctl instead.
const confinedIoctl = "UMA_TEST_CONFINED_IOCTL"

// ioctlFrom is the first version of Landlock that refuses ioctl.
const ioctlFrom = 5

// ioctls asks two devices whether they are terminals: the one that is a device of the policy answers.
func ioctls() error {
	for path, want := range map[string]error{"/dev/full": unix.ENOTTY, "/dev/zero": unix.EACCES} {
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != want {
			return fmt.Errorf("ioctl of %s: %v, want %v", path, err, want)
		}
	}
	return nil
}

// TestDevicesTakeIoctl: a driver controls its device by ioctl; other devices that the process may read refuse it.
func TestDevicesTakeIoctl(t *testing.T) {
	if v, err := ll.LandlockGetABIVersion(); err != nil || v < ioctlFrom {
		t.Skipf("this kernel has Landlock %d (%v); it refuses ioctl from version %d on", v, err, ioctlFrom)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), confinedDir+"="+t.TempDir(), confinedIoctl+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestMain is the confined process where it is asked for: it moves a file into a folder below its own.
func TestMain(m *testing.M) {
	dir := os.Getenv(confinedDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	_, err := Enter(Policy{Write: []string{dir}, Read: []string{"/dev/zero"}, Devices: []string{"/dev/full"}})
	if err == nil && os.Getenv(confinedIoctl) != "" {
		err = ioctls()
	} else if err == nil {
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
