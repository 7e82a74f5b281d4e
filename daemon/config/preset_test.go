package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModelsPreset(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "models.ini")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := load(t, []string{"--models-preset", write("version = 1\n; a comment\n[*]\nc = 4096\nngl = 0\n" +
		"jinja = true\n" +
		"[small]\nhf-repo = org/small:Q4_K_M\nalias = s, tiny\ntemp = 0.3\n[big]\nmodel = /models/big.gguf\n" +
		"ctx-size=8192\nparallel = 2\nno-context-shift = off\nload-on-startup = true\n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	small, big := c.ModelNamed("TINY"), c.ModelNamed("big")
	if small == nil || small.Name != "small" || small.Model != "org/small:Q4_K_M" ||
		small.Options["ctx-size"] != "4096" ||
		small.Options["gpu-layers"] != "0" || !strings.Contains(small.Options["defaults"], `"temperature":0.3`) {
		t.Errorf("small: %+v", small)
	}
	if big == nil || big.Model != "/models/big.gguf" || big.Options["parallel"] != "2" ||
		big.Options["gpu-layers"] != "0" {
		t.Errorf("big: %+v", big)
	}
	if w := strings.Join(c.Warnings, "\n"); !strings.Contains(w, "[big]: load-on-startup is left out") ||
		!strings.Contains(w, "[small]: jinja is left out") {
		t.Errorf("warnings: %s", w)
	}
	for text, want := range map[string]string{
		"[a]\nmodel = x\n[A]\nmodel = y": "taken", "[a\n": "line 1 must be a section", "[a]\nword\n": "line 2 must be",
		"[a]\nrope-scale = 2": "is refused", "[a]\nnonsense = 2": "is unknown", "[a]\nctx-size = many": "ctx-size",
		"[a]\ndedup-cache-models = maybe": "must be 1 or 0",
		"[a]\nalias = ..":                 "alias", "[ ]": "line 1",
		strings.Repeat("[a]\n", maxModelTables+1): "more than",
	} {
		if _, err := load(t, []string{"--models-preset", write(text)}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if _, err := load(t, []string{"--models-preset", dir + "/none"}, nil); err == nil {
		t.Error("a file that is not there is taken")
	}
}

// TestPresetOfFlagsAndFields: options that set fields of requests are taken together, flags without a value of ours are
// values of a table, and false is the opposite.
func TestPresetOfFlagsAndFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models.ini")
	text := "[*]\ntop-p = 0.9\n[a]\nmodel = x\ntemp = 0.3\ntop-k = 5\ndefaults = {\"seed\":4}\ncache-prompt = false\n" +
		"kv-offload = off\nmmproj-auto = disabled\njinja = 0\n[b]\nmodel = y\nno-cache-prompt = 1\nrepack = on\n" +
		"no-mmproj = true\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, []string{"--models-preset", path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.ForModel(c.ModelNamed("a"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"seed":4,"temperature":0.3,"top_k":5,"top_p":0.9}`; a.Defaults != want || !a.NoPrefixCache ||
		!a.NoKVOffload || a.MMProj != NoProjector {
		t.Errorf("%s, want %s; %v %v %q", a.Defaults, want, a.NoPrefixCache, a.NoKVOffload, a.MMProj)
	}
	b, err := c.ForModel(c.ModelNamed("b"))
	if err != nil || !b.NoPrefixCache || b.NoRepack || b.MMProj != NoProjector || b.Defaults != `{"top_p":0.9}` {
		t.Errorf("%+v, %v", b, err)
	}
	for text, want := range map[string]string{"refused = x": "is unknown", "told = x": "is unknown",
		"refused = ": "is unknown", "jinja = maybe": "is refused: it has no value"} {
		if err := os.WriteFile(path, []byte("[a]\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := load(t, []string{"--models-preset", path}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzPresets(f *testing.F) {
	f.Add("[*]\nc=1\n[a]\nmodel = x\n")
	f.Add("[a]\n-ngl = 3\n=\n")
	f.Add("[a]\nrefused = x\ntold = y\nhost = z\nlora-init-without-apply = 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parsePresets([]byte(text))
		if err != nil && list != nil || len(list) > maxModelTables {
			t.Errorf("%d, %v", len(list), err)
		}
		_, c, _ := NewFlagSet()
		for _, p := range list {
			c.presetModel(p)
		}
	})
}
