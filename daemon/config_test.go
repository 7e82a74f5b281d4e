package daemon

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
)

// load parses a command line as the binary does.
func load(t *testing.T, args, environ []string) (*Config, error) {
	t.Helper()
	fs, c, _ := NewFlagSet()
	if err := fs.Parse(NormalizeArgs(args)); err != nil {
		return nil, err
	}
	return c, Load(fs, c, environ)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "uma.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigLayers(t *testing.T) {
	file := write(t, "ctx-size = 1000\nbatch_size = 300\nthreads = 3\nlog-level = \"warn\"\nidle-timeout = \"7s\"\nmlock = true\n")
	c, err := load(t, []string{"--config", file, "-t", "9"}, []string{"UMA_BATCH_SIZE=200", "UMA_THREADS=8", "UMA_DEBUG=1", "UMA_SOCKET=/x", "HOME=/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ what, got, want any }{
		{"default", c.Parallel, 16},
		{"file", c.CtxSize, 1000},
		{"file, underscore and duration", c.IdleTimeout, 7 * time.Second},
		{"file, bool", c.MLock, true},
		{"environment over file", c.BatchSize, 200},
		{"flag over environment and file", c.Threads, 9},
		{"UMA_DEBUG over file", c.LogLevel, "debug"},
		{"environment", c.Socket, "/x"},
	} {
		if x.got != x.want {
			t.Errorf("%s: %v, want %v", x.what, x.got, x.want)
		}
	}
	if c, err := load(t, nil, []string{"UMA_CONFIG=" + file, "UMA_DEBUG=0"}); err != nil || c.CtxSize != 1000 || c.LogLevel != "warn" {
		t.Errorf("UMA_CONFIG: %+v %v", c, err)
	}
}

func TestConfigNamesOfOtherServers(t *testing.T) {
	c, err := load(t, strings.Fields("-m x.gguf -c 512 -np 4 -ngl 7 -fa -ub=64 -b 128 -ctk q8_0 -ctv f16 -tb 2 --n-predict 9 --uds /s -s 5"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Model: "x.gguf", CtxSize: 512, Parallel: 4, GPULayers: 7, FlashAttn: "on", UBatchSize: 64, BatchSize: 128,
		CacheTypeK: "q8_0", CacheTypeV: "f16", ThreadsBatch: 2, MaxTokens: 9, Socket: "/s", Seed: 5}
	got, w := reflect.ValueOf(*c), reflect.ValueOf(want)
	for i := range w.NumField() {
		if !w.Field(i).IsZero() && !reflect.DeepEqual(got.Field(i).Interface(), w.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v", w.Type().Field(i).Name, got.Field(i), w.Field(i))
		}
	}
	if got := NormalizeArgs([]string{"-fa", "off", "--", "-np"}); strings.Join(got, " ") != "--flash-attn off -- -np" {
		t.Errorf("%q", got)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	for _, c := range []struct {
		args, env []string
		file      string
		want      []string // all in the error
	}{
		{args: []string{"--parallel", "257"}, want: []string{"--parallel", "257", "1…256"}},
		{args: []string{"-b", "4"}, want: []string{"--batch-size", "--parallel"}},
		{args: []string{"--policy", "best"}, want: []string{"--policy", `"best"`, "uma or stock"}},
		{args: []string{"--socket-mode", "9"}, want: []string{"--socket-mode", "octal"}},
		{args: []string{"--socket-mode", "1777"}, want: []string{"--socket-mode"}},
		{args: []string{"--max-frame-bytes", "16777216"}, want: []string{"--max-frame-bytes", "16777215"}},
		{args: []string{"--tick-budget-ms", "NaN"}, want: []string{"--tick-budget-ms"}},
		{args: []string{"--shutdown-timeout", "-1s"}, want: []string{"--shutdown-timeout", "negative"}},
		{args: []string{"--log-level", "loud", "--log-format", "xml"}, want: []string{"--log-level", "--log-format"}},
		{env: []string{"UMA_CTX_SIZE=many"}, want: []string{"UMA_CTX_SIZE", "many"}},
		{file: "ctx-sice = 5\n", want: []string{"ctx-sice", "unknown"}},
		{file: "[meridian]\nx = 1\n", want: []string{"meridian"}},
		{file: "ctx-size = [1]\n", want: []string{"ctx-size", "list"}},
		{file: "ctx-size = \"a\"\n", want: []string{"ctx-size"}},
		{file: "a = = 1\n", want: []string{"line 1"}},
	} {
		args := c.args
		if c.file != "" {
			args = append(args, "--config", write(t, c.file))
		}
		_, err := load(t, args, c.env)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q %q %q: error %v lacks %q", c.args, c.env, c.file, err, w)
			}
		}
	}
	if _, err := load(t, []string{"--config", "/nonexistent/uma.toml"}, nil); err == nil {
		t.Error("a missing --config file is no error")
	}
}

// Every field has a flag: nothing can be set that cannot be set from the command line, the environment and the file.
func TestConfigEveryFieldHasAFlag(t *testing.T) {
	_, c, _ := NewFlagSet()
	n := 0
	fs, _, _ := NewFlagSet()
	fs.VisitAll(func(f *pflag.Flag) {
		n++
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
	if fields := reflect.TypeOf(*c).NumField(); n != fields {
		t.Errorf("%d flags for %d fields", n, fields)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("ctx-size = 1\n")
	f.Add("seed = 1e99\nmodel = \"\\u0000\"\n[a.b]\nc=1")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Skip()
		}
		fs, c, _ := NewFlagSet()
		c.ConfigFile = path
		err := Load(fs, c, nil)
		var doc map[string]any
		if toml.Unmarshal([]byte(text), &doc) != nil && err == nil {
			t.Errorf("no error for broken TOML %q", text)
		}
		if err == nil && c.Validate() != nil {
			t.Errorf("an invalid configuration was accepted: %q", text)
		}
	})
}
