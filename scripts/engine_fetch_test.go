package scripts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

func TestFetchFromTheRegistry(t *testing.T) {
	good := pack(t, tree("engine_of_tests-1.2/vendor/llama.cpp/")...)
	f := newFetcher(t, good)
	f.serve(good, lockedArchive, "")
	f.mustFetch("", sum(good))
	f.pip = "/nonexistent/python3" // offline with a warm cache
	f.mustFetch("", sum(good))
	// The tree is not there, but what was built of it is.
	if err := os.RemoveAll(filepath.Join(f.cache, sum(good), "tree")); err != nil {
		t.Fatal(err)
	}
	f.serve(good, lockedArchive, "")
	f.mustFetch("", sum(good))
}

// TestFetchByPip: pip itself gets the package, of which no code runs, and compares the sum.
func TestFetchByPip(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-m", "pip", "--version").Run() != nil {
		t.Skip("NOT CHECKED with pip itself: python3 -m pip is not installed")
	}
	const top = "engine_of_tests-1.2/"
	marker := filepath.Join(t.TempDir(), "ran")
	code := fmt.Sprintf("open(%q, 'w')\n", marker)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"PKG-INFO": "Metadata-Version: 2.1\nName: engine-of-tests\nVersion: 1.2\n",
		"pyproject.toml": "[build-system]\nrequires = ['scikit-build-core']\n" +
			"build-backend = 'scikit_build_core.build'\n",
		"setup.py": code, "scikit_build_core/__init__.py": code, "scikit_build_core/build.py": code,
	} {
		h := &tar.Header{Name: top + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range tree(top + "vendor/llama.cpp/") {
		if err := w.WriteHeader(e); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.Name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t, b.Bytes())
	f.pip = python
	f.environment = []string{"PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + filepath.Join(f.dir, "registry"), "HOME=" +
		os.Getenv("HOME")}
	f.write("registry/"+lockedArchive, b.String(), 0o600)
	locked := f.lock["sha256"]
	f.lock["sha256"] = strings.Repeat("0", 64)
	f.mustRefuse("", append(ways, "pip could not fetch engine-of-tests 1.2")...)
	f.lock["sha256"] = locked
	f.mustFetch("", locked)
	if _, err := os.Stat(marker); err == nil {
		t.Error("code of the package has run")
	}
}

func TestFetchRefuses(t *testing.T) {
	good := pack(t, tree("engine_of_tests-1.2/vendor/llama.cpp/")...)
	other := pack(t, append(tree("engine_of_tests-1.2/vendor/llama.cpp/"), file("engine_of_tests-1.2/more"))...)
	t.Run("a changed archive", func(t *testing.T) {
		f := newFetcher(t, good)
		f.mustRefuse(f.write(lockedArchive, string(other), 0o600), "sum "+sum(other), "engine.lock has "+sum(good))
		f.mustRefuse(f.write(lockedArchive, string(good[:len(good)-9]), 0o600), "is damaged or was changed")
		f.mustFetch(f.write(lockedArchive, string(good), 0o600), sum(good))
	})
	t.Run("other bytes from pip", func(t *testing.T) {
		f := newFetcher(t, good)
		f.serve(other, lockedArchive, "")
		f.mustRefuse("", "pip gave an "+lockedArchive+" with the sum "+sum(other), "engine.lock has "+sum(good))
		f.serve(good, "another-1.2.tar.gz", "")
		f.mustRefuse("", "pip gave another file than "+lockedArchive)
	})
	t.Run("no registry", func(t *testing.T) {
		f := newFetcher(t, good)
		f.serve(good, lockedArchive, "echo no route to pypi.org; exit 1")
		f.mustRefuse("", append(ways, "no route to pypi.org", "pip could not fetch engine-of-tests 1.2")...)
		f.mustRefuse("git", append(ways, "git could not fetch the commit from "+f.lock["repository"])...)
		f.mustRefuse(filepath.Join(f.dir, "none.tar.gz"), append(ways, "no such file or folder")...)
	})
	t.Run("no pip, no git", func(t *testing.T) {
		f := newFetcher(t, good)
		f.path = filepath.Join(f.dir, "tools")
		for _, tool := range []string{"bash", "env", "dirname", "cat", "cut", "mkdir", "rm", "rmdir"} {
			path, err := exec.LookPath(tool)
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(os.MkdirAll(f.path, 0o700), os.Symlink(path, filepath.Join(f.path, tool)))
			if err != nil {
				t.Fatal(err)
			}
		}
		f.mustRefuse("", append(ways, "has no pip", "apt install python3-pip", "brew install python")...)
		f.mustRefuse("git", append(ways, "git is missing")...)
	})
	t.Run("no llama.cpp", func(t *testing.T) {
		f := newFetcher(t, good)
		f.mustRefuse(f.write("a.tar.gz", string(pack(t, file("a/README"))), 0o600), "there is no llama.cpp in it")
		f.mustRefuse(f.write("b.tar.gz", string(pack(t, file("a/include/llama.h"))), 0o600), "ggml/CMakeLists.txt")
		f.mustRefuse(f.write("c.tar.gz", string(good[:len(good)/2]), 0o600), "the archive is damaged")
		f.mustRefuse(f.write("d.tar.gz", "<html>404</html>", 0o600), "the archive is damaged")
		f.mustRefuse("/dev/null", "it is neither a file nor a folder")
	})
}

// TestFetchAnArchive: an archive with another llama.cpp, in any folder of it, with any compression that tar knows.
func TestFetchAnArchive(t *testing.T) {
	for name, top := range map[string]string{"a release": "llama.cpp-b9999/", "bare": "", "with a dot": "./",
		"deep": "a/b/c/", "a blank": "a b/"} {
		t.Run(name, func(t *testing.T) {
			archive := pack(t, append(tree(top), tree(top+"vendored/")...)...)
			f := newFetcher(t, nil)
			f.mustFetch(f.write("-other.tgz", string(archive), 0o600), sum(archive))
		})
	}
}

// TestFetchHostileArchives: what is not a file or a folder, or would lie outside, is refused or left out.
func TestFetchHostileArchives(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "there"), []byte("as before"), 0o600); err != nil {
		t.Fatal(err)
	}
	const top = "x/"
	there := filepath.Join(outside, "there")
	for name, c := range map[string]struct {
		entries []*tar.Header
		says    string // "": the tree may be used without these entries
	}{
		"a name above":             {[]*tar.Header{file("../evil")}, "leads out of it"},
		"a name above, from below": {[]*tar.Header{file(top + "src/../../../evil")}, "leads out of it"},
		"the tree is above":        {tree("../llama.cpp/"), "leads out of it"},
		"an absolute name":         {[]*tar.Header{file(filepath.Join(outside, "evil"))}, "leads out of it"},
		"a link to a folder, and a file in it": {[]*tar.Header{link(tar.TypeSymlink, top+"src/out", outside),
			file(top + "src/out/evil")}, "unpacking failed"},
		"a link to a file":   {[]*tar.Header{link(tar.TypeSymlink, top+"src/a.h", there)}, ""},
		"a link above":       {[]*tar.Header{link(tar.TypeSymlink, top+"src/a.h", "../../../../there")}, ""},
		"a hard link":        {[]*tar.Header{link(tar.TypeLink, top+"src/a.h", there)}, "failed"},
		"a pipe":             {[]*tar.Header{link(tar.TypeFifo, top+"src/a.h", "")}, ""},
		"a program for root": {[]*tar.Header{{Name: top + "a", Typeflag: tar.TypeReg, Mode: 0o6777, Size: 3}}, ""},
		"the tree is a link": {[]*tar.Header{link(tar.TypeSymlink, "y", outside), file("y/include/llama.h")},
			"failed"},
		"a name with a newline": {[]*tar.Header{file(top + "src/a\nb")}, "a name in it has a line end"},
	} {
		t.Run(name, func(t *testing.T) {
			entries := append(tree(top), c.entries...)
			if c.says == "leads out of it" || name == "the tree is a link" {
				entries = c.entries
				if name != "the tree is above" && name != "the tree is a link" {
					entries = append(entries, tree(top)...)
				}
			}
			archive := pack(t, entries...)
			f := newFetcher(t, nil)
			path := f.write("other.tgz", string(archive), 0o600)
			if c.says != "" {
				f.mustRefuse(path, c.says)
			} else {
				f.mustFetch(path, sum(archive))
			}
			err := filepath.WalkDir(f.cache, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() && !d.Type().IsRegular() {
					t.Errorf("%s is in the tree: %s", path, d.Type())
				}
				if st, err := d.Info(); err == nil && st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 && !d.IsDir() {
					t.Errorf("%s has the mode %s", path, st.Mode())
				}
				return err
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	if all, err := os.ReadDir(outside); err != nil || len(all) != 1 || read(t, outside, "there") != "as before" {
		t.Errorf("outside are %v (%v)", all, err)
	}
}

// TestFetchInterrupted: what an interrupted run has left is neither used nor kept.
func TestFetchInterrupted(t *testing.T) {
	good := pack(t, tree("engine_of_tests-1.2/vendor/llama.cpp/")...)
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			f := newFetcher(t, good)
			called, _ := f.gate(good)
			cmd := f.command("engine-fetch.sh", "")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitfor.True(t, "pip is called", exists(called))
			if err := syscall.Kill(-cmd.Process.Pid, signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("an interrupted run ends well")
			}
			left := f.left()
			if half := len(left) == 1 && strings.HasPrefix(left[0], ".new-"); half != (signal == syscall.SIGKILL) {
				t.Errorf("the cache has %q", left)
			}
			f.serve(good, lockedArchive, "")
			f.mustFetch("", sum(good))
		})
	}
}

