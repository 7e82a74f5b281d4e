package apikeys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const long = "0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	k, err := Parse([]byte("# keys\n\n" + long + " alice\n\tshort\tbob a comment # of any words\r\nsecond alice"))
	if err != nil {
		t.Fatal(err)
	}
	if k.Len() != 3 || k.Owners() != 2 || k.Short() != 2 {
		t.Errorf("%d keys, %d owners, %d short", k.Len(), k.Owners(), k.Short())
	}
	for key, name := range map[string]string{long: "alice", "short": "bob", "second": "alice"} {
		o, ok := k.Find(key)
		if !ok || o.Name != name || o.ID != OwnerID(name) || o.ID < FirstID || k.Name(o.ID) != name {
			t.Errorf("%s is %+v, %v", key, o, ok)
		}
	}
	for _, key := range []string{"", "alice", "shor", "short ", "Short", "# keys", "#",
		strings.Repeat("x", MaxKeyBytes+1)} {
		if o, ok := k.Find(key); ok {
			t.Errorf("%q is %+v", key, o)
		}
	}
	if k, err := Parse(nil); err != nil || k.Len() != 0 {
		t.Errorf("an empty file: %v, %v", k, err)
	}
}

func TestParseErrors(t *testing.T) {
	a, b := collision(t)
	for file, want := range map[string]string{
		"secretkey\n":                          "line 1 has a key without an owner; a line is KEY OWNER [COMMENT]",
		"\n#\nsecretkey a/b\n":                 `line 3: the owner "a/b" holds '/'`,
		"secretkey \x00\n":                     "line 1: the owner",
		"secret\x00key a\n":                    "line 1: the key holds a byte",
		"secretkeyé a\n":                       "line 1: the key holds a byte",
		"secretkey a\nx b\nsecretkey c":        "lines 1 and 3 have the same key",
		"secretkey " + strings.Repeat("o", 65): "line 1: the owner's name has 65 bytes; the maximum is 64",
		strings.Repeat("k", 513) + " a":        "line 1: the key has 513 bytes; the maximum is 512",
		strings.Repeat("#", MaxFileBytes+1):    "more than 1048576 bytes",
		string(manyKeys(MaxKeys + 1)):          "line 10001: there are more than 10000 keys",
		"secretkey \xff\xfe":                   "line 1: the owner",
		"secretkey " + a + "\nx2 " + b + "\n\n": fmt.Sprintf("line 2: the owners %q and %q get the same number by "+
			"chance", a, b),
	} {
		_, err := Parse([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", file, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: the error shows the key: %v", file, err)
		}
	}
}

func manyKeys(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "k%d o\n", i)
	}
	return b.Bytes()
}

