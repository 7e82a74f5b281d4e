package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const patchText = `{"providers":{"uma":{"url":"u"}}}`

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func change(t *testing.T, path string) *Settings {
	t.Helper()
	s, err := Change(File{path, patchText})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// alone checks that no file of a launch is left beside path.
func alone(t *testing.T, dir string, want ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("%s has %q, want %q", dir, names, want)
	}
}

// TestRestored: a file is what it was, byte for byte and in its mode; one that was not there is gone with its folders.
func TestRestored(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.json")
	const before = "{ \"theme\" : 1 }"
	if err := os.WriteFile(path, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	s := change(t, path)
	if got := readFile(t, path); !strings.Contains(got, `"uma"`) || !strings.Contains(got, `"theme": 1`) {
		t.Errorf("changed to %s", got)
	}
	if _, err := Change(File{path, patchText}); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("a second launch: %v", err)
	}
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if got := readFile(t, path); got != before || err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("restored to %q, %v, %v", got, info.Mode(), err)
	}
	alone(t, dir, "s.json")

	s = change(t, filepath.Join(dir, "a", "b", "new.json"))
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	alone(t, dir, "s.json")
}

// TestChangedMeanwhile: what the program writes stays, without what the launch has set.
func TestChangedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(path, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := change(t, path)
	now := strings.Replace(readFile(t, path), `"a": 1`, `"a": 2, "seen": true`, 1)
	if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	if got := short(t, []byte(readFile(t, path))); got != `{"a":2,"seen":true}` {
		t.Errorf("restored to %s", got)
	}
	alone(t, filepath.Dir(path), "s.json")
}

// TestKilled: the backup of a launch that was killed is restored by the next.
func TestKilled(t *testing.T) {
	for before, want := range map[string]string{"{ \"a\":1 }": "{ \"a\":1 }", "": ""} {
		dir := t.TempDir()
		path := filepath.Join(dir, "s.json")
		if before != "" {
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		change(t, path).backup.Close() // as the kernel does for a killed process
		if err := change(t, path).Restore(); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			alone(t, dir)
		} else if got := readFile(t, path); got != want {
			t.Errorf("%q became %q", before, got)
		}
	}
}

// TestKilledWithAnotherPort: the next launch sets other values than the one that was killed, and the user's own come
// back.
func TestKilledWithAnotherPort(t *testing.T) {
	for _, before := range []string{`{"providers":{"uma":{"url":"mine"}} }`, `{"model":"mine"}`,
		`{"theme":"` + strings.Repeat("x", maxSettings-200) + `"}`} {
		path := filepath.Join(t.TempDir(), "s.json")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		killed, err := Change(File{path, `{"providers":{"uma":{"url":"first","key":"k1"}},"model":"a"}`})
		if err != nil {
			t.Fatal(err)
		}
		killed.backup.Close()
		s, err := Change(File{path, `{"providers":{"uma":{"url":"second","key":"k2"}},"model":"b"}`})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Restore(); err != nil {
			t.Fatal(err)
		}
		if got := readFile(t, path); got != before {
			t.Errorf("%.60q became %.60q", before, got)
		}
		alone(t, filepath.Dir(path), "s.json")
	}
}

// TestSeveralLaunches: while a file is changed its backup is there, whichever launches begin and end beside it.
func TestSeveralLaunches(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				s := &Settings{path: path}
				if s.lock() != nil {
					continue // another one has it
				}
				mine, err := s.backup.Stat()
				there, errThere := os.Stat(path + backupSuffix)
				if err != nil || errThere != nil || !os.SameFile(mine, there) {
					t.Errorf("a launch has a backup that is not there: %v, %v", err, errThere)
				}
				os.Remove(s.backup.Name())
				s.backup.Close()
			}
		})
	}
	wg.Wait()
	alone(t, dir, "s.json")
}

// TestUntouched: a file that cannot be changed stays as it is.
func TestUntouched(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.json")
	const before = "// mine\n{}"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Change(File{path, patchText}); !errors.Is(err, ErrNotJSON) {
		t.Errorf("%v", err)
	}
	if got := readFile(t, path); got != before {
		t.Errorf("became %q", got)
	}
	alone(t, dir, "s.json")
	if err := os.Truncate(path, maxSettings+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Change(File{path, patchText}); err == nil {
		t.Error("a file beyond the limit was changed")
	}
	alone(t, dir, "s.json")
	long := `{"theme":"` + strings.Repeat("x", maxSettings-20) + `"}` // and larger with what would be set
	if err := os.WriteFile(path, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Change(File{path, patchText}); err == nil || readFile(t, path) != long {
		t.Errorf("a file that would be beyond the limit was changed (%v)", err)
	}
	alone(t, dir, "s.json")
	if _, err := Change(File{dir, patchText}); err == nil {
		t.Error("a folder was changed")
	}
}

// TestLinked: the file behind a link is changed, and the link stays one.
func TestLinked(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	if err := errors.Join(os.WriteFile(real, []byte("{}"), 0o600), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	s := change(t, link)
	if !strings.Contains(readFile(t, real), "uma") {
		t.Error("the file was not changed")
	}
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 || readFile(t, real) != "{}" {
		t.Errorf("%v, %v", info, err)
	}
	alone(t, dir, "link.json", "real.json")
}