// TestFetchTwoAtOnce: the second waits for the first, and takes its tree.
func TestFetchTwoAtOnce(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("NOT CHECKED: flock is not installed, and two runs may both fetch")
	}
	good := pack(t, tree("engine_of_tests-1.2/vendor/llama.cpp/")...)
	f := newFetcher(t, good)
	called, open := f.gate(good)
	var out [3]bytes.Buffer
	var commands []*exec.Cmd
	for i := range out {
		cmd := f.command("engine-fetch.sh", "")
		cmd.Stdout = &out[i]
		says := filepath.Join(f.dir, fmt.Sprint("says", i))
		stderr, err := os.Create(says)
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, cmd)
		if i == 0 {
			waitfor.True(t, "pip is called", exists(called))
		} else {
			waitfor.True(t, "another waits", func() bool {
				return strings.Contains(read(t, says), "waiting for another")
			})
		}
	}
	open()
	for i, cmd := range commands {
		if err := cmd.Wait(); err != nil || strings.TrimSpace(out[i].String()) != filepath.Join(f.cache, sum(good),
			"tree") {
			t.Errorf("run %d: %q, %v", i, out[i].String(), err)
		}
	}
	if calls := read(t, f.dir, "calls"); calls != "called\n" {
		t.Errorf("pip was called %d times", strings.Count(calls, "\n"))
	}
	f.mustFetch("", sum(good))
}

