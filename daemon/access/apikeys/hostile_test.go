package apikeys

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tricks are things that a path may name instead of a file of keys, each with what is said of it. They are made at the
// path that they are given; none of them may keep its reader waiting.
func tricks(t *testing.T) map[string]func(path string) (want string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string, mode os.FileMode) { put(t, path, text, mode) }
	list := map[string]func(path string) string{
		"a pipe without a writer": func(path string) string {
			must(syscall.Mkfifo(path, 0o600))
			return "is a pipe, not a file"
		},
		"a directory": func(path string) string {
			must(os.Mkdir(path, 0o700))
			return "is a directory, not a file"
		},
		"a socket": func(path string) string {
			l, err := net.Listen("unix", path)
			must(err)
			t.Cleanup(func() { l.Close() })
			return "is a socket, not a file"
		},
		"a device without end": func(path string) string {
			must(os.Symlink("/dev/zero", path))
			return "is a device, not a file"
		},
		"a link to nothing": func(path string) string {
			must(os.Symlink(path+".gone", path))
			return "there is no such file"
		},
		"a link to itself": func(path string) string {
			must(os.Symlink(path, path))
			return "too many levels of symbolic links"
		},
		"a link to a file that others can read": func(path string) string {
			write(path+".open", "key owner\n", 0o644)
			must(os.Symlink(path+".open", path))
			return "mode 0644"
		},
		"a file of one gigabyte": func(path string) string {
			write(path, "key owner\n", 0o600)
			must(os.Truncate(path, 1<<30))
			return "more than 1048576 bytes"
		},
		"a file of zeros": func(path string) string {
			write(path, strings.Repeat("\x00", 100), 0o600)
			return "line 1 has a key without an owner"
		},
		"a key with a zero": func(path string) string {
			write(path, "good owner\nbad\x00key owner\n", 0o600)
			return "line 2: the key holds a byte"
		},
		"a key twice": func(path string) string {
			write(path, "key alice\r\nother bob\r\nkey bob\r\n", 0o600)
			return "lines 1 and 3 have the same key"
		},
		"a byte order mark": func(path string) string {
			write(path, "\ufeffkey owner\n", 0o600)
			return "line 1: the key holds a byte"
		},
		"a mode that lets the group write": func(path string) string {
			write(path, "key owner\n", 0o620)
			return "mode 0620"
		},
	}
	if os.Geteuid() == 0 {
		list["a link to another user's file"] = func(path string) string {
			write(path+".theirs", "key owner\n", 0o600)
			must(os.Chown(path+".theirs", 12345, 0))
			must(os.Symlink(path+".theirs", path))
			return "belongs to user 12345; it must belong to root or to the daemon's user 0"
		}
	}
	return list
}

// TestTricks: whatever the path names when the daemon starts is refused at once with a reason that names the path. What
// takes the place of a good file while the daemon runs is reported once, with the keys before it still valid, and a
// good file after it is read again.
func TestTricks(t *testing.T) {
	for name, trick := range tricks(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "keys")
			want := trick(path)
			done := make(chan error, 1)
			go func() {
				_, err := Open(path, nil)
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, want %q", err, want)
				}
				if err != nil && strings.ContainsAny(err.Error(), "\x00\r\n") {
					t.Errorf("the error is not one line: %q", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it waits")
			}
			os.RemoveAll(path)

			put(t, path, "first alice\n", 0o600)
			var r reports
			s, err := Open(path, r.report)
			if err != nil {
				t.Fatal(err)
			}
			os.Remove(path)
			os.Remove(path + ".open")
			os.Remove(path + ".theirs")
			want = trick(path)
			for range 3 {
				if o, ok := s.Keys().Find("first"); !ok || o.Name != "alice" {
					t.Errorf("the key from before is %+v, %v", o, ok)
				}
			}
			if len(r.errs) != 1 || !strings.Contains(r.errs[0].Error(), want) {
				t.Errorf("reports %v, want %q once", r.errs, want)
			}
			os.RemoveAll(path)
			put(t, path, "second bob\r\n", 0o600)
			if o, ok := s.Keys().Find("second"); !ok || o.Name != "bob" {
				t.Errorf("the key of the file after it is %+v, %v", o, ok)
			}
		})
	}
}

// TestRewrittenInPlace: a reader meets a file at any point of a rewrite in place. Its keys are then those of the file
// before, of the file after or of a beginning of the latter, never others, and no reader waits.
func TestRewrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	line := func(n int) string {
		letter := string(rune('a' + n))
		return strings.Repeat("k", 20) + letter + " owner" + letter + "\n"
	}
	put(t, path, line(0), 0o600)
	s, err := Open(path, func(*Keys, error) {})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var written strings.Builder
	for n := range 12 {
		text := line(n)
		for _, b := range []byte(text) {
			if _, err := f.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
			written.WriteByte(b)
			k := s.Keys()
			for i := range 26 {
				key, owner, _ := strings.Cut(strings.TrimSpace(line(i)), " ")
				o, ok := k.Find(key)
				if ok && (i > n || !strings.HasPrefix(owner, o.Name)) {
					t.Fatalf("after %q the key %s is %+v", written.String(), key, o)
				}
			}
		}
	}
	s.mu.Lock()
	s.when = s.when.Add(-pause)
	s.mu.Unlock()
	if k := s.Keys(); k.Len() != 12 {
		t.Errorf("%d keys, want 12", k.Len())
	}
}
