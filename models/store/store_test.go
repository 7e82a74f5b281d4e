package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// machine is a machine with none of the places but those that a test makes up.
type machine struct {
	t    *testing.T
	home string
	env  map[string]string
	tiny string // a model
}

func newMachine(t *testing.T) *machine {
	home := t.TempDir()
	return &machine{t: t, home: home, tiny: ggufgen.Cached(t, ggufgen.Tiny()),
		env: map[string]string{"HOME": home, "OLLAMA_MODELS": filepath.Join(home, ".ollama", "models"),
			"XDG_DATA_HOME": filepath.Join(home, "data")}}
}

func (m *machine) store() *Store { return New("", func(name string) string { return m.env[name] }) }

func (m *machine) scan() *Catalog {
	m.t.Helper()
	c, err := m.store().Scan(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	// The test machine may have an ollama of the system.
	c.Models = slices.DeleteFunc(c.Models, func(m Model) bool { return strings.HasPrefix(m.Path(), "/usr/share/") })
	c.Problems = slices.DeleteFunc(c.Problems, func(p Problem) bool { return strings.HasPrefix(p.Path, "/usr/share/") })
	return c
}

func (m *machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.home}, parts...)...)
}

func ids(c *Catalog) (list []string) {
	for i := range c.Models {
		list = append(list, string(c.Models[i].Place)+" "+c.Models[i].ID())
	}
	return list
}

// named is the model of this name, which must be there.
func named(c *Catalog, id string) *Model {
	m, err := c.Lookup(id)
	if err != nil {
		panic(err)
	}
	return m
}