// TestFetchOnAFullDisk: a disk that fills up while the tree is unpacked, copied or fetched leaves nothing and is named.
func TestFetchOnAFullDisk(t *testing.T) {
	good := pack(t, tree("engine_of_tests-1.2/vendor/llama.cpp/")...)
	t.Run("a tar that fails", func(t *testing.T) {
		tar, err := exec.LookPath("tar")
		if err != nil {
			t.Fatal(err)
		}
		f := newFetcher(t, good)
		path := f.path
		f.path = filepath.Dir(f.write("full/tar", fmt.Sprintf(`#!/bin/sh
case $1 in -t*) exec %[1]q "$@" ;; esac
%[1]q "$@"
echo "tar: write: No space left on device" >&2
exit 2
`, tar), 0o700)) + ":" + path
		f.serve(good, lockedArchive, "")
		f.mustRefuse("", "No space left on device", "is the disk full?", "are free in")
		f.path = path
		f.mustFetch("", sum(good))
	})
	t.Run("a small disk", func(t *testing.T) {
		f := newFetcher(t, nil)
		if err := os.MkdirAll(f.cache, 0o700); err != nil {
			t.Fatal(err)
		}
		mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", f.cache)
		if out, err := mount.CombinedOutput(); err != nil {
			t.Skipf("NOT CHECKED on a small disk: it cannot be mounted here: %s", bytes.TrimSpace(out))
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", f.cache).CombinedOutput(); err != nil {
				t.Errorf("umount: %v\n%s", err, out)
			}
		})
		large := tree("x/")
		for i := range 200 { // a page each
			large = append(large, file(fmt.Sprintf("x/src/%d.cpp", i)))
		}
		archive := pack(t, large...)
		f.mustRefuse(f.write("large.tgz", string(archive), 0o600), "No space left on device", "is the disk full?")
		small := pack(t, tree("x/")...)
		f.mustFetch(f.write("small.tgz", string(small), 0o600), sum(small))
	})
}

