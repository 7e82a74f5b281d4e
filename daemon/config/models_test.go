package config

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestModelTables: a [models.NAME] table says what is served under a name and with which options; the command line and
// the environment override them.
func TestModelTables(t *testing.T) {
	file := write(t, `
ctx-size = 1024
parallel = 4
think-budget = 100
[models.chat]
model = "qwen3:8b"
aliases = ["gpt-4o-mini", "default"]
pinned = true
idle_unload = "90m"
ctx_size = 2048
cache-type-k = "q8_0"
itl-target-ms = 50
think-budget = 5000
no-mmap = true
[models."hf.co/org/repo:Q4_K_M"]
parallel = 2
batch-size = 64
`)
	c, err := load(t, []string{"--config", file, "-b", "128"}, []string{"UMA_CACHE_TYPE_K=f32"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Model{
		{Name: "chat", Model: "qwen3:8b", Aliases: []string{"gpt-4o-mini", "default"}, Pinned: true,
			IdleUnload: 90 * time.Minute,
			Options: map[string]string{"ctx-size": "2048", "cache-type-k": "q8_0", "itl-target-ms": "50",
				"think-budget": "5000", "no-mmap": "true"}},
		{Name: "hf.co/org/repo:Q4_K_M", Model: "hf.co/org/repo:Q4_K_M", IdleUnload: -1,
			Options: map[string]string{"parallel": "2", "batch-size": "64"}},
	}
	if !reflect.DeepEqual(c.Models, want) {
		t.Errorf("got %+v\nwant %+v", c.Models, want)
	}
	for name, want := range map[string]string{"chat": "chat", "CHAT": "chat", "Default": "chat",
		"hf.co/org/repo:q4_k_m": "hf.co/org/repo:Q4_K_M", "qwen3:8b": "", "": ""} {
		m := c.ModelNamed(name)
		if (m == nil) != (want == "") || m != nil && m.Name != want {
			t.Errorf("%q is the table %+v, want %q", name, m, want)
		}
	}
	chat, err := c.ForModel(c.ModelNamed("chat"))
	if err != nil {
		t.Fatal(err)
	}
	if chat.Model != "qwen3:8b" || chat.CtxSize != 2048 || chat.CacheTypeK != "f32" ||
		chat.Meridian.ITLTargetMs != 50 || !chat.NoMMap || chat.Models != nil ||
		chat.Parallel != 4 || chat.BatchSize != 128 || chat.Meridian.MaxThinkTokens != 5000 ||
		chat.Meridian.MinThinkTokens != 512 {
		t.Errorf("the model's configuration: %+v", chat)
	}
	if !chat.Given("ctx-size") {
		t.Error("the table's ctx-size does not count as given")
	}
	other, err := c.ForModel(c.ModelNamed("hf.co/org/repo:Q4_K_M"))
	if err != nil || other.Parallel != 2 || other.BatchSize != 128 || other.CtxSize != 1024 ||
		other.Meridian.MinThinkTokens != 100 {
		t.Errorf("%+v, %v", other, err)
	}
	if c.CtxSize != 1024 || c.Model != "" || c.NoMMap || c.Meridian.MaxThinkTokens != 100 || len(c.Models) != 2 {
		t.Errorf("the daemon's own configuration was changed: %+v", c)
	}
}

// TestDefaultModelIsTheFirstTable of the file, whatever its name and however TOML writes it.
func TestDefaultModelIsTheFirstTable(t *testing.T) {
	for _, file := range []string{
		"[models.zeta]\n[models.alpha]\nctx-size = 512\n[models.mid]\n",
		"[models]\nzeta = {}\nalpha.ctx-size = 512\nmid = {}\n",
		"models = {zeta = {}, alpha = {ctx-size = 512}, mid = {}}\n",
		"models.zeta.ctx-size = 512\nparallel = 2\nmodels.alpha.ctx-size = 512\nmodels.mid.parallel = 2\n",
		"[meridian]\n# no model\n[models.'zeta']\n[telemetry]\n[models.\"alpha\"]\n[models.mid]\n",
	} {
		c, err := load(t, []string{"--config", write(t, file)}, nil)
		if err != nil {
			t.Errorf("%q: %v", file, err)
			continue
		}
		var names []string
		for i := range c.Models {
			names = append(names, c.Models[i].Name)
		}
		if strings.Join(names, " ") != "zeta alpha mid" || !c.isDefault(&c.Models[0]) {
			t.Errorf("%q: the tables are %v", file, names)
		}
	}
}

func TestModelTableErrors(t *testing.T) {
	for _, x := range [][2]string{
		{"[models]\nx = 5", `key "models.x" must be a table: [models.x]`},
		{"models = 5", `unknown key "models"`},
		{"[models.\"a b\"]", `table [models.a b]: "a b" is not a model name: its part "a b" may have letters`},
		{"[models.x]\nctx-sise = 5", `key "models.x.ctx-sise" is unknown; did you mean "ctx-size"?`},
		{"[models.x]\nalias = \"y\"", `key "models.x.alias" is unknown; did you mean "aliases"?`},
		{"[models.x]\nlisten = \"8080\"",
			`key "models.x.listen" is an option of the whole daemon; set it outside [models]`},
		{"[models.x]\nctx-size = \"many\"", `key "models.x.ctx-size" is many: it must be a whole number, or auto`},
		{"[models.x]\nctx-size = 5", `table [models.x]: --ctx-size is 5; it must be 64…`},
		{"[models.x]\nctx-size = [5]", `key "models.x.ctx-size" must be a single value`},
		{"[models.x]\nctx-size = 500\nctx_size = 600",
			`key "models.x.ctx-size" and key "models.x.ctx_size" are the same; keep one`},
		{"[models.x]\npinned = \"yes\"", `key "models.x.pinned" is yes; it must be true or false`},
		{"[models.x]\nidle-unload = 15", `key "models.x.idle-unload" is 15; it must be a duration with a unit`},
		{"[models.x]\nidle-unload = \"-1s\"", `key "models.x.idle-unload" is -1s; it must be a duration`},
		{"[models.x]\nmodel = 5", `key "models.x.model" is 5; it must be a GGUF file or the name of a model`},
		{"[models.x]\naliases = \"y\"", `key "models.x.aliases" is y; it must be a list of names`},
		{"[models.x]\naliases = [5]", `key "models.x.aliases" holds 5; it must be a list of names`},
		{"[models.x]\naliases = [\"../y\"]", `key "models.x.aliases" holds a wrong name: "../y" is not a model name`},
		{"[models.x]\naliases = [\"Y\"]\n[models.y]\n", `table [models.y]: the name "y" is taken by [models.x]`},
		{"[models.x]\naliases = [\"z\"]\n[models.y]\naliases = [\"z\"]",
			`table [models.y]: the name "z" is taken by [models.x]`},
		{"hf-repo = \"x\"",
			`--hf-repo: "hf.co/x" is not a model name: a model of Hugging Face is written hf.co/ORG/REPO[:QUANT]`},
		{"hf-repo = \"ollama.com/x\"",
			`--hf-repo: "ollama.com/x" is a model of ollama.com; it must be ORG/REPO[:QUANT] of Hugging Face`},
		{"model = \"x\"\nhf-repo = \"a/b\"", `--model and --hf-repo exclude each other`},
	} {
		text, want := x[0], x[1]
		if _, err := load(t, []string{"--config", write(t, text+"\n")}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %q", text, err, want)
		}
	}
	var many strings.Builder
	for i := range maxModelTables + 1 {
		fmt.Fprintf(&many, "[models.m%d]\n", i)
	}
	if _, err := load(t, []string{"--config", write(t, many.String())}, nil); err == nil ||
		!strings.Contains(err.Error(), "257 tables [models.NAME]; the maximum is 256") {
		t.Errorf("%v", err)
	}
}

// TestModelOfTheHigherLayer: --model and --hf-repo name the same thing, and the higher layer's name holds.
func TestModelOfTheHigherLayer(t *testing.T) {
	file := write(t, "model = \"x.gguf\"\n")
	if c, err := load(t, []string{"--config", file, "-hf", "org/repo:Q4_0"}, nil); err != nil || c.Model != "" ||
		c.HFRepo != "org/repo:Q4_0" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := load(t, []string{"--config", file}, []string{"UMA_HF_REPO=org/repo"}); err != nil || c.Model != "" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := load(t, []string{"-m", "y.gguf"}, []string{"UMA_HF_REPO=org/repo"}); err != nil ||
		c.Model != "y.gguf" || c.HFRepo != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestModelTablesArePrinted: --print-config prints the tables, and the sample has one that is valid.
func TestModelTablesArePrinted(t *testing.T) {
	file := write(t, `
[models."a/b:c"]
model = "x"
aliases = ["y"]
pinned = true
idle-unload = "1h"
ctx-size = 512
think = "on"
[models.z]
`)
	c, err := load(t, []string{"--config", file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, sections := NewFlagSet()
	var printed bytes.Buffer
	if err := c.WriteTOML(&printed, sections); err != nil {
		t.Fatal(err)
	}
	again, err := load(t, []string{"--config", write(t, printed.String())}, nil)
	if err != nil || !reflect.DeepEqual(again.Models, c.Models) {
		t.Errorf("%v\n%+v\nwas\n%+v\nin\n%s", err, again.Models, c.Models, printed.String())
	}

	sample := modelsSample()
	_, table, _ := strings.Cut(sample, "----\n")
	table, list, _ := strings.Cut(table, "# The options")
	c, err = load(t, []string{"--config", write(t, regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(table, ""))}, nil)
	if err != nil || len(c.Models) != 1 || c.Models[0].Name != "chat" || len(c.Models[0].Aliases) != 1 ||
		len(c.Models[0].Options) != 1 {
		t.Errorf("the sample's table: %+v, %v\n%s", c, err, table)
	}
	options, _, _ := NewFlagSet()
	for _, name := range modelOptions {
		if options.Lookup(name) == nil || !strings.Contains(list, name) {
			t.Errorf("%s is no option, or not in the sample", name)
		}
	}
}

// TestEagleOfATable: --spec-type draft-eagle3 of all models is for those with a file of a head.
func TestEagleOfATable(t *testing.T) {
	file := write(t, "spec-type = \"draft-eagle3\"\n[models.a]\nmodel = \"/a\"\ndraft-model = \"head\"\n"+
		"[models.b]\nmodel = \"/b\"\n")
	cfg, err := load(t, []string{"--config", file, "-m", "a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if m, err := cfg.ForModel(&cfg.Models[i]); err != nil || (m.HeadFile() != "") != want {
			t.Errorf("%s: %v, with a head %q", cfg.Models[i].Name, err, m.HeadFile())
		}
	}
	if m, err := cfg.ForFound("found", "/found"); err != nil || m.HeadFile() != "" {
		t.Errorf("a found model: %v, with a head %q", err, m.HeadFile())
	}
	if _, err := load(t, []string{"-m", "/a", "--spec-type", "draft-eagle3"}, nil); err == nil ||
		!strings.Contains(err.Error(), "--draft-model") {
		t.Errorf("without a file: %v", err)
	}
}

// TestDraftModelOfATable: --draft-model is the default model's; a table sets that of its model.
func TestDraftModelOfATable(t *testing.T) {
	file := write(t, "draft-model = \"global\"\n[models.a]\nmodel = \"/a\"\n[models.b]\nmodel = \"/b\"\n"+
		"draft-model = \"mine\"\n[models.c]\nmodel = \"/c\"\n")
	for _, c := range []struct {
		args       []string
		a, b, c, f string
	}{
		{nil, "global", "mine", "", ""},
		{[]string{"-m", "c"}, "", "mine", "global", ""},
		{[]string{"-m", "b"}, "", "mine", "", ""},
		{[]string{"-m", "b", "--draft-model", "flag"}, "", "flag", "", ""},
		{[]string{"--draft-model", "flag"}, "flag", "mine", "", ""},
		{[]string{"--model-draft", "flag", "-m", "/other"}, "", "mine", "", ""},
	} {
		cfg, err := load(t, NormalizeArgs(append([]string{"--config", file}, c.args...)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range cfg.Models {
			m, err := cfg.ForModel(&cfg.Models[i])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m.DraftModel)
		}
		found, err := cfg.ForFound("found", "/found")
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, found.DraftModel); !slices.Equal(got, []string{c.a, c.b, c.c, c.f}) {
			t.Errorf("%q: the draft models are %q", c.args, got)
		}
	}
}
