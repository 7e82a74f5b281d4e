package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// withModels is a home with a model of uma-serve's, one of ollama's, and a file that is none. run runs the program
// there.
func withModels(t *testing.T) (run func(args ...string) (stdout, stderr string, code int)) {
	home := t.TempDir()
	tiny := ggufgen.Cached(t, ggufgen.Tiny())
	data, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(home, "models")
	storetest.Copy(t, filepath.Join(own, "hf.co", "org", "repo-GGUF", "repo-Q8_0.gguf"), tiny)
	storetest.Write(t, filepath.Join(own, "bad.gguf"), []byte("\x1b[2Jno model"))
	storetest.Ollama(t, filepath.Join(home, "ollama"), "registry.ollama.ai/library/qwen3/8b",
		storetest.Layer{Media: "model", Data: data},
		storetest.Layer{Media: "template", Data: []byte("{{ .Prompt }}\x1b[2J\n")}, storetest.Layer{Media: "params",
			Data: []byte(`{"temperature":0.6}`)},
		storetest.Layer{Media: "license", Data: []byte("Apache License\n")})
	return func(args ...string) (string, string, int) {
		t.Helper()
		var out, errs bytes.Buffer
		cmd := program(t, "/nonexistent/uma.sock", args...)
		cmd.Env = append(cmd.Env, "HOME="+home, "UMA_MODELS_DIR="+own, "OLLAMA_MODELS="+filepath.Join(home, "ollama"))
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
}

// TestModels: the list, a model's page, aliases and removal, without a daemon.
func TestModels(t *testing.T) {
	run := withModels(t)
	contains := func(what, text string, wants ...string) {
		t.Helper()
		for _, w := range wants {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", what, w, text)
			}
		}
	}
	out, _, code := run("models")
	if code != 0 || strings.Contains(out, "\x1b") {
		t.Errorf("exit status %d\n%q", code, out)
	}
	contains("models", out, "NAME", "FAMILY", "PARAMETERS", "QUANT", "SIZE", "CONTEXT", "FITS", "FROM",
		"org/repo-GGUF:Q8_0", "qwen3:8b", "llama", "Q8_0", "4,096",
		"uma-serve", "ollama", "not listed:", "bad.gguf: it is not GGUF")
	out, _, _ = run("ls", "--json", "-c", "1000000", "-ctk", "f32")
	var c catalog
	if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Models) < 2 || len(c.Problems) != 1 ||
		c.Models[0].Context != 1_000_000 || c.Models[0].Memory == nil ||
		c.Models[0].Memory.KV != 1_000_000*2*32*(4+2) {
		t.Errorf("%v\n%s", err, out)
	}

	out, _, code = run("show", "qwen")
	if code != 0 || strings.Contains(out, "\x1b") {
		t.Errorf("exit status %d\n%q", code, out)
	}
	contains("show", out, "qwen3:8b", "ollama", "architecture  llama", "temperature 0.6", "{{ .Prompt }}",
		"Apache License", "sha256-", "<|im_start|>", "chat template")
	out, _, _ = run("show", "--json", "qwen3:8b")
	var shown shownModel
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Name != "qwen3:8b" ||
		len(shown.Licenses) != 1 || len(shown.Options) != 1 || shown.ChatTemplate == "" || shown.Parameters == 0 {
		t.Errorf("%v\n%s", err, out)
	}

	for _, args := range [][]string{{"alias", "small", "qwen3:8b"}, {"alias", "mine", "org/repo"}} {
		if _, errs, code := run(args...); code != 0 {
			t.Errorf("%q: %d, %s", args, code, errs)
		}
	}
	out, _, _ = run("alias")
	contains("alias", out, "mine   org/repo-GGUF:Q8_0\nsmall  qwen3:8b\n")
	out, _, _ = run("models")
	contains("models", out, "qwen3:8b = small")
	if _, _, code := run("alias", "--delete", "small"); code != 0 {
		t.Errorf("alias --delete: %d", code)
	}

	for _, x := range []struct {
		args string
		code int
		want string
	}{
		{"rm qwen3:8b", exitError,
			"uma-serve removes only models of its models directory; this one is ollama's: ollama rm qwen3:8b"},
		{"rm mine", exitUsage, "mine is an alias of org/repo-GGUF:Q8_0; uma-cli alias --delete mine"},
		{"rm qwen", exitError, "there is no such model"},
		{"rm", exitUsage, "name one model"},
		{"rm a|b", exitUsage, "is not a model name"},
		{"show qwen4:8b", exitError, "but qwen3:8b; uma-cli models lists what there is"},
		{"show ./x.gguf", exitUsage, "uma-cli model inspect FILE.gguf"},
		{"show", exitUsage, "name one model"},
		{"alias x", exitUsage, "uma-cli alias NAME TARGET"},
		{"alias x none", exitError, "there is no such model"},
		{"alias ../x qwen3:8b", exitUsage, "is not a model name"},
		{"alias --delete none", exitError, "there is no alias"},
		{"models x", exitUsage, "takes no argument"},
		{"models -c -5", exitUsage, "--ctx-size is -5; it must be 0…"},
	} {
		_, errs, code := run(strings.Fields(x.args)...)
		if code != x.code || !strings.Contains(errs, x.want) {
			t.Errorf("%s: exit status %d, want %d: %s\nwant %q", x.args, code, x.code, errs, x.want)
		}
	}

	out, errs, code := run("rm", "org/repo-GGUF:Q8_0")
	if code != 0 || !strings.HasPrefix(out, "deleted org/repo-GGUF:Q8_0, ") {
		t.Errorf("rm: %d, %s%s", code, out, errs)
	}
	if out, _, _ := run("models"); strings.Contains(out, "org/repo-GGUF:Q8_0") {
		t.Errorf("it is still there:\n%s", out)
	}
}

