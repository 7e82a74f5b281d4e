package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// load parses a command line as the binary does.
func load(t *testing.T, args, environ []string) (*Config, error) {
	t.Helper()
	fs, c, _ := NewFlagSet()
	if err := fs.Parse(NormalizeArgs(args)); err != nil {
		return nil, clierr.Flag(fs, err)
	}
	return c, c.Load(environ)
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
	file := write(t, "ctx-size = 1000\nbatch_size = 300\nthreads = 3\nlog-level = \"warn\"\nidle-timeout = \"7s\"\n"+
		"mlock = true\n")
	c, err := load(t, []string{"--config", file, "-t", "9"},
		[]string{"UMA_BATCH_SIZE=200", "UMA_THREADS=8", "UMA_DEBUG=1", "UMA_SOCKET=/x", "HOME=/"})
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
	if c, err := load(t, nil, []string{"UMA_CONFIG=" + file, "UMA_DEBUG=0"}); err != nil || c.CtxSize != 1000 ||
		c.LogLevel != "warn" {
		t.Errorf("UMA_CONFIG: %+v %v", c, err)
	}
}

func TestConfigNamesOfOtherServers(t *testing.T) {
	c, err := load(t, strings.Fields("-m x.gguf -c 512 -np 4 -ngl 7 -fa -ub=64 -b 128 -ctk q8_0 -ctv f16 "+
		"--n-predict 9 --uds /s -s 5"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Model: "x.gguf", CtxSize: 512, Parallel: 4, GPULayers: 7, FlashAttn: "on", UBatchSize: 64,
		BatchSize:  128,
		CacheTypeK: "q8_0", CacheTypeV: "f16", Defaults: `{"max_tokens":9}`, Socket: "/s", Seed: 5}
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
		{args: []string{"--parallel", "257"}, want: []string{"--parallel", "257", "1…248"}},
		{args: []string{"-b", "4"}, want: []string{"--batch-size", "--parallel"}},
		{args: []string{"-c", "1"},
			want: []string{"--ctx-size is 1; it must be 64…134217728, 0 for the model's training context"}},
		{args: []string{"-c", "-1"}, want: []string{`--ctx-size is "-1": it must be 64…`}},
		{args: []string{"-c", "64", "-np", "100"},
			want: []string{"--ctx-size is 64; it must be at least --parallel (100)"}},
		{args: []string{"-ctk", "q9"}, want: []string{`--cache-type-k is "q9"; it must be f32 or f16`}},
		{args: []string{"-ctv", "q8_0", "-fa", "off"},
			want: []string{`--cache-type-v is "q8_0"; with --flash-attn off it must be f32 or f16 or bf16`}},
		{args: []string{"-z"}, want: []string{"there is no option -z"}},
		{args: []string{"--model"}, want: []string{"--model needs a value: --model FILE"}},
		{args: []string{"-m"}, want: []string{"--model needs a value"}},
		{args: []string{"--=x"}, want: []string{`"--=x" is not an option`}},
		{args: []string{"--mlock=x"}, want: []string{`--mlock is "x": it must be true or false`}},
		{args: []string{"--itl-target-ms", "x"}, want: []string{`--itl-target-ms is "x": it must be a number`}},
		{args: []string{"--idle-timeout", "5"},
			want: []string{`--idle-timeout is "5": it must be a duration with a unit`}},
		{file: "ctx-size = 500\nctx_size = 600\n",
			want: []string{`key "ctx-size" and key "ctx_size" are the same option`}},
		{file: "config = \"x\"\n", want: []string{`unknown key "config"`}},
		{args: []string{"--policy", "best"}, want: []string{"--policy", `"best"`, "uma or stock"}},
		{args: []string{"--socket-mode", "9"}, want: []string{"--socket-mode", "octal"}},
		{args: []string{"--socket-mode", "1777"}, want: []string{"--socket-mode"}},
		{args: []string{"--max-frame-bytes", "16777216"}, want: []string{"--max-frame-bytes", "16777215"}},
		{args: []string{"--tick-budget-ms", "NaN"}, want: []string{"--tick-budget-ms"}},
		{args: []string{"--shutdown-timeout", "-1s"}, want: []string{"--shutdown-timeout", "negative"}},
		{args: []string{"--log-level", "loud", "--log-format", "xml"}, want: []string{"--log-level", "--log-format"}},
		{env: []string{"UMA_CTX_SIZE=many"}, want: []string{`UMA_CTX_SIZE="many": it must be a whole number, or auto`}},
		{env: []string{"UMA_IDLE_TIMEOUT=5"},
			want: []string{`UMA_IDLE_TIMEOUT="5": it must be a duration with a unit, such as`}},
		{args: []string{"--ctx-sise", "5"}, want: []string{`there is no option --ctx-sise; did you mean --ctx-size?`}},
		{args: []string{"-c", "99999999999999999999"},
			want: []string{`--ctx-size is "99999999999999999999": the number is too large`}},
		{args: []string{"-c", "4k"}, want: []string{`--ctx-size is "4k": it must be a whole number, or auto`}},
		{file: "ctx-sice = 5\n", want: []string{"ctx-sice", "unknown"}},
		{file: "[meridian]\nx = 1\n", want: []string{`unknown key "meridian.x"`}},
		{file: "[meridian]\nema_alhpa = 1\n",
			want: []string{`unknown key "meridian.ema_alhpa"; did you mean "ema_alpha"?`}},
		{file: "[meridian.entropy]\nema_alpha = \"x\"\n",
			want: []string{`key "meridian.ema_alpha" is x: it must be a number`}},
		{file: "[meridian]\nmin_think_tokens = 1.5\n",
			want: []string{`key "meridian.min_think_tokens" is 1.5: it must be a whole number`}},
		{file: "[meridian]\nentropy_enabled = 1\n", want: []string{`it must be true or false`}},
		{file: "[meridian]\nrpdi_form = \"x\"\n", want: []string{`key "meridian.rpdi_form" is x: `, "entropy"}},
		{file: "[meridian]\nrpdi_form = 5\n", want: []string{`key "meridian.rpdi_form" is 5: it must be a word`}},
		{file: "[meridian]\nmarkers = 5\n", want: []string{`it must be a table such as { open = `}},
		{args: []string{"--meridian", "ema_alpha=x"},
			want: []string{`--meridian is "ema_alpha=x": key "meridian.ema_alpha" is x: it must be a number`}},
		{file: "[meridian]\nema_alpha = 2\n",
			want: []string{"meridian.ema_alpha is 2; it must be a number of 0.0001…1"}},
		{file: "[meridian]\nearly_exit = \"yes\"\n",
			want: []string{`"meridian.early_exit"`, `"yes" is none of off, eat, rpdi, both`}},
		{file: "[meridian]\nema_alpha = 0.2\n[meridian.entropy]\nema_alpha = 0.2\n",
			want: []string{"ema_alpha", "given twice"}},
		{file: "[meridian.engine]\nx = 2\n", want: []string{`unknown key "meridian.engine"`}},
		{file: "[meridian.markers]\nopenn = [\"<a>\"]\n", want: []string{`"meridian.markers"`, "openn"}},
		{file: "itl-target-ms = 30\n[meridian.scheduler]\noutput_tpot_budget_ms = 30\n",
			want: []string{"output_tpot_budget_ms", "itl-target-ms", "same option"}},
		{file: "[meridian]\noutput_tpot_budget_ms = [1]\n", want: []string{"meridian.output_tpot_budget_ms", "list"}},
		{file: "parallell = 5\n", want: []string{`unknown key "parallell"; did you mean "parallel"?`}},
		{args: []string{"--itl-target-ms", "0"}, want: []string{"--itl-target-ms is 0", "1…60000"}},
		{args: []string{"--think-floor-ms", "NaN"}, want: []string{"--think-floor-ms is NaN"}},
		{args: []string{"--policy", "best"}, want: []string{"meridian or meridian_static"}},
		{args: []string{"--policy", "pascal"}, want: []string{"uma or stock or meridian or meridian_static"}},
		{args: []string{"--think", "maybe"}, want: []string{"--think", `"maybe" is none of auto, off, on`}},
		{args: []string{"--early-exit", "no"}, want: []string{"--early-exit", "rpdi"}},
		{args: []string{"--think-budget", "-2"}, want: []string{"--think-budget is -2"}},
		{args: []string{"--meridian", "ema_alpha"}, want: []string{"--meridian", "KEY=VALUE"}},
		{args: []string{"--meridian", "ema_alfa=1"}, want: []string{`did you mean "ema_alpha"`}},
		{args: []string{"--meridian", "early_exit=eat"}, want: []string{"--early-exit"}},
		{args: []string{"--cache-ram", "lots"}, want: []string{"--cache-ram", `"lots" is not a size`, "512MiB"}},
		{args: []string{"--cache-ram", "101%"}, want: []string{"--cache-ram", "more than 100%"}},
		{args: []string{"--cache-ram=-1"}, want: []string{"--cache-ram", "negative"}},
		{args: []string{"--cache-disk", "25%"}, want: []string{"--cache-disk", "10GiB"}},
		{args: []string{"--cache-disk", "0", "--cache-dir", "/x"}, want: []string{"--cache-dir", "--cache-disk is 0"}},
		{args: []string{"--share-prefixes", "all"}, want: []string{"--share-prefixes", "off or system"}},
		{args: []string{"--think-evict", "all"}, want: []string{"--think-evict", "none or offload or drop"}},
		{args: []string{"--think-evict", "offload", "--no-prefix-cache"}, want: []string{"--think-evict is offload",
			"--no-prefix-cache"}},
		{args: []string{"--think-evict", "offload", "--cache-ram", "0"}, want: []string{"--think-evict is offload",
			"--cache-ram is 0"}},
		{env: []string{"UMA_THINK_EVICT=x"}, want: []string{"--think-evict"}},
		{file: "ctx-size = [1]\n", want: []string{"ctx-size", "list"}},
		{file: "ctx-size = \"a\"\n", want: []string{`key "ctx-size" is a: it must be a whole number, or auto`}},
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
	dir := t.TempDir()
	for path, want := range map[string]string{
		"/nonexistent/uma.toml":         "config /nonexistent/uma.toml: there is no directory /nonexistent",
		filepath.Join(dir, "none.toml"): "none.toml: no such file",
		dir:                             "it is a directory, not a file",
	} {
		if _, err := load(t, []string{"--config", path}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--config %s: %v, want %q", path, err, want)
		}
	}
}

// TestConfigMeridian: the file's tables, options and --meridian set the same fields, in the order of the layers.
func TestConfigMeridian(t *testing.T) {
	file := write(t, `
parallel = 4
[meridian]
min_think_tokens = 8
markers = { open = ["[THINK]"], close = ["[/THINK]"] }
[meridian.scheduler]
think_batch_multiplier = 4
output_tpot_budget_ms = 50
max_think_tokens = 1000
[meridian.entropy]
enabled = false
ema_alpha = 0.2
rpdi_form = "indicator"
[meridian.kv_memory]
think_evict = "offload"
[meridian.disagg]
fabric = "memory"
offload_threshold_blocks = 9
`)
	c, err := load(t, []string{"--config", file, "--meridian", "ema_alpha=0.3,eat-warmup-probes=99",
		"--meridian=watch_signals=\"rpdi\"", "--think-evict", "drop", "--think=on"},
		[]string{"UMA_EARLY_EXIT=both", "UMA_TRACE=/tmp/t"})
	if err != nil {
		t.Fatal(err)
	}
	m := meridian.DefaultConfig()
	m.MinThinkTokens, m.Markers, m.ThinkBatchMultiplier, m.ITLTargetMs, m.MaxThinkTokens = 8,
		meridian.Markers{Open: []string{"[THINK]"}, Close: []string{"[/THINK]"}}, 4, 50, 1000
	m.EntropyEnabled, m.EMAAlpha, m.RPDIForm, m.EATWarmupProbes, m.WatchSignals = false, 0.3,
		meridian.RPDIIndicator, 99, meridian.ExitRPDI
	m.ThinkMode, m.EarlyExit, m.ThinkFloorMs = meridian.ModeOn, meridian.ExitBoth, 250
	if !reflect.DeepEqual(c.Meridian, m) {
		t.Errorf("got %+v\nwant %+v", c.Meridian, m)
	}
	if c.ThinkEvict != "drop" || c.Fabric != "memory" ||
		c.OffloadThresholdBlocks != 9 || c.Trace != "/tmp/t" || c.Parallel != 4 {
		t.Errorf("%+v", c)
	}
	// A short budget takes the least thinking along, unless that is set.
	if c, err := load(t, strings.Fields("--reasoning-budget 100 -rea off"), nil); err != nil ||
		c.Meridian.MaxThinkTokens != 100 || c.Meridian.MinThinkTokens != 100 ||
		c.Meridian.ThinkMode != meridian.ModeOff {
		t.Errorf("--reasoning-budget: %+v %v", c, err)
	}
	if _, err := load(t, strings.Fields("--think-budget 100 --meridian min_think_tokens=200"), nil); err == nil ||
		!strings.Contains(err.Error(), "max_think_tokens is 100; it must be at least min_think_tokens (200)") {
		t.Errorf("a budget below the least thinking: %v", err)
	}
	// What is not set has the defaults, and every key is one of them.
	if c, err := load(t, nil, nil); err != nil || c.Meridian.EMAAlpha != meridian.DefaultConfig().EMAAlpha ||
		c.Meridian.ITLTargetMs != 100 || c.Meridian.MaxThinkTokens != meridian.DefaultConfig().MaxThinkTokens {
		t.Errorf("defaults: %+v %v", c, err)
	}
	fs, _, _ := NewFlagSet()
	for key, flag := range meridianFlags {
		if fs.Lookup(flag) == nil {
			t.Errorf("%s has no flag --%s", key, flag)
		}
	}
	for _, p := range sched.Policies() {
		if !strings.Contains(policyHelp, p+" (") {
			t.Errorf("--help does not say what --policy %s does", p)
		}
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": {}, "512MiB": {Bytes: 512 << 20}, "2GB": {Bytes: 2e9}, "1.5g": {Bytes: 3 << 29}, "8192": {Bytes: 8 << 30},
		" 7 b ": {Bytes: 7},
		"25%":   {Share: 0.25}, "100 %": {Share: 1}, "auto": {Auto: true}, "AUTO": {Auto: true}, "0%": {},
		"3TiB": {Bytes: 3 << 40}, "10kb": {Bytes: 10000},
	} {
		var s Size
		if err := s.Set(text); err != nil || s.Bytes != want.Bytes || s.Share != want.Share || s.Auto != want.Auto ||
			s.String() != strings.TrimSpace(text) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	for _, bad := range []string{"", "MiB", "-1", "-1%", "101%", "1e300", "nan", "inf", "1 2", "5 parsecs", "2EiB",
		"%"} {
		s := sizeOf("1k")
		if err := s.Set(bad); err == nil || s.Bytes != 1024 {
			t.Errorf("%q is accepted, or changed the size before: %+v", bad, s)
		}
	}
	for text, want := range map[string]int64{"25%": 25, "7b": 7, "0": 0} {
		s := sizeOf(text)
		if got, ok := s.Of(100); got != want || !ok {
			t.Errorf("%s of 100: %d, %v", text, got, ok)
		}
	}
	if s := sizeOf("auto"); true {
		if _, ok := s.Of(100); ok {
			t.Error("auto has a number")
		}
	}
}

func TestDidYouMean(t *testing.T) {
	words := []string{"parallel", "policy", "ema_alpha", "eat_warmup_probes"}
	for name, want := range map[string]string{"paralel": "parallel", "polciy": "policy", "alpha_ema": "", "zzz": "",
		"eat_warmup": "", "eat_warm_up_probe": "eat_warmup_probes"} {
		got := didYouMean(name, words)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func FuzzSize(f *testing.F) {
	f.Add("512MiB")
	f.Add("25%")
	f.Add("1e18b")
	f.Fuzz(func(t *testing.T, text string) {
		var s Size
		if s.Set(text) != nil {
			return
		}
		if n, ok := s.Of(1 << 40); ok && (n < 0 || n > 1<<60) || s.Share < 0 || s.Share > 1 {
			t.Errorf("%q is %+v", text, s)
		}
	})
}

// Every field has a flag: nothing can be set that cannot be set from the command line, the environment and the file.
func TestConfigEveryFieldHasAFlag(t *testing.T) {
	_, c, _ := NewFlagSet()
	// Of the fields, Models, MCP, Router, Puller, Backends, Place, Warnings, Recipe, Tuning and layers are no options;
	// Meridian has five flags: --meridian and those below.
	n := 0
	fs, _, _ := NewFlagSet()
	bound := 0
	for _, flag := range []string{"meridian", "itl-target-ms", "think-floor-ms", "think", "early-exit"} {
		if fs.Lookup(flag) != nil {
			bound++
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		n++
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
	if fields := reflect.TypeOf(*c).NumField() - 14; n-bound != fields || bound != 5 {
		t.Errorf("%d flags for %d fields", n, fields)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("ctx-size = 1\n")
	f.Add("[meridian]\nema_alpha = 0.2\n[meridian.scheduler]\nthink_mode = \"on\"\n[meridian.markers]\nopen = [\"a\"]")
	f.Add("seed = 1e99\nmodel = \"\\u0000\"\n[a.b]\nc=1")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, c, _ := NewFlagSet()
		err := c.Load([]string{"UMA_CONFIG=" + path})
		var doc map[string]any
		if toml.Unmarshal([]byte(text), &doc) != nil && err == nil {
			t.Errorf("no error for broken TOML %q", text)
		}
		if err == nil && c.Validate() != nil {
			t.Errorf("an invalid configuration was accepted: %q", text)
		}
	})
}
