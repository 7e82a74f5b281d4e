package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recipes is a store with one model, base.gguf.
func recipes(t testing.TB) *Store {
	t.Helper()
	home := t.TempDir()
	s := New(filepath.Join(home, "models"), func(name string) string {
		if name == "HOME" {
			return home
		}
		return ""
	})
	if err := os.MkdirAll(s.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), "base.gguf")
	if err := os.WriteFile(path, []byte("GGUF\x03\x00\x00\x00 rest"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func scanned(t testing.TB, s *Store) *Catalog {
	t.Helper()
	c, err := s.Scan(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRecipes: a recipe is listed and found as a model, shares the file of its origin, is not whole without it, and is
// deleted alone.
func TestRecipes(t *testing.T) {
	s := recipes(t)
	for _, r := range []Recipe{
		{Name: "team/Mario:v1", From: "base", System: "You are Mario.", Parameters: json.RawMessage(`{"top_k":3}`),
			Created: time.Unix(1, 0)},
		{Name: "copy", From: "BASE"},
	} {
		if err := s.SetRecipe(r); err != nil {
			t.Fatal(err)
		}
	}
	c := scanned(t, s)
	if len(c.Problems) > 0 {
		t.Errorf("%+v", c.Problems)
	}
	for name, id := range map[string]string{"team/mario:v1": "team/Mario:v1", "copy": "copy", "copy:latest": "copy",
		"Copy": "copy"} {
		m, err := c.Lookup(name)
		if err != nil || m.ID() != id || m.Path() != filepath.Join(s.Dir(), "base.gguf") || m.Recipe == nil ||
			m.Whole() != nil {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	m, _ := c.Lookup("team/mario:v1")
	if d, err := m.Details(); err != nil || d.System != "You are Mario." || d.Options[0] != "top_k 3" ||
		m.Recipe.Plain() {
		t.Errorf("%+v, %v", d, err)
	}
	base, _ := c.Lookup("base")
	if made := c.MadeOf(base); len(made) != 2 {
		t.Errorf("%v", made)
	}
	if err := s.Remove(m); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(base.Path()); err != nil {
		t.Fatal(err)
	}
	c = scanned(t, s)
	if _, err := c.Lookup("team/mario:v1"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if m, err := c.Lookup("copy"); err != nil || !errors.Is(m.Whole(), ErrIncomplete) {
		t.Errorf("%+v, %v", m, err)
	}
	long := strings.Repeat("x", 128) + "/" + strings.Repeat("y", 100)
	for _, name := range []string{"", "../x", "hf.co/a/b", "a b", long} {
		if err := s.SetRecipe(Recipe{Name: name, From: "base"}); !errors.Is(err, ErrName) {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if err := s.SetRecipe(Recipe{Name: "big", From: "base", System: strings.Repeat("x", maxManifest)}); err == nil ||
		!strings.Contains(err.Error(), "the maximum is") {
		t.Errorf("%.100v", err)
	}
}

// TestDamagedRecipes: what is no recipe is a problem, and hides nothing else.
func TestDamagedRecipes(t *testing.T) {
	s := recipes(t)
	if err := os.MkdirAll(s.recipeDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.json": "{", "b.json": `{"version":9,"name":"b","from":"base"}`,
		"c.json": `{"version":1,"name":"d","from":"base"}`, "e.json": `{"version":1,"name":"../e","from":"base"}`} {
		if err := os.WriteFile(filepath.Join(s.recipeDir(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := scanned(t, s)
	if len(c.Problems) != 4 {
		t.Errorf("%+v", c.Problems)
	}
	if m, err := c.Lookup("base"); err != nil || m.Recipe != nil {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestBlobs: a file is kept under its digest when it is GGUF and whole, and goes with the last recipe that is made of
// it.
func TestBlobs(t *testing.T) {
	s := recipes(t)
	data := []byte("GGUF\x03\x00\x00\x00 a blob")
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	for text, want := range map[string]string{"GGUF": "its SHA-256 is", "none": "it is not GGUF"} {
		err := s.PutBlob(sum, strings.NewReader(text))
		if !errors.Is(err, ErrBlob) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	other := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("none")))
	if err := s.PutBlob(other, strings.NewReader("none")); !errors.Is(err, ErrBlob) {
		t.Error(err)
	}
	if err := s.PutBlob(sum, &broken{data[:5]}); err == nil {
		t.Error("a body that does not come whole")
	}
	if files, err := os.ReadDir(s.blobDir()); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	if err := s.PutBlob(sum, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if from, ok := scanned(t, s).ByDigest(sum); !ok || from != sum {
		t.Errorf("%q %v", from, ok)
	}
	for _, name := range []string{"one", "two"} {
		if err := s.SetRecipe(Recipe{Name: name, From: sum}); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"one", "two"} {
		m, err := scanned(t, s).Lookup(name)
		if err != nil || m.Bytes != int64(len(data)) {
			t.Fatalf("%+v, %v", m, err)
		}
		if err := s.Remove(m); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.blobFile(sum)); (err == nil) != (i == 0) {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestOldBlobsGo: a file that nothing was made of for a day is deleted with the next one that comes.
func TestOldBlobsGo(t *testing.T) {
	s := recipes(t)
	old := filepath.Join(s.blobDir(), uploadPrefix+"1")
	if err := os.MkdirAll(s.blobDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-2*blobStays)); err != nil {
		t.Fatal(err)
	}
	s.pruneBlobs()
	if _, err := os.Stat(old); err == nil {
		t.Error("it is there")
	}
}

// TestBlobsOfUnreadableRecipes: a recipe that cannot be read keeps every blob, whatever it is made of.
func TestBlobsOfUnreadableRecipes(t *testing.T) {
	s := recipes(t)
	data := []byte("GGUF\x03\x00\x00\x00 a blob")
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	if err := s.PutBlob(sum, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(s.blobFile(sum), time.Time{}, time.Now().Add(-2*blobStays)); err != nil {
		t.Fatal(err)
	}
	if err := s.SetRecipe(Recipe{Name: "one", From: sum}); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(s.recipeDir(), "two.json")
	if err := os.WriteFile(later, []byte(`{"version":2,"name":"two","from":"`+sum+`"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := scanned(t, s).Lookup("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(m); err != nil {
		t.Fatal(err)
	}
	s.pruneBlobs()
	if _, err := os.Stat(s.blobFile(sum)); err != nil {
		t.Errorf("the file of a recipe of a later version is gone: %v", err)
	}
	if err := os.Remove(later); err != nil {
		t.Fatal(err)
	}
	if s.pruneBlobs(); len(blobs(t, s)) != 0 {
		t.Error("the file is there without a recipe")
	}
}

// TestBlobGone: no recipe is made of a blob that was deleted meanwhile, and one whose blob is gone can be deleted.
func TestBlobGone(t *testing.T) {
	s := recipes(t)
	data := []byte("GGUF\x03\x00\x00\x00 a blob")
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	if err := s.PutBlob(sum, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := s.SetRecipe(Recipe{Name: "one", From: sum}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.blobFile(sum)); err != nil {
		t.Fatal(err)
	}
	if err := s.SetRecipe(Recipe{Name: "two", From: sum}); !errors.Is(err, ErrBlob) {
		t.Errorf("a recipe of a file that is gone: %v", err)
	}
	m, err := scanned(t, s).Lookup("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(m); err != nil {
		t.Errorf("delete a recipe whose file is gone: %v", err)
	}
}

// TestForeignBlobEndsAtOnce: no more of a file that is not GGUF is read than its beginning.
func TestForeignBlobEndsAtOnce(t *testing.T) {
	r := &endless{}
	if err := recipes(t).PutBlob("sha256:"+strings.Repeat("0", 64), r); !errors.Is(err, ErrBlob) ||
		!strings.Contains(err.Error(), "it is not GGUF") {
		t.Error(err)
	}
	if r.n > 1<<20 {
		t.Errorf("%d bytes were read", r.n)
	}
}

// endless has 64 MiB that are no GGUF file.
type endless struct{ n int }

func (r *endless) Read(b []byte) (int, error) {
	if r.n >= 64<<20 {
		return 0, io.EOF
	}
	clear(b)
	r.n += len(b)
	return len(b), nil
}

func blobs(t *testing.T, s *Store) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(s.blobDir())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// broken ends with an error after some bytes.
type broken struct{ b []byte }

func (r *broken) Read(b []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, errors.New("the connection is lost")
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

// FuzzRecipe: whatever the file of a recipe holds, a scan ends, and what it lists has a valid name and stays in place.
func FuzzRecipe(f *testing.F) {
	for _, text := range []string{`{"version":1,"name":"x","from":"base"}`, `{"version":1,"name":"../x"}`, `[`,
		`{"version":1,"name":"x","from":"/etc/passwd"}`,
		`{"version":1,"name":"x","from":"sha256:` + strings.Repeat("0", 64) + `"}`} {
		f.Add([]byte(text))
	}
	s := recipes(f)
	if err := os.MkdirAll(s.recipeDir(), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(s.recipeDir(), "x.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		c := scanned(t, s)
		for i := range c.Models {
			if m := &c.Models[i]; m.Recipe != nil && (!strings.EqualFold(m.ID(), "x") || len(m.Files) == 0) {
				t.Errorf("%+v", m)
			}
		}
	})
}