// collision finds two owners with the same number: with 31 bits some 60,000 names have such a pair.
func collision(t *testing.T) (a, b string) {
	t.Helper()
	seen := map[uint32]string{}
	for i := range 1 << 20 {
		name := fmt.Sprint("o", i)
		if other, ok := seen[OwnerID(name)]; ok {
			return other, name
		}
		seen[OwnerID(name)] = name
	}
	t.Fatal("no two owners have the same number")
	return "", ""
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

// reports collects what a Store says.
type reports struct {
	mu   sync.Mutex
	errs []error
	n    int
}

func (r *reports) report(_ *Keys, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	var r reports
	has := func(s *Store, key, owner string) {
		t.Helper()
		if o, ok := s.Keys().Find(key); ok != (owner != "") || o.Name != owner {
			t.Errorf("%s is %+v, %v; want %q", key, o, ok, owner)
		}
	}
	put(t, path, "one alice\n", 0o600)
	s, err := Open(path, r.report)
	if err != nil {
		t.Fatal(err)
	}
	has(s, "one", "alice")
	put(t, path, "two bob\n", 0o400)
	has(s, "one", "")
	has(s, "two", "bob")
	if r.n != 1 || len(r.errs) != 0 {
		t.Errorf("%d reports: %v", r.n, r.errs)
	}
	// Each bad file is reported once, and the keys before it stay.
	for i, bad := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"three\n", 0o600, "line 1 has a key without an owner"},
		{"three carol\n", 0o640, "mode 0640"},
		{"three carol\n", 0o604, "chmod 600"},
	} {
		put(t, path, bad.text, bad.mode)
		for range 3 {
			has(s, "two", "bob")
			has(s, "three", "")
		}
		if len(r.errs) != i+1 || !strings.Contains(r.errs[i].Error(), bad.want) {
			t.Errorf("%q %04o: %v, want %q once", bad.text, bad.mode, r.errs, bad.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	has(s, "two", "bob")
	has(s, "two", "bob")
	if n := len(r.errs); n != 4 || !strings.Contains(r.errs[3].Error(), "there is no such file") {
		t.Errorf("a missing file: %v", r.errs)
	}
	// An empty file is valid: it takes all keys away.
	put(t, path, "# none\n", 0o600)
	has(s, "two", "")
	put(t, path, "four dave\n", 0o600)
	has(s, "four", "dave")
	// The same size and time, by a rewrite in place: found while the file is young.
	old := time.Now().Add(-time.Second)
	put(t, path, "five erin\n", 0o600)
	os.Chtimes(path, old, old)
	has(s, "five", "erin")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("nine erin\n")
	f.Close()
	os.Chtimes(path, old, old)
	s.mu.Lock()
	s.when = s.when.Add(-pause)
	s.mu.Unlock()
	has(s, "nine", "erin")
	has(s, "five", "")
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	open := func(want string) {
		t.Helper()
		if _, err := Open(path, nil); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	open("there is no such file")
	put(t, path, "# nothing\n", 0o600)
	open("holds no key")
	put(t, path, "k o\n", 0o644)
	open("mode 0644, so that other users can read the keys; chmod 600")
	os.Remove(path)
	os.Mkdir(path, 0o700)
	open("is a directory, not a file")
	if os.Geteuid() == 0 {
		os.Remove(path)
		put(t, path, "k o\n", 0o600)
		os.Chown(path, 12345, 0)
		open("belongs to user 12345")
	}
}

// TestStoreRaces: while a writer replaces the file, by rename and in place, every answer is that of a whole file or of
// the keys before.
func TestStoreRaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	put(t, path, "a alice\nb bob\n", 0o600)
	s, err := Open(path, func(*Keys, error) {})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if o, ok := s.Keys().Find("a"); !ok || o.Name != "alice" && o.Name != "carol" {
					t.Errorf("%+v, %v", o, ok)
					return
				}
			}
		})
	}
	for i := range 200 {
		put(t, path, []string{"a alice\nb bob\n", "a carol\n", "broken\n"}[i%3],
			[]os.FileMode{0o600, 0o600, 0o600, 0o666}[i%4])
	}
	close(stop)
	wg.Wait()
}

// FuzzParse: no file makes it panic; what it accepts obeys the limits, and every key has its owner.
func FuzzParse(f *testing.F) {
	f.Add([]byte("# keys\n" + long + " alice laptop\n"))
	f.Add([]byte("k o\r\n\tk2\to c c\n\n"))
	f.Add([]byte("k\x00 o\nk \xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := Parse(b)
		if err != nil {
			if k != nil {
				t.Error("keys with an error")
			}
			return
		}
		if k.Len() > MaxKeys || k.Owners() > k.Len() || k.Short() > k.Len() {
			t.Errorf("%d keys, %d owners, %d short", k.Len(), k.Owners(), k.Short())
		}
		for line := range bytes.Lines(b) {
			fields := bytes.Fields(line)
			if len(fields) < 2 || fields[0][0] == '#' {
				continue
			}
			o, ok := k.Find(string(fields[0]))
			if !ok || o.Name != string(fields[1]) || o.ID < FirstID || o.ID == 1<<32-1 {
				t.Errorf("the key of %q is %+v, %v", line, o, ok)
			}
		}
	})
}