// TestModelNamesComplete: the shell completes names of models, and of aliases.
func TestModelNamesComplete(t *testing.T) {
	run := withModels(t)
	run("alias", "small", "qwen3:8b")
	for args, want := range map[string]string{
		"show ":       "org/repo-GGUF:Q8_0 qwen3:8b small :4",
		"rm ":         "org/repo-GGUF:Q8_0 qwen3:8b small :4",
		"show x ":     ":4",
		"alias ":      ":4",
		"alias name ": "org/repo-GGUF:Q8_0 qwen3:8b small :4",
		"models --cache-type-k q4_0 --cache-type-v q5": "f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl :4",
	} {
		out, _, _ := run(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if got := strings.Join(strings.Fields(out), " "); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// TestModelsFitAsTheDaemonSays: FITS is a running daemon's word, with the reason where a model does not fit, unless
// options say what it is computed for.
func TestModelsFitAsTheDaemonSays(t *testing.T) {
	run := withModels(t)
	socket, _ := modelDaemon(t)
	const why = "qwen3:8b does not fit: it needs 9 GiB of devices\n"
	if out, _, code := run("models", "--socket", socket); code != 0 || !strings.Contains(out, why) {
		t.Errorf("%d\n%s", code, out)
	}
	out, _, _ := run("models", "--socket", socket, "--json")
	var c catalog
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range c.Models {
		if e.FitsText != "" {
			if told++; e.Name != "qwen3:8b" || e.Fits == nil || *e.Fits {
				t.Errorf("%+v", e)
			}
		}
	}
	if told != 1 {
		t.Errorf("%d models of one: %s", told, out)
	}
	if out, _, code := run("models", "--socket", socket, "-c", "4096"); code != 0 || strings.Contains(out, why) {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestModelsDirOfTheDaemon: without a flag and a variable, the models directory is that of the daemon's file.
func TestModelsDirOfTheDaemon(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	storetest.Copy(t, filepath.Join(dir, "mine.gguf"), ggufgen.Cached(t, ggufgen.Tiny()))
	storetest.Write(t, filepath.Join(home, ".config", "uma-serve", "uma-serve.toml"),
		[]byte("models-dir = '"+dir+"'\n"))
	list := func(env ...string) string {
		t.Helper()
		cmd := program(t, "/nonexistent/uma.sock", "models")
		cmd.Env = append(append(cmd.Env, "HOME="+home, "XDG_CONFIG_HOME=", "XDG_DATA_HOME="+home), env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if out := list(); !strings.Contains(out, "mine") {
		t.Errorf("%s", out)
	}
	if out := list("UMA_MODELS_DIR=" + home); strings.Contains(out, "mine") {
		t.Errorf("the variable does not override the file: %s", out)
	}
}
