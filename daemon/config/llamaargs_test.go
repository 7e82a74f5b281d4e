package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestCommandLineOfLlamaServer: one as its users have it starts this server, with the same model, address and values of
// requests.
func TestCommandLineOfLlamaServer(t *testing.T) {
	c, err := load(t, []string{"-m", "x.gguf", "--host", "0.0.0.0", "--port=9000", "-a", "gpt-4o,other", "--jinja",
		"--temp", "0.2", "--top-k=20", "--min-p", "0.05", "-n", "256", "--grammar", `root ::= "a"`, "--ignore-eos",
		"--chat-template-kwargs", `{"enable_thinking":false}`, "-to", "600", "--no-context-shift", "-ngl", "99", "-fa",
		"--metrics", "--sleep-idle-seconds", "60", "--tags", "fast,small", "--verbose", "--models-max", "4",
		"--api-keys", "keys", "--ssl-cert-file", "c.pem", "--ssl-key-file", "k.pem"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"chat_template_kwargs":{"enable_thinking":false},"grammar":"root ::= \"a\"","ignore_eos":true,` +
		`"max_tokens":256,"min_p":0.05,"temperature":0.2,"top_k":20,"verbose":true}`
	if c.Defaults != want {
		t.Errorf("defaults\n%s\nwant\n%s", c.Defaults, want)
	}
	got := fmt.Sprintln(c.Listen, c.Alias, c.Tags, c.MaxTokens, c.ContextShift, c.GPULayers, c.FlashAttn, c.IdleUnload,
		c.LogLevel, c.ModelsMax, c.TLSCert, c.TLSKey, c.ModelLabel(), c.MoreNames())
	want = "[0.0.0.0:9000] [gpt-4o other] [fast small] 0 false 99 on 1m0s debug 4 c.pem k.pem gpt-4o [other x]\n"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if w := strings.Join(c.Warnings, "\n"); strings.Count(w, "is left out") != 3 ||
		!strings.Contains(w, "--jinja is left out: it is so by itself") || !strings.Contains(w, "-to is left out") {
		t.Errorf("warnings:\n%s", w)
	}
}

// TestSlotsOfLlamaServer: its options for the context of a slot, of which the last counts, and for /slots.
func TestSlotsOfLlamaServer(t *testing.T) {
	for args, want := range map[string]string{"": "1000 false", "-np 4 -no-kvu": "250 false",
		"-no-kvu -kvu":                         "1000 false",
		"--kv-unified-per-slot 300 --no-slots": "300 true", "--kv-unified=off --slots=off": "62 true",
		"--no-slots --slots": "1000 false", "--request-ctx-size Share -np 2": "500 false"} {
		c, err := load(t, append([]string{"-m", "x"}, strings.Fields(args)...), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Longest(1000), c.NoSlots); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
	for _, bad := range []string{"-1", "x", "3", "1e9"} {
		if _, err := load(t, []string{"--request-ctx-size", bad}, nil); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	file := write(t, "[models.a]\nmodel = '/a'\nrequest-ctx-size = 'share'\nparallel = 5\n")
	c, err := load(t, []string{"--config", file}, nil)
	if err != nil || c.Models[0].Options["request-ctx-size"] != "share" {
		t.Errorf("%v", err)
	}
}

func TestRefusedOptionsOfLlamaServer(t *testing.T) {
	for args, want := range map[string]string{"--rope-scale 4": "positions", "--api-key abc": "--api-keys",
		"--override-kv a=int:1": "gguf-set-metadata", "-ts 1,1": "--gpu-layers", "--temp hot": "a string",
		"--top-k 1.5": "top_k", "--temp 1e9": "temperature", "--defaults [1]": "JSON object",
		`--defaults {"prompt":"x"}`: "prompt", "--alias ../x": "--alias", "--models-max -1": "models-max"} {
		c, err := load(t, append([]string{"-m", "x"}, strings.Fields(args)...), nil)
		if err == nil {
			t.Errorf("%s: no error, %+v", args, c.Defaults)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestDefaultsAreMerged: --defaults and options for single fields, of which the last counts.
func TestDefaultsAreMerged(t *testing.T) {
	c, err := load(t, []string{"-m", "x", "--defaults", `{"top_k":5,"seed":1}`, "--temp", "0"}, nil)
	if err != nil || c.Defaults != `{"seed":1,"temperature":0,"top_k":5}` {
		t.Errorf("%s %v", c.Defaults, err)
	}
	file := write(t, "defaults = '{\"top_k\":5}'\n[models.a]\nmodel = '/a'\ndefaults = '{\"top_p\":0.5}'\n")
	if c, err = load(t, []string{"--config", file}, nil); err != nil {
		t.Fatal(err)
	}
	a, err := c.ForModel(&c.Models[0])
	if err != nil || c.Defaults != `{"top_k":5}` || a.Defaults != `{"top_p":0.5}` {
		t.Errorf("%q %q %v", c.Defaults, a.Defaults, err)
	}
}

// TestFlagsOfLlamaServer: of a flag and its opposite the last counts, and a value says whether a flag is set.
func TestFlagsOfLlamaServer(t *testing.T) {
	for args, want := range map[string]string{
		"--no-cache-prompt":                      "true false true  ",
		"--no-cache-prompt --cache-prompt":       "false false true  ",
		"--cache-prompt=false":                   "true false true  ",
		"--no-cache-prompt=off":                  "false false true  ",
		"-nkvo -kvo":                             "false false true  ",
		"-kvo -nkvo":                             "false true true  ",
		"--no-models-autoload --models-autoload": "false false true  ",
		"--no-models-autoload":                   "false false false  ",
		"--no-mmproj":                            "false false true off ",
		"--no-mmproj --mmproj p.gguf":            "false false true p.gguf ",
		"--ignore-eos=false":                     `false false true  {"ignore_eos":false}`,
		"--ignore-eos=1":                         `false false true  {"ignore_eos":true}`,
		"--jinja=false --metrics=":               "false false true  ",
	} {
		c, err := load(t, append([]string{"-m", "x"}, strings.Fields(args)...), nil)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		got := fmt.Sprintf("%v %v %v %s %s", c.NoPrefixCache, c.NoKVOffload, c.Autoload, c.MMProj, c.Defaults)
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	for args, want := range map[string]int{"": 0, "-ncmoe 3": 3, "--n-cpu-moe 3": 3, "--cpu-moe": -1, "-cmoe": -1,
		"--cpu-moe -ncmoe 2": 2, "-ncmoe 2 --cpu-moe": -1, "-ncmoe 2 --cpu-moe=off": 0} {
		c, err := load(t, append([]string{"-m", "x"}, strings.Fields(args)...), nil)
		if err != nil || c.CPUMoE != want {
			t.Errorf("%s: experts of %d layers stay in host memory, want %d (%v)", args, c.CPUMoE, want, err)
		}
	}
	for _, args := range []string{"--ignore-eos=maybe", "--no-cache-prompt=7", "--jinja=\xff"} {
		_, err := load(t, []string{"-m", "x", args}, nil)
		if err == nil || !strings.Contains(err.Error(), "it has no value") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestOptionsOfLlamaServerAreDocumented compares the table of docs/llama-server.md with llamaArgs and llamaNames.
func TestOptionsOfLlamaServerAreDocumented(t *testing.T) {
	const path, begin, end = "../../docs/llama-server.md", "<!-- options -->\n", "<!-- end of options -->\n"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(doc), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s", path, begin)
	}
	groups := map[string][]string{} // by what becomes of the options
	add := func(name, what string) { groups[what] = append(groups[what], "`"+name+"`") }
	for name, a := range llamaArgs {
		switch {
		case a.field != "" && a.as != "":
			add(name, "`"+a.as+"`, and default of the field `"+a.field+"`")
		case a.field != "":
			add(name, "default of the field `"+a.field+"`")
		case a.to != "" || a.as != "":
			add(name, "`"+a.to+a.as+"`")
		case a.bad != "":
			add(name, "refused: "+a.bad)
		default:
			add(name, "left out: "+a.left)
		}
	}
	for name, to := range llamaNames {
		add(name, "`"+to+"`")
	}
	var b strings.Builder
	b.WriteString("| llama-server | here |\n|---|---|\n")
	for _, what := range slices.Sorted(maps.Keys(groups)) {
		slices.Sort(groups[what])
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(groups[what], ", "), what)
	}
	if want := head + begin + b.String() + end + tail; want != string(doc) {
		if !*rewrite {
			t.Fatalf("the table of %s is not what the code does: go test ./daemon/config -run TestOptionsOf -rewrite",
				path)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	options, _, _ := NewFlagSet()
	for name, a := range llamaArgs {
		long := strings.TrimLeft(name, "-")
		if f := options.Lookup(long); strings.HasPrefix(name, "--") && f != nil {
			t.Errorf("%s is an option here: llamaArgs hides it", name)
		}
		for _, to := range []string{a.to, a.as} {
			if o, _, _ := strings.Cut(strings.TrimPrefix(to, "--"), "="); to != "" && options.Lookup(o) == nil {
				t.Errorf("%s becomes %s, which is no option", name, to)
			}
		}
	}
}

// TestLlamaUnderscores: llama-server takes its options with underscores, too.
func TestLlamaUnderscores(t *testing.T) {
	c, err := load(t, NormalizeArgs([]string{"--backend_sampling", "--top_k=7", "--no_context_shift"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Defaults != `{"top_k":7}` || len(c.told) != 1 || c.told[0][0] != "--backend-sampling" {
		t.Errorf("%s, %q", c.Defaults, c.told)
	}
}

func TestLlamaAddresses(t *testing.T) {
	c, err := load(t, NormalizeArgs([]string{"--host", "127.0.0.1, ::1", "--port", "9000"}), nil)
	if err != nil || strings.Join(c.Listen, " ") != "127.0.0.1:9000 [::1]:9000" {
		t.Errorf("%q, %v", c.Listen, err)
	}
}
