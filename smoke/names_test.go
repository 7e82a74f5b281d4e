//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestModelsByName: the folders of the other programs, made up as those write them, are listed by uma-cli, and a model
// is served from each of them by its name.
func TestModelsByName(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, ".cache"), "XDG_DATA_HOME=" +
		filepath.Join(home, "data"),
		"OLLAMA_MODELS=" + filepath.Join(home, ".ollama",
			"models"), "HF_HOME=", "HF_HUB_CACHE=", "HUGGINGFACE_HUB_CACHE=", "LLAMA_CACHE="}
	// Each model says where it is: what is served is told by the name in its header.
	model := func(place string) string {
		cfg := ggufgen.Tiny()
		cfg.Name = "the model of " + place
		return ggufgen.Cached(t, cfg)
	}
	own := filepath.Join(home, "data", "uma-serve", "models")
	storetest.Copy(t, filepath.Join(own, "mine.gguf"), model("uma-serve"))
	if err := os.MkdirAll(filepath.Join(own, "hf.co", "org", "split-GGUF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ggufgen.Split(model("three files"), filepath.Join(own, "hf.co", "org", "split-GGUF"), "split-Q8_0",
		3); err != nil {
		t.Fatal(err)
	}
	storetest.Hub(t, filepath.Join(home, ".cache", "huggingface", "hub"), "org/hub-GGUF",
		map[string]string{"hub-Q8_0.gguf": model("the hub")})
	storetest.LlamaCpp(t, filepath.Join(home, ".cache", "llama.cpp"), "org/llama-GGUF", "latest",
		[]string{"llama-Q8_0.gguf"}, []string{model("llama.cpp")})
	storetest.Copy(t, filepath.Join(home, ".lmstudio", "models", "publisher", "lm-GGUF", "lm-Q8_0.gguf"),
		model("LM Studio"))
	data, err := os.ReadFile(model("ollama"))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Ollama(t, filepath.Join(home, ".ollama", "models"), "registry.ollama.ai/library/tiny/1m",
		storetest.Layer{Media: "model", Data: data},
		storetest.Layer{Media: "params", Data: []byte(`{"stop":["x"]}`)}, storetest.Layer{Media: "license",
			Data: []byte("MIT")})

	cli := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(bin, "uma-cli"), args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := cli("models", "--json")
	var listed struct {
		Models []struct{ Name, From, Family, Problem string }
	}
	if err != nil || json.Unmarshal([]byte(out), &listed) != nil {
		t.Fatalf("uma-cli models: %v\n%s", err, out)
	}
	var names []string
	for _, m := range listed.Models {
		if m.Problem != "" || m.Family != "llama" {
			t.Errorf("%+v", m)
		}
		names = append(names, m.From+" "+m.Name)
	}
	for _, want := range []string{"uma-serve mine", "uma-serve org/split-GGUF:Q8_0", "huggingface org/hub-GGUF:Q8_0",
		"llama.cpp org/llama-GGUF:Q8_0", "lmstudio publisher/lm-GGUF:Q8_0", "ollama tiny:1m"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in %q", want, names)
		}
	}
	if out, err := cli("alias", "small", "tiny:1m"); err != nil {
		t.Fatalf("uma-cli alias: %v\n%s", err, out)
	}

	for _, x := range []struct {
		args  []string
		place string
	}{
		{[]string{"-m", "mine"}, "uma-serve"},
		{[]string{"-m", "org/split-GGUF"}, "three files"},
		{[]string{"-m", "hf.co/org/hub-GGUF:Q8_0"}, "the hub"},
		{[]string{"-hf", "org/hub-GGUF", "--offline"}, "the hub"},
		{[]string{"-m", "org/llama-GGUF:q8_0"}, "llama.cpp"},
		{[]string{"-m", "lm-G"}, "LM Studio"},
		{[]string{"-m", "tiny"}, "ollama"},
		{[]string{"-m", "small"}, "ollama"},
		{[]string{"-m", model("a path")}, "a path"},
	} {
		p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, env, append([]string{"-t", "1"},
			x.args...)...)
		if err != nil {
			t.Errorf("%q: %v", x.args, err)
			continue
		}
		s := &server{Proc: p, t: t}
		if got := s.info().Model.Name; got != "the model of "+x.place {
			t.Errorf("%q serves %q, want that of %s", x.args, got, x.place)
		}
		c := s.dial()
		c.request(`{"id":"a","prompt":"hello","max_tokens":3}`)
		if ev, err := c.end("a"); err != nil || ev.Kind != wire.EventEOS {
			t.Errorf("%q: %+v, %v", x.args, ev, err)
		}
		c.Close()
		if err := p.Stop(waitfor.Limit); err != nil {
			t.Errorf("%q: %v", x.args, err)
		}
	}

	for want, args := range map[string][]string{
		`there is no such model on this machine, but tiny:1m`:                                        {"-m", "tini"},
		`several models have this name: org/split-GGUF:Q8_0, org/hub-GGUF:Q8_0, org/llama-GGUF:Q8_0`: {"-m", "org"},
		`--offline: org/none:Q4_0 is not on this machine`: {"-hf",
			"org/none:Q4_0", "--offline"},
		`none.gguf: no such file`: {"-m",
			"none.gguf"},
		`./mine: no such file`: {"-m", "./mine"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "uma-serve"), append(args, "--socket",
			filepath.Join(t.TempDir(), "s"))...)
		cmd.Env = append(append(os.Environ(), env...), "UMA_CONFIG=")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("%q: exit status %d, %q\n%s", args, cmd.ProcessState.ExitCode(), want, out)
		}
	}
}
