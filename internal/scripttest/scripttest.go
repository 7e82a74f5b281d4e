// Package scripttest runs the stories that packages keep as testdata/*.txt: what a component does, in words that can
// be read without knowing its code. A story is blocks between blank lines. A block is some commands, a line "----" and
// what the commands printed when somebody last looked:
//
//	# A request that fits starts at once.
//	arrive 1 prompt=5
//	step
//	----
//	plan tokens=5
//
// A block without that line is a comment. `go test -rewrite` writes what is printed today; the diff is then to be read.
package scripttest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rewrite is the flag -rewrite, for what else a package keeps in its testdata.
var Rewrite = flag.Bool("rewrite", false, "write what the scripts print today into testdata; read the diff before committing it")

// Run runs each testdata/*.txt, of which there must be at least so many, as a subtest. begin makes the state of one
// file; what it returns carries out one command, a line that is neither blank nor a comment (#), and adds what it prints
// to out.
func Run(t *testing.T, least int, begin func(t *testing.T) func(line string, out *strings.Builder)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < least {
		t.Fatalf("%d scripts found, want %d or more, error %v", len(files), least, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { run(t, file, begin(t)) })
	}
}

func run(t *testing.T, file string, command func(line string, out *strings.Builder)) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, block := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
		commands, want, found := strings.Cut(block, "\n----")
		text.WriteString(commands)
		text.WriteByte('\n')
		if found {
			got := carryOut(commands, command)
			if want = strings.TrimSpace(want); got != want && !*Rewrite {
				t.Errorf("%s: after\n%s\ngot:\n%s\nwant:\n%s", file, commands, got, want)
			}
			text.WriteString("----\n" + got)
			if got != "" {
				text.WriteByte('\n')
			}
		}
		text.WriteByte('\n')
	}
	if *Rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimSpace(text.String())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func carryOut(commands string, command func(line string, out *strings.Builder)) string {
	var out strings.Builder
	for line := range strings.Lines(commands) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			command(line, &out)
		}
	}
	return strings.TrimSpace(out.String())
}
