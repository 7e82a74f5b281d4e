package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// do runs a command with its tables out of sight.
func do(t *testing.T, cmd *cobra.Command, args ...string) error {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, errs := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = null, null
	defer func() {
		os.Stdout, os.Stderr = out, errs
		null.Close()
	}()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	return cmd.ExecuteContext(t.Context())
}

// TestReplayIsDeterministic: the same command writes the same bytes; another seed does not.
func TestReplayIsDeterministic(t *testing.T) {
	var dirs []string
	for _, seed := range []string{"7", "7", "8"} {
		dir := t.TempDir()
		if err := do(t, runCommand(), "--mode", "replay", "--baseline", "all", "--requests", "12", "--repeats", "2",
			"--seed", seed, "--out-dir", dir); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	for _, name := range []string{"report.json", "ab-report.json", "report.md", "report.html"} {
		var files [3][]byte
		for i, dir := range dirs {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || len(b) == 0 {
				t.Fatalf("%s: %v, %d bytes", name, err, len(b))
			}
			files[i] = b
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s differs between two runs of one seed", name)
		}
		if bytes.Equal(files[0], files[2]) {
			t.Errorf("%s is the same for two seeds", name)
		}
	}
	same := filepath.Join(dirs[0], "report.json")
	if err := do(t, compareCommand(), same, filepath.Join(dirs[1], "report.json")); err != nil {
		t.Errorf("two runs of one seed compare as worse: %v", err)
	}
	// Without a limit on thoughts the report under test thinks longer than the limited one: a regression.
	a, b := t.TempDir(), t.TempDir()
	for dir, side := range map[string]string{a: "static-budget=700", b: "stock"} {
		if err := do(t, runCommand(), "--mode", "replay", "--sides", side, "--requests", "60", "--out-dir", dir,
			"--name", side); err != nil {
			t.Fatal(err)
		}
	}
	err := do(t, compareCommand(), filepath.Join(a, "report.json"), filepath.Join(b, "report.json"), "--out-dir",
		filepath.Join(b, "ab"))
	if err == nil || !strings.Contains(err.Error(), "think tokens, mean went from") {
		t.Errorf("more thinking is no regression: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b, "ab", "ab-report.json")); err != nil {
		t.Error(err)
	}
	if err := do(t, compareCommand(), filepath.Join(a, "report.json"), filepath.Join(b, "report.json"), "--fail-over",
		"1e6"); err != nil {
		t.Errorf("within --fail-over: %v", err)
	}
	svg := filepath.Join(b, "itl.svg")
	if err := do(t, compareCommand(), filepath.Join(a, "report.json"), filepath.Join(b, "report.json"), "--fail-over",
		"1e6", "--itl-svg", svg); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), ">static-budget=700</text>") {
		t.Errorf("%v: %.300s", err, text)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir()) // no data sets of this machine
	t.Setenv("HF_HUB_CACHE", "")
	for want, args := range map[string]string{
		"is none of":                "--workload nope",
		"must be real or replay":    "--mode x",
		"--repeats":                 "--repeats 0",
		"--baseline":                "--baseline x",
		"side":                      "--sides x",
		"--under-test":              "--under-test x",
		"needs a server":            "--mode replay --workload storm",
		"does not start":            "--mode replay --sides uma:--single",
		"no closed loop":            "--mode replay --concurrency 4",
		"meridian.ema_alpha is 2":   "--mode replay --sides uma:ema_alpha=2",
		"unknown key":               "--mode replay --sides eat=0.1:ema_alfa=1",
		"maybe\" is none of off":    "--mode replay --early-exit maybe",
		"think evict":               "--mode replay --think-evict all",
		"--background-ratio":        "--mode replay --background-ratio 2",
		"decoder \"warp\"":          "--mode replay --decoder warp",
		"--url":                     "--target ollama",
		"name it with --file":       "--workload sharegpt",
		"--socket is for uma-serve": "--target openai --socket x",
		"leave out --model":         "--socket x -m y",
		"one configuration":         "--socket x --sides stock,uma",
	} {
		if err := do(t, runCommand(), strings.Fields(args+" --out-dir "+t.TempDir())...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", args, want, err)
		}
	}
}

// TestMistakes: the program answers mistakes on its command line with its own error texts.
func TestMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"frobnicate":             `there is no command "frobnicate"`,
		"overhaed":               `there is no command "overhaed"; did you mean overhead?`,
		"soak --sample 5":        `--sample is "5": it must be a duration with a unit`,
		"overhead --streams 1,x": `--streams is "1,x": it must be a comma-separated list of whole numbers`,
		"soak --sampel 5m":       "there is no option --sampel; did you mean --sample?",
		"kv now":                 "uma-bench kv does not take",
		"compare one.json":       "uma-bench compare does not take",
		"completion":             "name one shell",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("uma-bench %s: %v, want %q", line, err, want)
		}
	}
}

func TestSoakFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--hours -1":               "must be more than 0",
		"--days 5000":              "at most 10 years",
		"--rate 0":                 "--rate is 0",
		"--rate 1e9":               "at most 6000 events a minute",
		"--sample 1ms":             "--sample is 1ms",
		"--fault 3m":               "--fault at most half of --stuck",
		"--virtual --sample 500ms": "in virtual time it must be at least 1s",
		"--virtual -- --ctx-size":  "takes no options for one",
	} {
		err := do(t, soakCommand(), strings.Fields(line)...)
		if _, ok := errors.AsType[usageError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("soak %s: %v, want %q", line, err, want)
		}
	}
	if err := do(t, soakCommand(), strings.Fields("--virtual --minutes 20 --rate 4")...); err != nil {
		t.Errorf("twenty virtual minutes: %v", err)
	}
}
