package clierr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestFlag(t *testing.T) {
	for args, want := range map[string]string{
		"--interval 1": "--interval is \"1\": it must be a duration with a unit, such as 500ms, 30s " +
			"or 5m",
		"--temp x":                    `--temp is "x": it must be a number`,
		"--temp 1e99":                 `--temp is "1e99": the number is too large`,
		"--top-k 1.5":                 `--top-k is "1.5": it must be a whole number`,
		"--top-k 9999999999999999999": `--top-k is "9999999999999999999": the number is too large`,
		"--json=x":                    `--json is "x": it must be true or false`,
		"--streams 1,x": `--streams is "1,x": it must be a comma-separated list of whole numbers, such ` +
			`as 1,4,16`,
		"--coeffs 1,x": `--coeffs is "1,x": it must be a comma-separated list of numbers, such as 0.5,1,2`,
		"--tempp 1":    "there is no option --tempp; did you mean --temp?",
		"--frobnicate": "there is no option --frobnicate",
		"--secre":      "there is no option --secre",
		"-z":           "there is no option -z",
		"-jz":          "there is no option -z",
		"-file=x":      "there is no option -f (in -file=x); did you mean --file?",
		"--file":       "--file needs a value: --file NAME",
		"--=x":         `"--=x" is not an option; options are written --name VALUE or --name=VALUE`,
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.Duration("interval", time.Second, "")
		flags.Float32("temp", 1, "")
		flags.Int("top-k", 1, "")
		flags.BoolP("json", "j", false, "")
		flags.IntSlice("streams", nil, "")
		flags.Float64Slice("coeffs", nil, "")
		flags.String("file", "", "the `name`")
		flags.Bool("secret", false, "")
		flags.MarkHidden("secret")
		err := flags.Parse(strings.Fields(args))
		if err == nil {
			t.Errorf("%s is accepted", args)
			continue
		}
		if got := Flag(flags, err).Error(); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func TestText(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	open := func(path string) error { _, err := os.Open(path); return err }
	read := func(path string) error { _, err := os.ReadFile(path); return err }
	_, number := strconv.Atoi("x")
	_, large := strconv.Atoi("99999999999999999999")
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("plain"), "plain"},
		{open(none), none + ": no such file"},
		{fmt.Errorf("--file: %w", open(none)), "--file: " + none + ": no such file"},
		{fmt.Errorf("%s: %w", none, open(none)), none + ": no such file"},
		{errors.Join(errors.New("a"), open(none)), "a\n" + none + ": no such file"},
		{open(filepath.Join(none, "x")), filepath.Join(none, "x") + ": there is no directory " + none},
		{read(dir), dir + ": it is a directory, not a file"},
		{open(filepath.Join(file, "x")), filepath.Join(file, "x") + ": part of the path is a file, not a directory"},
		{open(loop), loop + ": its symbolic links form a loop"},
		{open(filepath.Join(dir, strings.Repeat("x", 300))), filepath.Join(dir, strings.Repeat("x", 300)) +
			": the name is too long"},
		{os.Mkdir(dir, 0o700), dir + ": it already exists"},
		{os.Rename(none, file), file + ": no such file"},
		{&fs.PathError{Op: "open", Path: "/x", Err: fs.ErrPermission}, "/x: permission denied"},
		{&fs.PathError{Op: "read", Path: "/x", Err: errors.New("input/output error")},
			"/x: read failed: input/output error"},
		{fmt.Errorf("count: %w", number), `count: "x" is not a number`},
		{large, `"99999999999999999999" is too large a number`},
	} {
		if got := Text(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	err := File("/home/talk.json", open(filepath.Join(none, ".talk.json.123")))
	if err.Error() != "/home/talk.json: there is no directory /home" &&
		err.Error() != "/home/talk.json: no such file" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if File("x", nil) != nil {
		t.Error("no error became one")
	}
}

func TestKind(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{0o644: "", fs.ModeDir | 0o755: "a directory",
		fs.ModeNamedPipe: "a named pipe", fs.ModeSocket: "a socket",
		fs.ModeDevice | fs.ModeCharDevice: "a device", fs.ModeIrregular: "not a regular file"} {
		if got := Kind(mode); got != want {
			t.Errorf("%v: %q, want %q", mode, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"parallel", "policy", "socket"}
	for name, want := range map[string]string{"paralel": "parallel", "polciy": "policy", "sokcet": "socket", "zzz": "",
		strings.Repeat("policy", 20): ""} {
		if got := Nearest(name, words); got != want {
			t.Errorf("%.20s: %q, want %q", name, got, want)
		}
	}
}