// TestFetchFromItsRepository: the locked commit and no other, and what a hook of git has in its environment is without
// effect.
func TestFetchFromItsRepository(t *testing.T) {
	f := newFetcher(t, nil)
	repository := filepath.Join(f.dir, "repository")
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", repository, "-c", "user.name=t", "-c",
			"user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, e := range tree("repository/") {
		f.write(e.Name, e.Name, 0o600)
	}
	if err := os.Symlink("/etc", filepath.Join(repository, "src/out")); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "locked")
	f.lock["commit"], f.lock["repository"] = git("rev-parse", "HEAD"), repository
	git("commit", "-qm", "newer", "--allow-empty")
	f.environment = []string{"GIT_DIR=" + filepath.Join(repository, ".git"), "GIT_WORK_TREE=" + repository}
	head := git("rev-parse", "HEAD")
	f.mustFetch("git", "git-"+f.lock["commit"])
	got := filepath.Join(f.cache, "git-"+f.lock["commit"], "tree")
	for _, name := range []string{".git", "src/out"} {
		if _, err := os.Lstat(filepath.Join(got, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is in the tree (%v)", name, err)
		}
	}
	if now := git("rev-parse", "HEAD"); now != head {
		t.Errorf("the repository of the environment was at %s and is at %s", head, now)
	}
	if err := os.Rename(repository, repository+".away"); err != nil { // no network, a warm cache
		t.Fatal(err)
	}
	f.mustFetch("git", "git-"+f.lock["commit"])
}

// TestEngineRefusesAChangedTree: a tree in the cache that has changed since it was unpacked is not built.
func TestEngineRefusesAChangedTree(t *testing.T) {
	archive := pack(t, tree("x/")...)
	for name, change := range map[string]func(file string) error{
		"another text": func(file string) error { return os.WriteFile(file, []byte("evil"), 0o600) },
		"a file more":  func(file string) error { return os.WriteFile(file+".cpp", nil, 0o600) },
		"a file less":  os.Remove,
		"another name": func(file string) error { return os.Rename(file, file+".cpp") },
		"a link instead": func(file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFetcher(t, archive)
			f.mustFetch(f.write("other.tgz", string(archive), 0o600), sum(archive))
			if err := change(filepath.Join(f.cache, sum(archive), "tree/src/llama.cpp")); err != nil {
				t.Fatal(err)
			}
			cmd := f.command("engine.sh", filepath.Join(f.dir, "other.tgz"), "", "")
			cmd.Env = append(cmd.Env, "CMAKE=/bin/false")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "have changed since it was unpacked") ||
				!strings.Contains(string(out), "remove "+filepath.Join(f.cache, sum(archive))) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
