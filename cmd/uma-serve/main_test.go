package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/programs"
	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// binary is uma-serve as `go build` makes it: a test of this package's functions once missed that main gave them a flag
// set that it did not parse.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "uma-serve-test")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := programs.Build(dir, "uma-serve"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binary = filepath.Join(dir, "uma-serve")
		return m.Run()
	}())
}

// command runs the binary in an environment that holds nothing but env and returns its output and exit status.
func command(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "UMA_CONFIG="}, env...)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", binary, args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// values are two values of an option, both other than its default where that is possible (a switch has only one), the
// stronger layer's first, and the options that they need beside them.
func values(t *testing.T, f *pflag.Flag) (strong, weak string, with []string) {
	if words, ok := config.Choices[f.Name]; ok {
		words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == f.DefValue })
		return words[0], words[len(words)-1], nil
	}
	switch f.Name {
	case "ctx-size", "request-ctx-size":
		return "1000", "2000", nil
	case "gpu-layers":
		return "3", "all", nil
	case "socket-mode", "listen-mode":
		return "0660", "0666", nil
	case "cache-ram", "cache-disk", "memory":
		return "11MiB", "12MiB", nil
	case "fabric":
		return "memory", "redis://h:1/2", nil
	case "chat-template":
		return "gemma", "llama3", nil
	case "listen":
		return "127.0.0.1:8737", "127.0.0.1:8738", nil
	case "allowed-host":
		return "strong.test", "weak.test", nil
	case "hf-repo":
		return "org/strong", "org/weak", nil
	case "embedding-sizes":
		return "256", "any", nil
	case "kv-events":
		return "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5657", nil
	case "lora":
		return "strong=/a.gguf", "weak=/b.gguf", nil
	case "defaults":
		return `{"top_k":1}`, `{"top_k":2}`, nil
	case "limits":
		return "user_requests=1", "user_requests=2", nil
	case "router-user", "alias", "tags":
		return "1000", "1001", nil
	case "spec-synth-rates":
		return "0.7", "0.8", nil
	case "telemetry-endpoint":
		return "http://strong.test:4318", "http://weak.test:4318", nil
	case "cors-origin":
		return "http://strong.test", "http://weak.test", nil
	case "tls-cert":
		return config.SelfMadeCert, config.SelfMadeCert, nil // a file needs --tls-key
	case "model", "models-dir", "socket", "socket-group", "listen-group", "api-keys", "cache-dir", "trace",
		"slot-save-path", "draft-model", "mmproj":
		return "/strong", "/weak", nil
	}
	switch f.Value.Type() {
	case "bool":
		def, err := strconv.ParseBool(f.DefValue)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatBool(!def), f.DefValue, nil
	case "int", "int64":
		n, err := strconv.Atoi(f.DefValue)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(n + 1), strconv.Itoa(n + 2), nil
	case "float64":
		n, err := strconv.ParseFloat(f.DefValue, 64)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(n + 1), fmt.Sprint(n + 2), nil
	case "duration":
		return "1h0m0s", "2h0m0s", nil
	}
	t.Fatalf("--%s is a %s: say here which two values to try, or put its words into config.Choices", f.Name,
		f.Value.Type())
	return "", "", nil
}

// inForce is the value and the layer of an option as --print-config has them.
func inForce(t *testing.T, env []string, args []string, option string) (value, layer string) {
	t.Helper()
	out, errs, status := command(t, env, append(args, "--print-config")...)
	if status != 0 {
		t.Fatalf("%q %q: exit status %d: %s", env, args, status, errs)
	}
	for l := range strings.Lines(out) {
		l = strings.TrimSpace(l)
		if l, ok := strings.CutPrefix(l, "#"+option+" = "); ok {
			return strings.Trim(l, `'"[]`), "default"
		}
		if l, ok := strings.CutPrefix(l, option+" = "); ok {
			value, layer, _ := strings.Cut(l, "  # ")
			return strings.Trim(value, `'"[]`), layer
		}
	}
	t.Fatalf("%q %q: %s is not in\n%s", env, args, option, out)
	return "", ""
}

