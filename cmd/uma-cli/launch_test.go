package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// modelsDaemon is a daemon with two models, which a test program asks.
func modelsDaemon(t *testing.T) (socket string) {
	t.Helper()
	return serveUnix(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			io.WriteString(w, `{"object":"list","data":[{"id":"first","meta":{"n_ctx":8192}},`+
				`{"id":"second","aliases":["two"],"meta":{"n_ctx":0,"n_ctx_train":40960}}]}`)
		case "/api/show":
			io.WriteString(w, `{"capabilities":["completion","tools","thinking"]}`)
		}
	})
}

// TestLaunchWithoutDaemon: a daemon is started, but not to print what would be set; Ctrl-C ends it while it loads.
func TestLaunchWithoutDaemon(t *testing.T) {
	bin, notes := t.TempDir(), t.TempDir()
	for name, script := range map[string]string{
		"goose": "exit 0",
		"uma-serve": `trap 'echo ended > "$NOTES/ended"; kill $!; exit 0' TERM
			sleep 30 & echo started > "$NOTES/started"; wait`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	launch := func(args ...string) *exec.Cmd {
		cmd := program(t, filepath.Join(notes, "s"), append([]string{"launch"}, args...)...)
		cmd.Env = append(cmd.Environ(), "PATH="+bin+":/usr/bin:/bin", "NOTES="+notes)
		return cmd
	}
	noted := func(name string) bool {
		_, err := os.Stat(filepath.Join(notes, name))
		return err == nil
	}
	cmd := launch("--print", "goose")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitNoDaemon || noted("started") {
		t.Errorf("--print: exit status %d, %q; a daemon was started: %v", got, out, noted("started"))
	}
	cmd = launch("goose")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the daemon to start", func() bool { return noted("started") })
	cmd.Process.Signal(os.Interrupt)
	if cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("Ctrl-C: %v", cmd.ProcessState)
	}
	waitfor.True(t, "the daemon to end", func() bool { return noted("ended") })
}

// TestLaunch: a program gets its settings, and what was set in the user's file is gone afterwards.
func TestLaunch(t *testing.T) {
	socket, bin, home := modelsDaemon(t), t.TempDir(), t.TempDir()
	for name, script := range map[string]string{
		"codex":  `echo "$@"; exit 5`,
		"claude": `echo "$ANTHROPIC_MODEL $CLAUDE_CODE_MAX_CONTEXT_TOKENS [$ANTHROPIC_API_KEY] [$MAX_THINKING_TOKENS]"`,
		"cline":  `cat "$HOME/.cline/data/settings/providers.json"; ls "$HOME/.cline/data/settings"`,
		"qwen":   `cat "$QWEN_CODE_SYSTEM_DEFAULTS_PATH"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	settings := filepath.Join(home, ".cline", "data", "settings", "providers.json")
	for _, c := range []struct {
		args   []string
		status int
		want   string // in the output
	}{
		{[]string{"codex", "exec", "--json", "x"}, 5, `-c model="first" -c model_context_window=8192`},
		{[]string{"codex", "exec", "--json", "x"}, 5, `exec --json x`},
		{[]string{"claude"}, 0, "first 8192 [] []"},
		{[]string{"--model", "two", "claude"}, 0, "second 40960 [] []"},
		{[]string{"--model", "third", "claude"}, exitUsage, "those that are: first, second"},
		{[]string{"qwen"}, 0, `"contextWindowSize": 8192`},
		{[]string{"cline"}, exitUsage, "--yes allows it"},
		{[]string{"--yes", "cline"}, 0, `"model": "first"`},
		{[]string{"--yes", "cline"}, 0, `providers.json.uma-launch-backup`},
		{[]string{"--print", "cline"}, 0, "providers.json (set while the program runs"},
		{[]string{"--print", "goose"}, 0, "export GOOSE_MODEL=first\n"},
		{[]string{"goose"}, exitError, "goose is not installed: https://"},
		{[]string{"emacs"}, exitUsage, "claude, codex, opencode, kilo"},
		{nil, exitUsage, "name a program: claude, codex"},
		{[]string{"--listen", "0.0.0.0:0", "claude"}, exitUsage, "no loopback address"},
	} {
		cmd := program(t, socket, append([]string{"launch"}, c.args...)...)
		cmd.Env = append(cmd.Environ(), "PATH="+bin+":/usr/bin:/bin", "HOME="+home, "ANTHROPIC_API_KEY=mine",
			"TMPDIR="+t.TempDir())
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: exit status %d, %q; want %d and %q", c.args, got, out, c.status, c.want)
		}
		if list, err := os.ReadDir(home); err != nil || len(list) > 0 {
			t.Errorf("%q: left in the home folder: %v, %v", c.args, list, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(settings), 0o700); err != nil {
		t.Fatal(err)
	}
	const mine = `{"providers":{"x":{}} }`
	if err := os.WriteFile(settings, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, socket, "launch", "--yes", "cline")
	cmd.Env = append(cmd.Environ(), "PATH="+bin+":/usr/bin:/bin", "HOME="+home)
	out, err := cmd.CombinedOutput()
	after, _ := os.ReadFile(settings)
	if err != nil || !strings.Contains(string(out), `"x": {}`) || string(after) != mine {
		t.Errorf("%v, %q; the file is now %q", err, out, after)
	}
}
