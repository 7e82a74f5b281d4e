package scripts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tree is a llama.cpp of five files, as the entries of an archive with the folder top.
func tree(top string) []*tar.Header {
	var all []*tar.Header
	for _, name := range []string{"CMakeLists.txt", "include/llama.h", "ggml/CMakeLists.txt", "src/llama.cpp",
		"cmake/common.cmake"} {
		all = append(all, file(top+name))
	}
	return all
}

func file(name string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}
}

func link(kind byte, name, to string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: kind, Linkname: to, Mode: 0o644}
}

// pack makes an archive; the content of a file is its name.
func pack(t *testing.T, entries ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		if err := w.WriteHeader(e); err != nil {
			t.Fatal(err)
		}
		if e.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(e.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// fetcher is a repository with the scripts of this one, another lock and an empty cache.
type fetcher struct {
	t           *testing.T
	dir, cache  string
	lock        map[string]string
	path        string // PATH
	pip         string // the program that stands for python3
	environment []string
}

const lockedArchive = "engine_of_tests-1.2.tar.gz"

func newFetcher(t *testing.T, archive []byte) *fetcher {
	t.Helper()
	f := &fetcher{t: t, dir: t.TempDir(), path: os.Getenv("PATH"), pip: "/nonexistent/python3"}
	f.cache = filepath.Join(f.dir, "cache", "uma-serve", "engine")
	f.lock = map[string]string{"llama_cpp": "1.2.3", "commit": strings.Repeat("c0ffee01", 5),
		"repository": filepath.Join(f.dir, "nowhere"), "package": "engine-of-tests", "package_version": "1.2",
		"archive": lockedArchive, "sha256": sum(archive)}
	for _, name := range []string{"engine.sh", "engine-fetch.sh", "engine-pip.sh", "engine-sum.sh"} {
		text := read(t, name)
		f.write("scripts/"+name, text, 0o700)
	}
	return f
}

// write writes a file of the repository and returns its path.
func (f *fetcher) write(name, text string, mode fs.FileMode) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode)); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// command is scripts/engine-fetch.sh for ENGINE=engine, or another of the scripts.
func (f *fetcher) command(script string, args ...string) *exec.Cmd {
	f.t.Helper()
	var lock strings.Builder
	for key, value := range f.lock {
		fmt.Fprintf(&lock, "%s=%s\n", key, value)
	}
	f.write("engine.lock", lock.String(), 0o600)
	cmd := exec.CommandContext(f.t.Context(), filepath.Join(f.dir, "scripts", script), args...)
	cmd.Env = append([]string{"PATH=" + f.path, "HOME=" + f.dir, "XDG_CACHE_HOME=" + filepath.Join(f.dir, "cache"),
		"PYTHON=" + f.pip, "GOFLAGS=", "GOCACHE=" + filepath.Join(f.dir, "go")}, f.environment...)
	return cmd
}

// fetch runs scripts/engine-fetch.sh.
func (f *fetcher) fetch(engine string) (tree, said string, err error) {
	f.t.Helper()
	var stderr strings.Builder
	cmd := f.command("engine-fetch.sh", engine)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), stderr.String(), err
}

// mustFetch fetches a whole tree, and nothing but the tree is in the cache.
func (f *fetcher) mustFetch(engine, name string) {
	f.t.Helper()
	got, said, err := f.fetch(engine)
	if want := filepath.Join(f.cache, name, "tree"); err != nil || got != want {
		f.t.Fatalf("ENGINE=%s: %v, %q, want %q\n%s", engine, err, got, want, said)
	}
	for _, e := range tree("") {
		if _, err := os.Stat(filepath.Join(got, e.Name)); err != nil {
			f.t.Error(err)
		}
	}
	cmd := f.command("engine-sum.sh", got)
	if out, err := cmd.Output(); err != nil || string(out) != read(f.t, filepath.Join(filepath.Dir(got), "sources")) {
		f.t.Errorf("the sum of the sources is %s (%v), recorded is %s", out, err,
			read(f.t, filepath.Join(filepath.Dir(got), "sources")))
	}
	if left := f.left(); !slices.Equal(left, []string{name}) {
		f.t.Errorf("the cache has %q, want %q alone", left, name)
	}
}

// left lists what is in the cache beside its lock.
func (f *fetcher) left() (names []string) {
	all, err := os.ReadDir(f.cache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	for _, e := range all {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// mustRefuse fetches nothing, says each part of want, and leaves nothing in the cache.
func (f *fetcher) mustRefuse(engine string, want ...string) {
	f.t.Helper()
	got, said, err := f.fetch(engine)
	if err == nil || got != "" {
		f.t.Errorf("ENGINE=%s: %q\n%s", engine, got, said)
	}
	for _, part := range want {
		if !strings.Contains(said, part) {
			f.t.Errorf("ENGINE=%s: no %q in:\n%s", engine, part, said)
		}
	}
	if left := f.left(); len(left) > 0 {
		f.t.Errorf("ENGINE=%s: %q are left in the cache", engine, left)
	}
}

// ways are parts of what ends a message about a source that could not be had.
var ways = []string{"the registry of Python packages:", "make ENGINE=/path/to/" + lockedArchive, "make ENGINE=git"}

// serve has pip deliver an archive under a name; do are commands of a shell that run first.
func (f *fetcher) serve(archive []byte, name, do string) {
	f.t.Helper()
	from := f.write("registry/archive", string(archive), 0o600)
	f.pip = f.write("bin/python3", fmt.Sprintf(`#!/bin/sh
case "$*" in *--version*) exit 0 ;; esac
echo called >>%[1]q/calls
while [ "$1" != -d ]; do shift; done
%[2]s
cp %[3]q "$2/%[4]s"
`, f.dir, do, from, name), 0o700)
}

// gate makes a pip that says when it was called, and then waits until opened.
func (f *fetcher) gate(archive []byte) (called string, open func()) {
	f.t.Helper()
	gate := filepath.Join(f.dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		f.t.Fatal(err)
	}
	called = filepath.Join(f.dir, "called")
	f.serve(archive, lockedArchive, fmt.Sprintf("head -c 20 %q >\"$2/half\"\n: >%q\nread line <%q", f.dir+
		"/registry/archive", called, gate))
	return called, func() {
		if err := os.WriteFile(gate, []byte("go on\n"), 0); err != nil {
			f.t.Error(err)
		}
	}
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}
