// Package scripts tests what make does beside compiling: installing, fuzzing, saying what takes long.
package scripts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var commands = []string{"uma-serve", "uma-cli", "uma-sim", "uma-bench"}

// bin builds the commands once, without the engine: what is installed does not depend on it.
func bin(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds all commands")
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	// go test remembers a result as long as the files that the test itself has read stay the same.
	for _, pattern := range []string{"*.sh", "../Makefile", "../contrib/*.toml", "../contrib/*/*", "../contrib/*/*/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() {
				read(t, f)
			}
		}
	}
	return dir
}

var tempDir string // removed by TestMain

var built = sync.OnceValues(func() (string, error) {
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", tempDir, "../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	return tempDir, nil
})

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if tempDir, err = os.MkdirTemp("", "uma-scripts"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(tempDir)
		return m.Run()
	}())
}

// install runs install.sh with these variables and returns what it said.
func install(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./install.sh")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "BIN=" + bin(t)}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("install.sh %q: %v\n%s", env, err, out)
	}
	return string(out)
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// needsSystemd fails where the units can be checked by nothing: a skipped check would look like a passed one.
func needsSystemd(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is Linux's")
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Fatal("systemd-analyze is missing: install the package systemd; the units are not checked without it")
	}
}

// TestInstallNamesTheFinalPath: with DESTDIR files lie below it, and no file names it.
func TestInstallNamesTheFinalPath(t *testing.T) {
	stage := t.TempDir()
	install(t, "DESTDIR="+stage, "PREFIX=/usr", "HOME="+t.TempDir())
	want := []string{
		"/usr/share/doc/uma-serve/uma-serve.toml", "/usr/share/doc/uma-serve/protocol.md",
	}
	for _, c := range commands {
		want = append(want, "/usr/bin/"+c, "/usr/share/bash-completion/completions/"+c,
			"/usr/share/zsh/site-functions/_"+c, "/usr/share/fish/vendor_completions.d/"+c+".fish",
			"/usr/share/man/man1/"+c+".1")
	}
	if runtime.GOOS == "linux" {
		want = append(want, "/usr/share/systemd/user/uma-serve.service", "/usr/share/systemd/user/uma-serve.socket",
			"/usr/lib/systemd/system/uma-serve.service", "/usr/lib/systemd/system/uma-serve.socket",
			"/usr/lib/sysusers.d/uma-serve.conf")
	}
	for _, path := range want {
		st, err := os.Stat(stage + path)
		if err != nil {
			t.Error(err)
		} else if program := strings.HasPrefix(path, "/usr/bin/"); program != (st.Mode()&0o111 != 0) ||
			st.Mode()&0o444 != 0o444 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
	}
	err := filepath.WalkDir(stage, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, stage+"/usr/bin/") {
			return err
		}
		text := read(t, path)
		if strings.Contains(text, stage) {
			t.Errorf("%s names DESTDIR", path)
		}
		if left := regexp.MustCompile(`@[A-Z]+@`).FindString(text); left != "" {
			t.Errorf("%s still has %s", path, left)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	for _, kind := range []string{"share/systemd/user", "lib/systemd/system"} {
		if text := read(t, stage, "usr", kind, "uma-serve.service"); !strings.Contains(text,
			"\nExecStart=/usr/bin/uma-serve\n") {
			t.Errorf("%s: no ExecStart=/usr/bin/uma-serve in\n%s", kind, text)
		}
	}
}

// TestInstallForOneUser: a prefix in the home directory puts the units where systemd looks for that user's, and none
// for the system.
func TestInstallForOneUser(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("systemd is Linux's")
	}
	for _, c := range []struct{ prefix, xdg, units string }{
		{".local", "", ".local/share/systemd/user"},
		{"opt/uma", "", ".local/share/systemd/user"},
		{".local", "data", "data/systemd/user"},
	} {
		home := t.TempDir()
		env := []string{"HOME=" + home, "PREFIX=" + filepath.Join(home, c.prefix)}
		if c.xdg != "" {
			env = append(env, "XDG_DATA_HOME="+filepath.Join(home, c.xdg))
		}
		out := install(t, env...)
		if text := read(t, home, c.units, "uma-serve.service"); !strings.Contains(text,
			"\nExecStart="+filepath.Join(home, c.prefix, "bin", "uma-serve")+"\n") {
			t.Errorf("%+v:\n%s", c, text)
		}
		if _, err := os.Stat(filepath.Join(home, c.prefix, "lib")); err == nil || strings.Contains(out, "sysusers") {
			t.Errorf("%+v: files for the system are installed: %s", c, out)
		}
		if !strings.Contains(out, "systemctl --user enable --now uma-serve.socket") {
			t.Errorf("%+v: %s", c, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), "./install.sh")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BIN=" + bin(t), "PREFIX=relative"}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "must be an absolute path") {
		t.Errorf("PREFIX=relative: %v %s", err, out)
	}
}