// TestPrecedence: for every option the command line goes over the environment, that over the file, that over the
// default.
func TestPrecedence(t *testing.T) {
	options, _, _ := config.NewFlagSet()
	n := 0
	options.VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Name == "meridian" || // below
			f.Hidden || f.Name == "tls-key" { // it is nothing without --tls-cert, nor that without it
			return
		}
		n++
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			strong, weak, with := values(t, f)
			file := filepath.Join(t.TempDir(), "f.toml")
			toml := func(v string) string {
				quoted := strconv.Quote(v)
				if slices.Contains([]string{"int", "int64", "float64", "bool"}, f.Value.Type()) {
					quoted = v
				}
				if err := os.WriteFile(file, []byte(f.Name+" = "+quoted+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return file
			}
			variable := "UMA_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			flag := "--" + f.Name + "="
			for _, c := range []struct {
				what        string
				env, args   []string
				file        string
				want, layer string
			}{
				{"default", nil, nil, "", f.DefValue, "default"},
				{"file over default", nil, nil, strong, strong, "file"},
				{"environment over default", []string{variable + "=" + strong}, nil, "", strong,
					"environment " + variable},
				{"flag over default", nil, []string{flag + strong}, "", strong, "flag"},
				{"environment over file", []string{variable + "=" + strong}, nil, weak, strong,
					"environment " + variable},
				{"flag over file", nil, []string{flag + strong}, weak, strong, "flag"},
				{"flag over environment", []string{variable + "=" + weak}, []string{flag + strong}, "", strong, "flag"},
				{"flag over both", []string{variable + "=" + weak}, []string{flag + strong}, weak, strong, "flag"},
			} {
				args := slices.Concat(with, c.args)
				if c.file != "" {
					args = append(args, "--config", toml(c.file))
				}
				if value, layer := inForce(t, c.env, args, f.Name); value != c.want || layer != c.layer {
					t.Errorf("%s: %s is %s (%s), want %s (%s)", c.what, f.Name, value, layer, c.want, c.layer)
				}
			}
			if f.Shorthand == "" {
				return
			}
			if value, layer := inForce(t, []string{variable + "=" + weak}, append(with, "-"+f.Shorthand, strong),
				f.Name); value != strong || layer != "flag" {
				t.Errorf("-%s over environment: %s (%s), want %s", f.Shorthand, value, layer, strong)
			}
		})
	})
	if n < 45 {
		t.Errorf("only %d options", n)
	}
}

