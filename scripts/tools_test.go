package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVulnerabilityCheck: a finding fails the check; a missing network is reported and fails nothing.
func TestVulnerabilityCheck(t *testing.T) {
	const online = `case $1 in -version) echo "DB updated: 2026-11-01"; exit 0;; esac; `
	for name, c := range map[string]struct {
		program string
		fails   bool
		said    string
	}{
		"clean": {online + `echo "No vulnerabilities found."`, false, "No vulnerabilities found."},
		"found": {online + `echo "Vulnerability #1: GO-2026-0001"; exit 3`, true, "GO-2026-0001"},
		"offline": {`echo "DB: https://vuln.go.dev"`, false, "govulncheck was SKIPPED: the database at " +
			"vuln.go.dev does not answer"},
		"lost on the way": {online + `echo "govulncheck: fetching vulnerabilities: no such host" >&2; exit 1`, false,
			"was SKIPPED: govulncheck: fetching"},
		"another failure":  {online + `echo "govulncheck: no Go files" >&2; exit 1`, true, "no Go files"},
		"scans everything": {online + `echo "$*"`, false, "./..."},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "govulncheck")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.program+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "./vuln.sh")
			cmd.Env = append(os.Environ(), "GOVULNCHECK="+program)
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.said) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	// A program that cannot be installed is a missing network, too.
	cmd := exec.CommandContext(t.Context(), "./vuln.sh")
	cmd.Env = append(os.Environ(), "GOVULNCHECK="+filepath.Join(t.TempDir(), "none"), "GOPROXY=off",
		"GOMODCACHE="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "SKIPPED: govulncheck v") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestBenchCompare: two commits come out as benchstat's columns, and the worktree is removed.
func TestBenchCompare(t *testing.T) {
	compare := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "./bench-compare", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "scripts/bench-compare [-n COUNT]"},
		{[]string{"-n", "0", "HEAD"}, `-n is "0"; it must be`},
		{[]string{"-n", "ten", "HEAD"}, `-n is "ten"; it must be`},
		{[]string{"-x"}, "scripts/bench-compare [-n COUNT]"},
	} {
		if out, err := compare(c.args...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
	}
	if testing.Short() {
		t.Skip("it compiles a commit")
	}
	trees := func() string {
		out, err := exec.CommandContext(t.Context(), "git", "worktree", "list", "--porcelain").Output()
		if err != nil {
			t.Skipf("git worktree list: %v", err)
		}
		return string(out)
	}
	trees()
	out, err := compare("-n", "1", "-t", "1x", "-b", "ParseEvent", "HEAD", ".", "./ipc/wire")
	if err != nil || !strings.Contains(out, "worktree") || !strings.Contains(out, "ParseEvent") ||
		!strings.Contains(out, "sec/op") {
		t.Errorf("%v\n%s", err, out)
	}
	if list := trees(); strings.Contains(list, os.TempDir()+"/tmp.") {
		t.Errorf("a worktree is left behind:\n%s", list)
	}
}

// TestTerminalPicture: the README's picture is drawn from its recording, and what cannot be drawn is refused.
func TestTerminalPicture(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	dir := t.TempDir()
	draw := func(cast string) (string, error) {
		svg := filepath.Join(dir, "drawn.svg")
		cmd := exec.CommandContext(t.Context(), "python3", "terminal-picture.py", "--draw", cast, svg)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out), err
		}
		return read(t, svg), nil
	}
	read(t, "terminal-picture.py")
	read(t, "../docs/terminal.cast")
	if got, err := draw("../docs/terminal.cast"); err != nil || got != read(t, "../docs/terminal.svg") {
		t.Errorf("docs/terminal.svg is not drawn from docs/terminal.cast: scripts/terminal-picture.py --draw (%v)", err)
	}
	cast := filepath.Join(dir, "x.cast")
	for output, want := range map[string]string{
		// A line that another one replaces is shown for as long as it was there.
		`waiting\r\u001b[Kdone`: `<g class="o" style="animation:o 1.000s 1.0s"><text x="14.0" y="28" ` +
			`textLength="58.8">waiting</text></g>`,
		`a\u001b[1mb<\u001b[0m`: `<text x="22.4" y="28" textLength="16.8" class="b">b&lt;</text>`,
		`\u001b[2J`:             "is not drawn",
		`\u001b[45m`:            "the style 45 is not drawn",
		`1\n2\n3\n4\n5`:         "more than 4 lines",
	} {
		text := `{"version":2,"width":20,"height":4}`
		for i, part := range strings.SplitAfterN(output, `\r`, 2) {
			text += fmt.Sprintf("\n[%d.0,\"o\",\"%s\"]", i+1, part)
		}
		if err := os.WriteFile(cast, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := draw(cast); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", output, got, want)
		}
	}
}

// TestChecksSkipLoudly: without a browser or promtool, their checks say that nothing was checked, and fail nothing.
func TestChecksSkipLoudly(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"bash", "env", "dirname"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for script, says := range map[string]string{
		"./page-check.sh": "page-check: SKIPPED: there is no Chromium", "./prom-check.sh": "prom-check: SKIPPED: " +
			"promtool is not installed",
	} {
		cmd := exec.CommandContext(t.Context(), script)
		cmd.Env = []string{"PATH=" + bin}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