// TestUnits: systemd finds nothing wrong with the installed units, and the system's service is confined.
func TestUnits(t *testing.T) {
	needsSystemd(t)
	prefix, home := filepath.Join(t.TempDir(), "usr"), t.TempDir()
	install(t, "PREFIX="+prefix, "HOME="+home)
	analyze := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", args...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home, "SYSTEMD_LOG_LEVEL=warning")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, c := range []struct{ scope, dir string }{{"--user", "share/systemd/user"},
		{"--system", "lib/systemd/system"}} {
		service, socket := filepath.Join(prefix, c.dir, "uma-serve.service"),
			filepath.Join(prefix, c.dir, "uma-serve.socket")
		out, err := analyze("verify", c.scope, "--man=no", service, socket)
		// What systemd says of units of this machine is not about ours.
		ours := slices.DeleteFunc(strings.Split(strings.TrimSpace(out), "\n"),
			func(l string) bool { return !strings.Contains(l, "uma-serve") })
		if err != nil && len(ours) == 0 && out != "" {
			t.Logf("systemd-analyze verify %s: %v\n%s", c.scope, err, out)
		} else if err != nil || len(ours) > 0 {
			t.Errorf("systemd-analyze verify %s: %v\n%s", c.scope, err, out)
		}
	}
	// The check bites.
	service := filepath.Join(prefix, "lib/systemd/system/uma-serve.service")
	broken := filepath.Join(t.TempDir(), "uma-broken.service")
	if err := os.WriteFile(broken, []byte(strings.ReplaceAll(read(t, service), "ProtectHome=", "ProtectHomes=")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := analyze("verify", "--system", "--man=no", broken); !strings.Contains(out, "ProtectHomes") {
		t.Errorf("a misspelt directive is accepted: %q", out)
	}
	// 10 is no protection at all, 9.6 a service without any of these options.
	out, err := analyze("security", "--offline=true", "--threshold=30", "--no-pager", service)
	level := regexp.MustCompile(`Overall exposure level for uma-serve.service: ([0-9.]+)`).FindStringSubmatch(out)
	if level == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	if exposure, _ := strconv.ParseFloat(level[1], 64); err != nil || exposure > 3 {
		t.Errorf("exposure %s, want at most 3.0 (%v)\n%s", level[1], err, out)
	}
}

// TestCompletionScripts: every command's script is one that its shell can read, where the shell is here.
func TestCompletionScripts(t *testing.T) {
	dir := bin(t)
	for _, c := range commands {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, c), "completion", shell).Output()
			if err != nil || !bytes.Contains(out, []byte(c)) {
				t.Errorf("%s completion %s: %v, %d bytes", c, shell, err, len(out))
				continue
			}
			if _, err := exec.LookPath(shell); err != nil {
				continue
			}
			check := exec.CommandContext(t.Context(), shell, "-n")
			check.Stdin = bytes.NewReader(out)
			if said, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s cannot read %s's script: %v\n%s", shell, c, err, said)
			}
		}
	}
}

// TestFuzz: make fuzz runs targets, keeps on after a package without any, and fails where there is nothing to run.
func TestFuzz(t *testing.T) {
	if testing.Short() {
		t.Skip("instrumenting for coverage compiles a second time")
	}
	fuzz := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "./fuzz.sh", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := fuzz("20x", "./internal/cli/buildinfo", "./internal/cli/ui"); err != nil ||
		!strings.Contains(out, "== ./internal/cli/ui FuzzSanitize\nfuzz: elapsed") ||
		!strings.HasSuffix(out, "1 fuzz targets ran for 20x each; nothing failed\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := fuzz("20x", "./internal/cli/buildinfo"); err == nil ||
		!strings.Contains(out, "no fuzz target found") {
		t.Errorf("a run without targets: %v\n%s", err, out)
	}
}

// TestMakeWithoutEngine: the commands without llama.cpp inside are built where it cannot be had; the others say so.
func TestMakeWithoutEngine(t *testing.T) {
	// go build is left out; the rest of go answers as it does.
	dir := t.TempDir()
	stub := filepath.Join(dir, "go")
	if err := os.WriteFile(stub, []byte("#!/bin/sh\n[ \"$1\" = build ] && exit 0\nexec go \"$@\"\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		cmd := exec.CommandContext(t.Context(), "make", "-s", c, "GO="+stub, "BIN="+filepath.Join(dir, "bin"))
		cmd.Dir = ".."
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
			return strings.HasPrefix(kv, "MAKE") || strings.HasPrefix(kv, "MFLAGS") || strings.HasPrefix(kv, "ENGINE")
		}), "XDG_CACHE_HOME="+dir, "PYTHON=/nonexistent/python3")
		out, err := cmd.CombinedOutput()
		engine := c == "uma-serve" || c == "uma-bench"
		if (err != nil) != engine || strings.Contains(string(out), "has no pip") != engine {
			t.Errorf("make %s: %v %q; llama.cpp is in it: %v", c, err, out, engine)
		}
	}
}

// TestMakeHelp: make help explains every verb that a person calls.
func TestMakeHelp(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "-s", "help")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, verb := range []string{"build", "run", "check", "test", "lint", "fuzz", "install", "bench", "help"} {
		if !regexp.MustCompile(`(?m)^` + verb + ` +\S`).Match(out) {
			t.Errorf("make help does not explain %s:\n%s", verb, out)
		}
	}
	if !bytes.Contains(out, []byte("under a minute")) {
		t.Error("make help does not say how long make check takes")
	}
}