func (m *machine) bytes() []byte {
	m.t.Helper()
	b, err := os.ReadFile(m.tiny)
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// everywhere puts a model into each place.
func (m *machine) everywhere() {
	t := m.t
	hub := m.path(".cache", "huggingface", "hub")
	storetest.Hub(t, hub, "org/repo-GGUF", map[string]string{"repo-Q4_K_M.gguf": m.tiny, "sub/repo-Q8_0.gguf": m.tiny,
		"mmproj-F16.gguf": m.tiny, "README.md": m.tiny})
	storetest.LlamaCpp(t, m.path(".cache", "llama.cpp"), "ggml-org/tiny_GGUF", "latest",
		[]string{"sub/tiny-Q8_0.gguf"}, []string{m.tiny})
	storetest.Copy(t, m.path(".cache", "llama.cpp", "from-a-url.gguf"), m.tiny)
	storetest.Copy(t, m.path(".lmstudio", "models", "publisher", "model-GGUF", "model-Q6_K.gguf"), m.tiny)
	storetest.Ollama(t, m.path(".ollama", "models"), "registry.ollama.ai/library/qwen3/8b",
		storetest.Layer{Media: "model", Data: m.bytes()}, storetest.Layer{Media: "template",
			Data: []byte("{{ .Prompt }}")},
		storetest.Layer{Media: "params", Data: []byte(`{"temperature":0.6,"stop":["<a>","<b>"]}`)},
		storetest.Layer{Media: "license", Data: []byte("MIT")},
		storetest.Layer{Media: "system", Data: []byte("Be brief.")}, storetest.Layer{Media: "projector",
			Data: []byte("GGUFx")})
	storetest.Ollama(t, m.path(".ollama", "models"), "hf.co/bartowski/x-GGUF/Q4_K_M", storetest.Layer{Media: "model",
		Data: m.bytes()})
	own := m.path("data", "uma-serve", "models")
	storetest.Copy(t, filepath.Join(own, "mine.gguf"), m.tiny)
	storetest.Copy(t, filepath.Join(own, "hf.co", "org2", "repo2", "repo2-Q5_K_M.gguf"), m.tiny)
	storetest.Copy(t, filepath.Join(own, "registry.ollama.ai", "library", "llama3", "3b.gguf"), m.tiny)
	if _, err := ggufgen.Split(m.tiny, mkdir(t, filepath.Join(own, "big")), "big-Q8_0", 3); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlaces: the five places are found as their programs write them, and listed with what the headers say.
func TestPlaces(t *testing.T) {
	m := newMachine(t)
	m.everywhere()
	c := m.scan()
	want := []string{
		"uma-serve big:Q8_0", "uma-serve llama3:3b", "uma-serve mine", "uma-serve org2/repo2:Q5_K_M",
		"huggingface org/repo-GGUF:Q4_K_M", "huggingface org/repo-GGUF:Q8_0",
		"llama.cpp from-a-url", "llama.cpp ggml-org/tiny_GGUF:Q8_0",
		"lmstudio publisher/model-GGUF:Q6_K",
		"ollama bartowski/x-GGUF:Q4_K_M", "ollama qwen3:8b",
	}
	if got := ids(c); !slices.Equal(got, want) {
		t.Errorf("found %q\nwant  %q", got, want)
	}
	if len(c.Problems) > 0 {
		t.Errorf("problems %+v", c.Problems)
	}
	entries, err := c.List(t.Context(), Terms{TypeK: "f16", TypeV: "f16", Free: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	cfg := ggufgen.Tiny()
	for _, e := range entries {
		if e.Problem != "" || e.Family != "llama" || e.Parameters != cfg.Parameters() || e.Quantisation != "Q8_0" ||
			e.TrainContext != int64(cfg.Context) || e.Context != 4096 || e.Memory == nil || e.Memory.Weights == 0 ||
			e.Fits == nil || !*e.Fits {
			t.Errorf("%s: %+v", e.Name, e)
		}
	}
	big, err := c.Lookup("big")
	if err != nil || len(big.Files) != 3 || big.Bytes < named(c, "mine").Bytes {
		t.Errorf("the split model: %+v, %v", big, err)
	}
	hub := named(c, "org/repo-GGUF:Q8_0")
	if !strings.HasSuffix(hub.Projector, "mmproj-F16.gguf") || !strings.HasPrefix(hub.Digest, "sha256:") {
		t.Errorf("the hub's model: %+v", hub)
	}
	d, err := named(c, "qwen3:8b").Details()
	if err != nil || d.Template != "{{ .Prompt }}" || d.System != "Be brief." || !slices.Equal(d.Licenses,
		[]string{"MIT"}) ||
		!slices.Equal(d.Options, []string{"stop <a>", "stop <b>", "temperature 0.6"}) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestFolders: where the places are follows the other programs' variables and files.
func TestFolders(t *testing.T) {
	for _, x := range []struct {
		env   map[string]string
		files map[string]string
		place Place
		want  string
	}{
		{nil, nil, Hub, "HOME/.cache/huggingface/hub"},
		{map[string]string{"XDG_CACHE_HOME": "/c"}, nil, Hub, "/c/huggingface/hub"},
		{map[string]string{"XDG_CACHE_HOME": "/c", "HF_HOME": "/h"}, nil, Hub, "/h/hub"},
		{map[string]string{"HF_HOME": "~/hf"}, nil, Hub, "HOME/hf/hub"},
		{map[string]string{"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old"}, nil, Hub, "/old"},
		{map[string]string{"HF_HUB_CACHE": "/new", "HUGGINGFACE_HUB_CACHE": "/old"}, nil, Hub, "/new"},
		{map[string]string{"LLAMA_CACHE": "/l"}, nil, LlamaCpp, "/l"},
		{map[string]string{"XDG_CACHE_HOME": "/c"}, nil, LlamaCpp, "/c/llama.cpp"},
		{nil, nil, LMStudio, "HOME/.lmstudio/models"},
		{nil, map[string]string{".cache/lm-studio/x": ""}, LMStudio, "HOME/.cache/lm-studio/models"},
		{nil, map[string]string{".cache/lm-studio/x": "", ".lmstudio-home-pointer": "/p\n"}, LMStudio, "/p/models"},
		{nil, map[string]string{".lmstudio-home-pointer": "not absolute"}, LMStudio, "HOME/.lmstudio/models"},
		{nil, map[string]string{".lmstudio/settings.json": `{"downloadsFolder":"/d"}`}, LMStudio, "/d"},
		{nil, map[string]string{".lmstudio/settings.json": `{"downloadsFolder":5}`}, LMStudio, "HOME/.lmstudio/models"},
		{nil, nil, InOllama, "HOME/.ollama/models"},
		{map[string]string{"OLLAMA_MODELS": "/o"}, nil, InOllama, "/o"},
		{nil, nil, Own, "HOME/.local/share/uma-serve/models"},
		{map[string]string{"XDG_DATA_HOME": "/x"}, nil, Own, "/x/uma-serve/models"},
	} {
		m := newMachine(t)
		m.env = map[string]string{"HOME": m.home}
		for k, v := range x.env {
			m.env[k] = v
		}
		for name, text := range x.files {
			storetest.Write(t, m.path(name), []byte(text))
		}
		if x.place == Own && os.Getuid() == 0 && x.env == nil {
			x.want = systemDir
		}
		want := strings.Replace(x.want, "HOME", m.home, 1)
		at := slices.IndexFunc(m.store().roots(), func(r root) bool { return r.place == x.place })
		if got := m.store().roots()[at].path; got != want {
			t.Errorf("%v %v: %s is in %s, want %s", x.env, x.files, x.place, got, want)
		}
	}
	if got := New("", func(string) string { return "" }).Dir(); got != systemDir {
		t.Errorf("without a home: %s", got)
	}
}

// TestNewLlamaCache: llama.cpp's newer cache, in the layout of the hub, is read where LLAMA_CACHE is.
func TestNewLlamaCache(t *testing.T) {
	m := newMachine(t)
	m.env["LLAMA_CACHE"] = m.path("llama")
	storetest.Hub(t, m.path("llama"), "ggml-org/new-GGUF", map[string]string{"new-Q4_0.gguf": m.tiny})
	storetest.Copy(t, m.path("llama", "ai_smollm2_135M.gguf"), m.tiny)
	if got := ids(m.scan()); !slices.Equal(got, []string{"llama.cpp ai_smollm2_135M",
		"llama.cpp ggml-org/new-GGUF:Q4_0"}) {
		t.Errorf("found %q", got)
	}
}

// TestSnapshots: of a repository the files of main's snapshot are taken, and those that only another snapshot has.
func TestSnapshots(t *testing.T) {
	m := newMachine(t)
	hub := m.path(".cache", "huggingface", "hub")
	storetest.Hub(t, hub, "org/repo", map[string]string{"x-Q4_0.gguf": m.tiny})
	other := filepath.Join(hub, "models--org--repo", "snapshots", strings.Repeat("f", 40))
	storetest.Copy(t, filepath.Join(other, "x-Q4_0.gguf"), m.tiny)
	storetest.Copy(t, filepath.Join(other, "x-Q8_0.gguf"), m.tiny)
	c := m.scan()
	if got := ids(c); !slices.Equal(got, []string{"huggingface org/repo:Q4_0", "huggingface org/repo:Q8_0"}) {
		t.Errorf("found %q", got)
	}
	if !strings.Contains(c.Models[0].Path(), storetest.Commit) || !strings.Contains(c.Models[1].Path(), "ffff") {
		t.Errorf("%s, %s", c.Models[0].Path(), c.Models[1].Path())
	}
}

// TestNamesInARepository: names are made of what tells the files apart.
func TestNamesInARepository(t *testing.T) {
	m := newMachine(t)
	dir := m.path(".lmstudio", "models", "p", "r")
	for _, rel := range []string{"x-Q4_0.gguf", "deep/x-Q4_0.gguf", "plain.gguf", "with spaces (v2).gguf",
		"x-F16.gguf", "mtp-x.gguf", "x.imatrix.gguf", "notes.txt", ".hidden.gguf"} {
		storetest.Copy(t, filepath.Join(dir, rel), m.tiny)
	}
	storetest.Copy(t, m.path(".lmstudio", "models", "loose file.gguf"), m.tiny)
	want := []string{"lmstudio loose-file", "lmstudio p/r/deep/x-Q4_0.gguf", "lmstudio p/r/plain.gguf",
		"lmstudio p/r/with-spaces--v2-.gguf",
		"lmstudio p/r/x-Q4_0.gguf", "lmstudio p/r:F16"}
	c := m.scan()
	if got := ids(c); !slices.Equal(got, want) {
		t.Errorf("found %q\nwant  %q", got, want)
	}
	for i := range c.Models {
		if got, err := c.Lookup(c.Models[i].ID()); err != nil || got != &c.Models[i] {
			t.Errorf("%s does not find itself: %v, %v", c.Models[i].ID(), got, err)
		}
	}
}

// TestResolve: what a name finds.
func TestResolve(t *testing.T) {
	m := newMachine(t)
	own := m.path("data", "uma-serve", "models")
	for _, rel := range []string{
		"hf.co/org/SmolLM2-135M-GGUF/SmolLM2-Q8_0.gguf", "hf.co/org/SmolLM2-135M-GGUF/SmolLM2-Q4_K_M.gguf",
		"hf.co/org/Other-GGUF/Other-Q5_K_M.gguf", "hf.co/org/Other-GGUF/Other-Q6_K.gguf",
		"hf.co/org/Mixture-GGUF/x-UD-Q4_K_XL.gguf",
	} {
		storetest.Copy(t, filepath.Join(own, rel), m.tiny)
	}
	for _, tag := range []string{"qwen3/8b", "qwen3/latest", "qwen2.5/0.5b", "gemma3/1b", "gemma3/4b"} {
		storetest.Ollama(t, m.path(".ollama", "models"), "registry.ollama.ai/library/"+tag,
			storetest.Layer{Media: "model", Data: m.bytes()})
	}
	s := m.store()
	for alias, target := range map[string]string{"small": "qwen2.5:0.5b", "file": m.tiny, "gone": "no/such"} {
		if err := s.SetAlias(alias, target); err != nil {
			t.Fatal(err)
		}
	}
	c := m.scan()
	for text, want := range map[string]string{
		"qwen3:8b": "qwen3:8b", "QWEN3:8B": "qwen3:8b", "qwen3": "qwen3:latest", "qwen3:latest": "qwen3:latest",
		"library/qwen3:8b":                    "qwen3:8b",
		"registry.ollama.ai/library/qwen3:8b": "qwen3:8b", "ollama.com/qwen3": "qwen3:latest",
		"qwen2.5": "qwen2.5:0.5b", "hf.co/org/SmolLM2-135M-GGUF": "org/SmolLM2-135M-GGUF:Q4_K_M",
		"org/smollm2-135m-gguf:q8_0": "org/SmolLM2-135M-GGUF:Q8_0",
		"org/Mixture-GGUF:Q4_K_XL":   "org/Mixture-GGUF:UD-Q4_K_XL", "org/Mixture-GGUF": "org/Mixture-GGUF:UD-Q4_K_XL",
		"small": "qwen2.5:0.5b", "SMALL": "qwen2.5:0.5b", "file": "file",
	} {
		if got, err := c.Lookup(text); err != nil || got.ID() != want {
			t.Errorf("%s: %+v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"smollm": "org/SmolLM2-135M-GGUF:Q4_K_M", "qwen2": "qwen2.5:0.5b",
		"org/mix": "org/Mixture-GGUF:UD-Q4_K_XL", "qwen3:8": "qwen3:8b"} {
		if got, err := c.Resolve(text); err != nil || got.ID() != want {
			t.Errorf("%s: %+v, %v, want %s", text, got, err, want)
		}
		if got, err := c.Lookup(text); !errors.Is(err, ErrUnknown) {
			t.Errorf("a request for %s finds %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"gemma3":                           `model "gemma3": several models have this name: gemma3:1b, gemma3:4b`,
		"org/Other-GGUF":                   "several models have this name: org/Other-GGUF:Q5_K_M, org/Other-GGUF:Q6_K",
		"qwen":                             "several models have this name",
		"qwen3:7b":                         "there is no such model on this machine, but qwen3:8b",
		"smollm2-135":                      "",
		"gema3:1b":                         ", but gemma3:1b",
		"zzzzzzzz":                         `model "zzzzzzzz": there is no such model on this machine`,
		"gone":                             `model "gone": there is no such model`,
		"hf.co/org/no":                     "no such model",
		"ollama.com/org/SmolLM2-135M-GGUF": "no such model",
		"a b":                              "not a model name",
	} {
		_, err := c.Resolve(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// The same name in several places is one model, of the place that is asked first.
	storetest.Hub(t, m.path(".cache", "huggingface", "hub"), "org/SmolLM2-135M-GGUF",
		map[string]string{"SmolLM2-Q8_0.gguf": m.tiny})
	c = m.scan()
	if got, err := c.Lookup("org/SmolLM2-135M-GGUF:Q8_0"); err != nil || got.Place != Own {
		t.Errorf("%+v, %v", got, err)
	}
	entries, err := c.List(t.Context(), Terms{TypeK: "f16", TypeV: "f16"})
	if err != nil {
		t.Fatal(err)
	}
	hidden := 0
	for _, e := range entries {
		if e.Hidden {
			hidden++
		}
		if e.Name == "qwen2.5:0.5b" && !slices.Equal(e.Aliases, []string{"small"}) {
			t.Errorf("aliases %q", e.Aliases)
		}
	}
	if hidden != 1 {
		t.Errorf("%d models are hidden by one of the same name, want 1", hidden)
	}
	// Unless it lacks a file there.
	storetest.Ollama(t, m.path(".ollama", "models"), "hf.co/org/twin/Q8_0", storetest.Layer{Media: "model",
		Data: m.bytes()})
	if _, err := ggufgen.Split(m.tiny, mkdir(t, filepath.Join(own, "hf.co", "org", "twin")), "twin-Q8_0",
		2); err != nil {
		t.Fatal(err)
	}
	if got := named(m.scan(), "org/twin:Q8_0"); got.Place != Own {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(filepath.Join(own, "hf.co", "org", "twin", "twin-Q8_0-00002-of-00002.gguf")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"org/twin:Q8_0", "org/twin", "hf.co/org/twin:q8_0"} {
		if got := named(m.scan(), text); got.Place != InOllama {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestManyCandidates: an error lists some of very many names.
func TestManyCandidates(t *testing.T) {
	c := &Catalog{}
	for i := range 100 {
		c.Models = append(c.Models, Model{Name: Name{Path: fmt.Sprint("m", i)}, Repo: Name{Path: fmt.Sprint("m", i)},
			id: fmt.Sprint("m", i)})
	}
	_, err := c.Resolve("m")
	var e *NameError
	if !errors.As(err, &e) || len(e.Near) != maxNear || e.More != 100-maxNear || !strings.HasSuffix(err.Error(),
		"m7 and 92 more") {
		t.Errorf("%v", err)
	}
}

// TestHostileFolders: what is wrong with a file is said, and nothing keeps the others from being found.
func TestHostileFolders(t *testing.T) {
	m := newMachine(t)
	lm := m.path(".lmstudio", "models")
	storetest.Copy(t, filepath.Join(lm, "p", "r", "good-Q8_0.gguf"), m.tiny)
	storetest.Write(t, filepath.Join(lm, "p", "r", "text.gguf"), []byte("hello"))
	storetest.Write(t, filepath.Join(lm, "p", "r", "empty.gguf"), nil)
	for link, target := range map[string]string{
		"loop.gguf": "loop.gguf", "gone.gguf": "nowhere.gguf", "device.gguf": "/dev/zero", "up": "..", "self": ".",
		"good-dir.gguf": ".",
	} {
		if err := os.Symlink(target, filepath.Join(lm, "p", "r", link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(lm, "p", "r", "fifo.gguf"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(lm, "p", strings.Repeat("d/", maxDepth+2))
	storetest.Copy(t, filepath.Join(deep, "deep.gguf"), m.tiny)
	closed := mkdir(t, filepath.Join(lm, "p", "closed"))
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(closed, 0o755) })
	if _, err := ggufgen.Split(m.tiny, mkdir(t, filepath.Join(lm, "p", "split")), "s-Q8_0", 4); err != nil {
		t.Fatal(err)
	}
	for _, no := range []int{2, 4} {
		if err := os.Remove(filepath.Join(lm, "p", "split", fmt.Sprintf("s-Q8_0-%05d-of-00004.gguf", no))); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Write(t, filepath.Join(lm, "p", "half", "half-Q8_0.gguf"), m.bytes()[:len(m.bytes())/2])

	c := m.scan()
	if got := ids(c); !slices.Equal(got, []string{"lmstudio p/half:Q8_0", "lmstudio p/r:Q8_0",
		"lmstudio p/split:Q8_0"}) {
		t.Errorf("found %q", got)
	}
	said := map[string]string{}
	for _, p := range c.Problems {
		said[filepath.Base(p.Path)] = p.Why
	}
	want := map[string]string{"text.gguf": `it begins with "hell"`, "empty.gguf": `it begins with ""`,
		"loop.gguf": "symbolic links form a loop",
		"gone.gguf": "no such file", "device.gguf": "it is a device, not a file",
		"fifo.gguf": "it is a named pipe, not a file", "d": "it is 12 folders deep"}
	if os.Getuid() != 0 {
		want["closed"] = "permission denied"
	}
	for name, why := range want {
		if !strings.Contains(said[name], why) {
			t.Errorf("%s: %q, want %q", name, said[name], why)
		}
	}
	entries, err := c.List(t.Context(), Terms{TypeK: "f16", TypeV: "f16"})
	if err != nil {
		t.Fatal(err)
	}
	for i, why := range []string{"truncated or damaged", "", "2 of 4 files are missing (2, 4)"} {
		if !strings.Contains(entries[i].Problem, why) || why == "" && entries[i].Problem != "" {
			t.Errorf("%s: %q, want %q", entries[i].Name, entries[i].Problem, why)
		}
	}
	split, _ := c.Lookup("p/split")
	if err := split.Whole(); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a model without two of its files: %v", err)
	}
}

// TestForeignFiles: a file of another user (neither root nor the owner of the place) is not listed.
func TestForeignFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	m := newMachine(t)
	own := m.path("data", "uma-serve", "models")
	storetest.Copy(t, filepath.Join(own, "a.gguf"), m.tiny)
	if err := os.Chown(filepath.Join(own, "a.gguf"), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	c := m.scan()
	if len(c.Models) != 0 || len(c.Problems) != 1 || !strings.Contains(c.Problems[0].Why, "it belongs to user 12345") {
		t.Errorf("%q %+v", ids(c), c.Problems)
	}
	if err := os.Chown(own, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if c := m.scan(); len(c.Models) != 1 {
		t.Errorf("a file of the folder's owner: %+v", c.Problems)
	}
}

// TestHostileManifests: a manifest can name only blobs and files of its folder.
func TestHostileManifests(t *testing.T) {
	hash := strings.Repeat("a", 64)
	layer := func(digest string) string {
		return fmt.Sprintf(`{"layers":[{"mediaType":%q,"digest":%q,"size":5}]}`, mediaModel, digest)
	}
	for name, text := range map[string]string{
		"traversal in a digest": layer("sha256:../../../../../../etc/passwd"),
		"a digest and a path":   layer("sha256:" + hash + "/../../x"),
		"no digest":             layer(""),
		"another hash":          layer("md5:" + hash[:32]),
		"no JSON":               `{"layers":[`,
		"another type":          `{"layers":"x"}`,
		"nothing":               "",
		"no weights":            `{"layers":[]}`,
		"a huge file":           `{"x":"` + strings.Repeat("x", maxSmall) + `"}`,
		"deep nesting":          strings.Repeat("[", 100_000),
		"many layers":           `{"layers":[` + strings.Repeat("{},", maxLayers) + `{}]}`,
		"an adapter": fmt.Sprintf(`{"layers":[{"mediaType":%q,"digest":"sha256:%s"},{"mediaType":%q,`+
			`"digest":"sha256:%s"}]}`,
			mediaModel, hash, mediaAdapter, hash),
	} {
		m := newMachine(t)
		storetest.Write(t, m.path(".ollama", "models", "manifests", "registry.ollama.ai", "library", "evil", "latest"),
			[]byte(text))
		c := m.scan()
		if len(c.Models) != 0 || len(c.Problems) != 1 || len(c.Problems[0].Why) > 1000 {
			t.Errorf("%s: %q, %+v", name, ids(c), c.Problems)
		}
	}
	// A layer that is missing, or that is not all there, and paths that are no names.
	m := newMachine(t)
	storetest.Write(t, m.path(".ollama", "models", "manifests", "registry.ollama.ai", "library", "missing", "latest"),
		[]byte(layer("sha256:"+hash)))
	storetest.Write(t, m.path(".ollama", "models", "manifests", "registry.ollama.ai", "library", "-x", "latest"),
		[]byte(layer("sha256:"+hash)))
	storetest.Write(t, m.path(".ollama", "models", "manifests", "stray"), []byte("{}"))
	c := m.scan()
	if got := ids(c); !slices.Equal(got, []string{"ollama missing:latest"}) ||
		c.Models[0].Incomplete != "its file is missing" || len(c.Problems) != 2 {
		t.Errorf("%q %+v", got, c.Problems)
	}

	for name, text := range map[string]string{
		"traversal":      `{"ggufFile":{"rfilename":"../../../etc/passwd.gguf"}}`,
		"absolute":       `{"ggufFile":{"rfilename":"/etc/x.gguf"}}`,
		"not GGUF":       `{"ggufFile":{"rfilename":"passwd"}}`,
		"missing":        `{"ggufFile":{"rfilename":"x-Q4_0.gguf"}}`,
		"no JSON":        `]`,
		"another type":   `{"ggufFile":{"rfilename":5}}`,
		"a huge file":    strings.Repeat(" ", maxManifest+1),
		"too many parts": `{"ggufFile":{"rfilename":"x-00001-of-99999.gguf"}}`,
	} {
		m := newMachine(t)
		storetest.Write(t, m.path(".cache", "llama.cpp", "manifest=org=repo=latest.json"), []byte(text))
		if c := m.scan(); len(c.Models) != 0 || len(c.Problems) != 1 {
			t.Errorf("llama.cpp, %s: %q, %+v", name, ids(c), c.Problems)
		}
	}
	for _, name := range []string{"manifest=org=latest.json", "manifest=..=..=x.json"} {
		m := newMachine(t)
		storetest.Write(t, m.path(".cache", "llama.cpp", name), []byte("{}"))
		if c := m.scan(); len(c.Problems) != 1 {
			t.Errorf("llama.cpp, %s: %+v", name, c.Problems)
		}
	}
	m = newMachine(t)
	storetest.Copy(t, m.path(".cache", "huggingface", "hub", "models--..--x", "snapshots", "c", "x.gguf"), m.tiny)
	if c := m.scan(); len(c.Models) != 0 || len(c.Problems) != 1 {
		t.Errorf("a repository named ..: %q, %+v", ids(c), c.Problems)
	}
}

// TestTenThousandFiles: a scan of very many files ends, and says where it stopped.
func TestTenThousandFiles(t *testing.T) {
	m := newMachine(t)
	dir := mkdir(t, m.path(".lmstudio", "models", "p", "r"))
	first := filepath.Join(dir, "m0.gguf")
	storetest.Copy(t, first, m.tiny)
	for i := 1; i < 10_000; i++ {
		if err := os.Link(first, filepath.Join(dir, fmt.Sprintf("m%d.gguf", i))); err != nil {
			t.Fatal(err)
		}
	}
	c := m.scan()
	if len(c.Models) != 10_000 || len(c.Problems) != 0 {
		t.Fatalf("%d models, %+v", len(c.Models), c.Problems)
	}
	if got, err := c.Resolve("p/r/m77.gguf"); err != nil || !strings.HasSuffix(got.Path(), "/m77.gguf") {
		t.Errorf("%+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.store().Scan(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a scan that was cancelled: %v", err)
	}
	if _, err := c.List(ctx, Terms{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a list that was cancelled: %v", err)
	}
	sc := &scan{ctx: t.Context(), root: root{LMStudio, m.path(".lmstudio", "models"), findLMStudio},
		seen: map[fileID]bool{}, left: 5000}
	sc.run()
	if len(sc.models) > 5000 || len(sc.problems) != 1 || !strings.Contains(sc.problems[0].Why,
		"the others are not listed") {
		t.Errorf("%d models within 5,000 entries, %+v", len(sc.models), sc.problems)
	}
}

// TestHeadersAreReadOnce: a list of what is known costs no reading, until a file changes.
func TestHeadersAreReadOnce(t *testing.T) {
	m := newMachine(t)
	path := filepath.Join(m.path("data", "uma-serve", "models"), "a.gguf")
	storetest.Copy(t, path, m.tiny)
	s := m.store()
	c, err := s.Scan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Entry(named(c, "a"), Terms{}); e == nil || e.Problem != "" {
		t.Fatalf("%+v", e)
	}
	s.known[path] = facts{size: s.known[path].size, modified: s.known[path].modified, err: errors.New("remembered")}
	if _, err := s.Header(path); err == nil || err.Error() != "remembered" {
		t.Errorf("the header was read again: %v", err)
	}
	storetest.Write(t, path, append(m.bytes(), 0))
	if info, err := s.Header(path); err != nil || info.Architecture != "llama" {
		t.Errorf("a file that changed: %+v, %v", info, err)
	}
}

func TestAliases(t *testing.T) {
	m := newMachine(t)
	s := m.store()
	for name, want := range map[string]string{"": "empty", "a b": "letters", "hf.co/org/repo": "it has a host"} {
		if err := s.SetAlias(name, "x"); !errors.Is(err, ErrName) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := s.SetAlias("a", "../x"); !errors.Is(err, ErrName) {
		t.Errorf("a relative path: %v", err)
	}
	if err := s.SetAlias("a", ""); err == nil || !strings.Contains(err.Error(), `there is no alias "a"`) {
		t.Errorf("an alias that is not there: %v", err)
	}
	for _, x := range [][2]string{{"a", "one"}, {"b", "two:x"}, {"A", "three"}, {"b", ""}} {
		if err := s.SetAlias(x[0], x[1]); err != nil {
			t.Fatal(err)
		}
	}
	if c := m.scan(); len(c.Aliases) != 1 || c.Aliases["A"] != "three" {
		t.Errorf("%v", c.Aliases)
	}
	// Writers at once lose nothing.
	done := make(chan error)
	for i := range 20 {
		go func() { done <- m.store().SetAlias(fmt.Sprint("n", i), "x") }()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if c := m.scan(); len(c.Aliases) != 21 {
		t.Errorf("%d aliases, want 21", len(c.Aliases))
	}
	left, _ := filepath.Glob(filepath.Join(s.Dir(), ".aliases*"))
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	storetest.Write(t, s.aliasFile(), []byte("{"))
	if c := m.scan(); len(c.Problems) != 1 || c.Problems[0].Path != s.aliasFile() {
		t.Errorf("a broken file: %+v", c.Problems)
	}
	if err := s.SetAlias("x", "y"); err == nil || !strings.Contains(err.Error(), "does not hold aliases") {
		t.Errorf("a broken file was replaced: %v", err)
	}
}

// TestRemove deletes from the own directory and from nowhere else.
func TestRemove(t *testing.T) {
	m := newMachine(t)
	m.everywhere()
	s := m.store()
	own := s.Dir()
	storetest.Write(t, filepath.Join(own, "hf.co", "org2", "repo2", "repo2-Q5_K_M.gguf.json"), []byte("{}"))
	c := m.scan()
	for id, command := range map[string]string{"qwen3:8b": "ollama rm qwen3:8b",
		"org/repo-GGUF:Q8_0": "hf cache rm model/org/repo-GGUF",
		"from-a-url": "rm " + m.path(".cache", "llama.cpp",
			"from-a-url.gguf"), "publisher/model-GGUF:Q6_K": "LM Studio"} {
		err := s.Remove(named(c, id))
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), command) {
			t.Errorf("%s: %v", id, err)
		}
	}
	for _, id := range []string{"big:Q8_0", "org2/repo2:Q5_K_M", "llama3:3b"} {
		if err := s.Remove(named(c, id)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	var left []string
	filepath.WalkDir(own, func(path string, d os.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(path, own))
		return err
	})
	if !slices.Equal(left, []string{"", "/mine.gguf"}) {
		t.Errorf("left: %q", left)
	}
	// The projector goes with the last model that it is beside of.
	for _, name := range []string{"see-Q4_0.gguf", "see-Q8_0.gguf", "mmproj-see-F16.gguf"} {
		storetest.Copy(t, filepath.Join(own, "hf.co", "org3", "see", name), m.tiny)
	}
	for i, id := range []string{"org3/see:Q4_0", "org3/see:Q8_0"} {
		seer := named(m.scan(), id)
		if err := s.Remove(seer); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := os.Stat(seer.Projector); (err == nil) != (i == 0) {
			t.Errorf("%s is removed: its projector: %v", id, err)
		}
	}
	// A folder of another program that a link in the own directory leads to.
	if err := os.Symlink(m.path(".lmstudio", "models", "publisher"), filepath.Join(own, "linked")); err != nil {
		t.Fatal(err)
	}
	c = m.scan()
	linked := named(c, "linked/model-GGUF:Q6_K")
	if err := s.Remove(linked); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "a link leads to it") {
		t.Errorf("%v", err)
	}
	if n := len(ids(m.scan())); n != len(ids(c)) {
		t.Errorf("%d models, %d before", n, len(ids(c)))
	}
}

// FuzzManifest: no manifest of ollama or llama.cpp makes a scan fail or find a file outside of its folder.
func FuzzManifest(f *testing.F) {
	f.Add(`{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:`+strings.Repeat("a",
		64)+`","size":5}]}`, "registry.ollama.ai/library/a/b")
	f.Add(`{"ggufFile":{"rfilename":"a-00001-of-00003.gguf"},"mmprojFile":{"rfilename":"../x.gguf"}}`,
		"manifest=a=b=c.json")
	f.Fuzz(func(t *testing.T, text, name string) {
		dir := t.TempDir()
		s := New(filepath.Join(dir, "own"), func(key string) string {
			return map[string]string{"OLLAMA_MODELS": filepath.Join(dir, "ollama"), "LLAMA_CACHE": filepath.Join(dir,
				"llama")}[key]
		})
		if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) || len(name) > 200 {
			return
		}
		for _, path := range []string{filepath.Join(dir, "ollama", "manifests", name), filepath.Join(dir, "llama",
			name)} {
			if os.MkdirAll(filepath.Dir(path), 0o755) == nil {
				os.WriteFile(path, []byte(text), 0o644)
			}
		}
		c, err := s.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Models {
			for _, path := range c.Models[i].Files {
				if !strings.HasPrefix(path, dir) && !strings.HasPrefix(path, "/usr/share/ollama") {
					t.Errorf("%q leads to %s", text, path)
				}
			}
		}
	})
}

// TestHeaderOfAnyFile: a list tells models apart by digest and size, whatever their headers are; the names of blobs
// have their digests.
func TestHeaderOfAnyFile(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	sum := strings.Repeat("0123456789abcdef", 4)
	digests := map[string]string{}
	for _, path := range []string{"a.gguf", "b.gguf", "other.gguf", "broken.gguf", "blobs/sha256-" + sum,
		"blobs/" + strings.ToUpper(sum)} {
		b := m.bytes()
		if path == "other.gguf" { // other weights under the same header
			b[len(b)-1] ^= 1
		}
		if path == "broken.gguf" {
			b = []byte("GGUF")
		}
		full := filepath.Join(dir, path)
		storetest.Write(t, full, b)
		h, err := ReadHeader(full)
		digests[path] = h.Digest
		if (err != nil) != (path == "broken.gguf") || h.Bytes != int64(len(b)) || h.Modified.IsZero() ||
			len(h.Digest) != 64 || err == nil && (h.Architecture != "llama" || h.Parameters == 0 || h.FileType == "") {
			t.Errorf("%s: %+v, %v", path, h, err)
		}
	}
	if digests["a.gguf"] != digests["b.gguf"] || digests["a.gguf"] == digests["other.gguf"] ||
		digests["a.gguf"] == digests["broken.gguf"] || digests["blobs/sha256-"+sum] != sum ||
		digests["blobs/"+strings.ToUpper(sum)] != sum {
		t.Errorf("%v", digests)
	}
	link := filepath.Join(dir, "link.gguf")
	if err := os.Symlink(filepath.Join(dir, "blobs", "sha256-"+sum), link); err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHeader(link); err != nil || h.Digest != sum {
		t.Errorf("a link to a blob: %+v, %v", h.Digest, err)
	}
	if _, err := ReadHeader(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there")
	}
	if _, err := ReadHeader(dir); err == nil {
		t.Error("a folder")
	}
}
