package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// TestVersionFlags: --version and -v do the same as version.
func TestVersionFlags(t *testing.T) {
	server := (&clienttest.Server{}).Start(t)
	want, err := program(t, server.Path, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--version", "-v"} {
		if got, err := program(t, server.Path, flag).Output(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", flag, err, got, want)
		}
	}
}

// TestOtherToolsCommands: what users of ollama, docker and llama.cpp type gets a sentence that says what to do here,
// with the other tool's flags, too.
func TestOtherToolsCommands(t *testing.T) {
	all := newRoot().Commands()
	for name, sentence := range elsewhere {
		if slices.ContainsFunc(all, func(c *cobra.Command) bool { return c.Name() == name }) {
			t.Errorf("%s is a command here", name)
		}
		if err := execute([]string{name}); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%s: %v", name, err)
		}
		for word := range strings.SplitSeq(sentence, "uma-cli ") {
			verb, _, _ := strings.Cut(word, " ")
			if word == sentence || strings.HasPrefix(verb, "--") || verb == "alone" {
				continue
			}
			if !slices.ContainsFunc(all, func(c *cobra.Command) bool { return c.Name() == verb }) &&
				!strings.HasPrefix(sentence, word) {
				t.Errorf("%s: the sentence names %q, which is no command", name, verb)
			}
		}
	}
	for args, want := range map[string]string{
		"download llama3":        "uma-cli pull NAME",
		"rm -f llama3":           "there is no option -f",
		"prune":                  "uma-cli rm NAME",
		"top":                    "uma-cli metrics --watch",
		"serve --port 8080":      "start the daemon with uma-serve",
		"restart llama3":         "systemctl --user stop uma-serve",
		"describe --modelfile x": "uma-cli model inspect",
		"logs -f":                "journalctl",
		"embeddings x":           "uma-cli embed",
		"helth":                  "did you mean health?",
		"why-is-the sky blue":    `uma-cli run "why-is-the sky blue"`,
		"what is the answer":     `uma-cli run "what is the answer"`,
		"metrics --wach":         "did you mean --watch?",
		"--hide-thinkin":         "did you mean --hide-thinking?",
		"run --tmep 0 x":         "did you mean --temp?",
		"run --frobnicate x":     "--frobnicate",
		"run --model x y":        "options of uma-serve",
		"-m x.gguf":              "options of uma-serve",
		"--think maybe":          "must be auto, off, on",
		"--socket /x prune":      "uma-cli rm NAME",
		"model rm x":             "uma-cli model has inspect",
		"kv clear":               "drop, pin, unpin and save",
		"help download":          "uma-cli pull NAME",
		"completion powershell":  "bash, zsh or fish",
	} {
		var stderr bytes.Buffer
		cmd := program(t, "/nonexistent/uma.sock", strings.Fields(args)...)
		cmd.Stderr = &stderr
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit status %d, %q, want %q", args, code, stderr.String(), want)
		}
	}
}

// TestCompletions: the shell offers the words of every flag that takes one of some words, and files only where a file
// is meant.
func TestCompletions(t *testing.T) {
	server := (&clienttest.Server{Question: inside}).Start(t)
	complete := func(args ...string) (words []string, directive string) {
		out, err := program(t, server.Path, append([]string{"__complete"}, args...)...).Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, l := range lines[:len(lines)-1] {
			word, _, _ := strings.Cut(l, "\t")
			if strings.HasPrefix(word, args[len(args)-1]) { // the shell's own part
				words = append(words, word)
			}
		}
		return words, lines[len(lines)-1]
	}
	const noFiles, files, ext = ":4", ":0", ":8"
	for _, c := range []struct {
		args      string
		want      string
		directive string
	}{
		{"--think ", strings.Join(chat.Words("think"), " "), noFiles},
		{"chat --think ", strings.Join(chat.Words("think"), " "), noFiles},
		{"run --think m", "minimal medium", noFiles},
		{"run --reasoning-effort h", "high", noFiles},
		{"run --early-exit ", strings.Join(chat.Words("early_exit"), " "), noFiles},
		{"run --priority ", "interactive background", noFiles},
		{"model inspect --cache-type-k ", strings.Join(gguf.CacheTypes(), " "), noFiles},
		{"model inspect --cache-type-v q4", "q4_1 q4_0", noFiles},
		{"model inspect ", "gguf", ext},
		{"completion ", "bash zsh fish", noFiles},
		{"run --file ", "", files},
		{"run --temp ", "", noFiles},
		{"run ", "", noFiles},
		{"info ", "", noFiles},
		{"--socket ", "", files},
		{"kv drop ", "all 12", noFiles},
		{"kv pin 12 ", "", noFiles},
		{"why ", "#64", noFiles},
		{"metrics --interval ", "", noFiles},
		{"help ver", "version", noFiles},
	} {
		args := strings.Split(c.args, " ")
		words, directive := complete(args...)
		if got := strings.Join(words, " "); got != c.want || directive != c.directive {
			t.Errorf("%q completes to %q %s, want %q %s", c.args, got, directive, c.want, c.directive)
		}
	}
}

// TestEveryWordIsTaken: a word that is offered for a flag is a value that the flag takes.
func TestEveryWordIsTaken(t *testing.T) {
	var walk func(*cobra.Command)
	checked := 0
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			offer, ok := cmd.GetFlagCompletionFunc(f.Name)
			if !ok {
				return
			}
			words, _ := offer(cmd, nil, "")
			for _, w := range words {
				checked++
				if err := f.Value.Set(string(w)); err != nil {
					t.Errorf("%s --%s %s: %v", cmd.CommandPath(), f.Name, w, err)
				}
			}
		})
	}
	walk(newRoot())
	if checked < 40 {
		t.Errorf("only %d words were offered", checked)
	}
	for _, typ := range gguf.CacheTypes() {
		cmd := program(t, "", "model", "inspect", "-ctk", typ, os.Args[0])
		out, _ := cmd.CombinedOutput()
		if strings.Contains(string(out), "is unknown") {
			t.Errorf("%s: %s", typ, out)
		}
	}
}

// TestInfoOneNumberOfSequences: info and kv mean the same sequences; how many requests may run is called so.
func TestInfoOneNumberOfSequences(t *testing.T) {
	server := (&clienttest.Server{}).Start(t)
	out, err := program(t, server.Path, "info").Output()
	if n := strings.Count(string(out), "sequences"); err != nil || n != 1 ||
		!strings.Contains(string(out), "0 of at most 8 running") {
		t.Errorf("%v, %d times:\n%s", err, n, out)
	}
}

// TestSharedDevices: info shows the turns of an engine process, health what is wrong with the arbiter.
func TestSharedDevices(t *testing.T) {
	server := (&clienttest.Server{
		Info: `{"type":"info","status":"ok","lease":{"devices":["cpu","gpu0"],"grants":1200,"contended":7,` +
			`"waited_ms":81,"without_lease":3}}`,
		Health: `{"type":"health","status":"ok","arbiter":{"status":"degraded","text":"model a is\u001b late"}}`,
	}).Start(t)
	out, err := program(t, server.Path, "info").Output()
	for _, want := range []string{"1,200 steps on cpu, gpu0, 7 of them waited for other models, 81",
		"3 steps without"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, without %q:\n%s", err, want, out)
		}
	}
	out, err = program(t, server.Path, "health").Output()
	if err != nil || !strings.Contains(string(out), "arbiter degraded: model a is") ||
		strings.Contains(string(out), "\x1b l") {
		t.Errorf("%v, %q", err, out)
	}
}