// TestPrecedenceMeridian: --meridian over UMA_MERIDIAN over the file's table.
func TestPrecedenceMeridian(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(file, []byte("[meridian]\nema_alpha = 0.2\nrpdi_window = 100\nmin_think_tokens = 5\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	env, args := []string{"UMA_MERIDIAN=ema_alpha=0.3,rpdi_window=99"}, []string{"--config", file}
	for _, c := range []struct {
		env, args          []string
		key, value, source string
	}{
		{nil, nil, "ema_alpha", "0.1", "default"},
		{nil, args, "ema_alpha", "0.2", "file"},
		{env, args, "ema_alpha", "0.3", "environment"},
		{env, args, "min_think_tokens", "5", "file"},
		{env, append([]string{"--meridian", "ema_alpha=0.4"}, args...), "ema_alpha", "0.4", "flag"},
	} {
		if value, source := inForce(t, c.env, c.args, c.key); c.source != "default" && value != c.value ||
			source != c.source {
			t.Errorf("%q %q: %s is %s (%s), want %s (%s)", c.env, c.args, c.key, value, source, c.value, c.source)
		}
	}
}

// TestPrecedenceConfig: --config over UMA_CONFIG over the default file.
func TestPrecedenceConfig(t *testing.T) {
	xdg := t.TempDir()
	path := func(name, queue string) string {
		p := filepath.Join(xdg, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("max-queue = "+queue+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	path("uma-serve/uma-serve.toml", "11")
	inEnv, inFlag := path("env.toml", "12"), path("flag.toml", "13")
	command := func(env []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), binary, append(args, "--print-config")...)
		cmd.Env = append(env, "XDG_CONFIG_HOME="+xdg)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for want, out := range map[string]string{
		"max-queue = 11  # file": command(nil),
		"max-queue = 12  # file": command([]string{"UMA_CONFIG=" + inEnv}),
		"max-queue = 13  # file": command([]string{"UMA_CONFIG=" + inEnv}, "--config", inFlag),
		"#max-queue = 512":       command([]string{"UMA_CONFIG=" + inEnv}, "--config", ""),
	} {
		if !strings.Contains(out, "\n"+want+"\n") {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
}

// TestSentences: mistakes on the command line, in the environment and in files are answered in our words, status 2.
func TestSentences(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.toml")
	if err := os.WriteFile(broken, []byte("ctx-size = = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "no", "x")
	for _, c := range []struct {
		line   string
		env    string
		status int
		want   string
	}{
		{"-c 1", "", 2, "uma-serve: --ctx-size is 1; it must be 64…134217728, 0 for the model's training context, or " +
			"auto\n"},
		{"-c x", "", 2, `--ctx-size is "x": it must be a whole number`},
		{"", "UMA_CTX_SIZE=1", 2, "--ctx-size is 1"},
		{"--idle-timeout 1", "", 2, `--idle-timeout is "1": it must be a duration with a unit, such as 500ms, 30s or ` +
			`5m`},
		{"--parallel", "", 2, "--parallel needs a value"},
		{"-y", "", 2, "there is no option -y"},
		{"--polcy uma", "", 2, "there is no option --polcy; did you mean --policy?"},
		{"--=", "", 2, `"--=" is not an option`},
		{"x.gguf", "", 2, `unexpected argument "x.gguf"`},
		{"--config " + dir, "", 2, "config " + dir + ": it is a directory, not a file"},
		{"--config " + missing, "", 2, missing + ": there is no directory " + filepath.Dir(missing)},
		{"--config " + broken, "", 2, broken + ", line 1, column "},
		{"--socket " + filepath.Join(broken, "s"), "", 1, "part of the path is a file, not a directory"},
		{"--socket " + dir, "", 1, dir + " exists and is not a socket"},
		{"--socket-group nosuchgroup --socket " + filepath.Join(dir, "s"), "", 1,
			`--socket-group is "nosuchgroup": there is no such group`},
		{"completion", "", 2, "name one shell"},
	} {
		env := []string{}
		if c.env != "" {
			env = append(env, c.env)
		}
		out, errs, status := command(t, env, strings.Fields(c.line)...)
		if status != c.status || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s %s: exit status %d, %q, %q; want %d and %q", c.env, c.line, status, out, errs, c.status,
				c.want)
		}
		for _, foreign := range []string{"strconv", "invalid argument", "unknown flag", "sched:",
			"no such file or directory", "time:", "open /", "mkdir"} {
			if strings.Contains(errs, foreign) {
				t.Errorf("%s %s: %q is a library's text: %s", c.env, c.line, foreign, errs)
			}
		}
	}
}

// TestUnknownVariable: the warning is on standard error, and the daemon goes on.
func TestUnknownVariable(t *testing.T) {
	out, errs, status := command(t, []string{"UMA_SOKCET=/x"}, "--print-config")
	if want := "uma-serve: warning: the environment variable UMA_SOKCET is unknown and ignored; did you mean " +
		"UMA_SOCKET?\n"; status != 0 || errs != want || strings.Contains(out, "SOKCET") {
		t.Errorf("exit status %d, %q, want %q", status, errs, want)
	}
}

// TestCompletion: scripts for three shells, and words for the options that take words.
func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_uma-serve", "zsh": "#compdef uma-serve",
		"fish": "complete -c uma-serve"} {
		if out, errs, status := command(t, nil, "completion", shell); status != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit status %d, %q lacks %q (%s)", shell, status, out, want, errs)
		}
	}
	for option, words := range config.Choices {
		out, _, _ := command(t, nil, "__complete", "--"+option, "")
		if want := strings.Join(words, "\n") + "\n:"; !strings.HasPrefix(out, want) {
			t.Errorf("--%s completes to %q, want %q", option, out, want)
		}
	}
	if out, _, _ := command(t, nil, "__complete", "--model", ""); !strings.HasPrefix(out, "gguf\n:8") {
		t.Errorf("--model completes to %q, want *.gguf", out)
	}
	dir := t.TempDir()
	storetest.Copy(t, filepath.Join(dir, "mine.gguf"), ggufgen.Cached(t, ggufgen.Tiny()))
	for typed, want := range map[string]string{"": "mine\n:4", "mi": "mine\n:4", "x": "gguf\n:8"} {
		if out, _, _ := command(t, []string{"UMA_MODELS_DIR=" + dir}, "__complete", "--model",
			typed); !strings.HasPrefix(out, want) {
			t.Errorf("--model %s completes to %q, want %q", typed, out, want)
		}
	}
}

// TestHelp: all options are listed, and the commands that are no options.
func TestHelp(t *testing.T) {
	out, errs, status := command(t, nil, "--help")
	if status != 0 || errs != "" {
		t.Fatalf("exit status %d, %s", status, errs)
	}
	options, _, _ := config.NewFlagSet()
	options.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !strings.Contains(out, "--"+f.Name) {
			t.Errorf("--help does not show --%s", f.Name)
		}
	})
	if again, _, status := command(t, nil, "help"); status != 0 || again != out {
		t.Errorf("uma-serve help is not --help: exit status %d, %s", status, again)
	}
	for _, want := range []string{"--print-config", "--version", "completion bash|zsh|fish",
		"/etc/uma-serve/uma-serve.toml"} {
		if !strings.Contains(out, want) {
			t.Errorf("--help does not show %s", want)
		}
	}
}
