package models

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/models/heldout"
)

func needModel(t *testing.T) {
	t.Helper()
	if len(tiny) == 0 {
		if _, err := Default(); !errors.Is(err, ErrNone) {
			t.Fatalf("without a model Default gave %v", err)
		}
		t.Skip("built with nomodel")
	}
}

func TestDefault(t *testing.T) {
	needModel(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	path, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != "uma-tiny" || info.Architecture != "llama" || info.VocabSize > 1024 || info.FileBytes > 12<<20 ||
		info.Quantisation[0].Type != "Q8_0" {
		t.Errorf("%+v", info)
	}
	if want := (gguf.ThinkTags{Open: "<think>", Close: "</think>", SingleToken: true, InTemplate: true}); len(
		info.Think) != 1 || info.Think[0] != want {
		t.Errorf("think tags %+v", info.Think)
	}
	if info.Template == nil || !info.Template.DropsThinking {
		t.Errorf("template %+v %s", info.Template, info.TemplateError)
	}

	before, _ := os.Stat(path)
	again, err := Default()
	after, _ := os.Stat(path)
	if err != nil || again != path || !os.SameFile(before, after) {
		t.Errorf("the second call gave %s, %v, or wrote the file again", again, err)
	}
	// Damaged under the right name: written again.
	damaged := bytes.Clone(tiny)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Default(); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); !bytes.Equal(b, tiny) {
		t.Error("a damaged file was used")
	}
}

func TestDefaultWithoutPrivateCache(t *testing.T) {
	needModel(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(cache, "uma-serve") // on macOS HOME's Library/Caches is used, which is as good
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path, err := Default()
	if err != nil || strings.HasPrefix(path, dir) {
		t.Errorf("others can write in %s, and Default gave %s, %v", dir, path, err)
	}
	if _, err := gguf.Inspect(path); err != nil {
		t.Error(err)
	}
}

func TestVariants(t *testing.T) {
	needModel(t)
	past := []template.Message{{Role: "user", Content: "2+2"},
		{Role: "assistant", Content: "<think>\nlong\n\n</think>\n\n4"}, {Role: "user", Content: "Thanks"}}
	for name, v := range map[string]struct{ template, want string }{
		"empty": {EmptyThink, "<|im_start|>user\n2+2<|im_end|>\n<|im_start|>assistant\n<think>\nlong\n\n</think>\n\n" +
			"4<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
	} {
		path := filepath.Join(t.TempDir(), "variant.gguf")
		if err := WriteVariant(path, v.template); err != nil {
			t.Fatal(name, err)
		}
		info, err := gguf.Inspect(path)
		if err != nil || info.FileBytes != int64(len(tiny)) {
			t.Fatalf("%s: %+v %v", name, info, err)
		}
		tmpl, err := template.Compile(info.ChatTemplate)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := tmpl.Render(template.Input{Messages: past, AddGenerationPrompt: true}); err != nil ||
			got != v.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := WriteVariant(filepath.Join(t.TempDir(), "x"), strings.Repeat("x", len(chatML)+1)); err == nil {
		t.Error("a template longer than the model's own was taken")
	}
}

// TestHeldOut: what the accuracy table rests on is complete and unambiguous.
func TestHeldOut(t *testing.T) {
	tasks, questions := map[string]int{}, map[string]bool{}
	for _, p := range heldout.Problems() {
		tasks[p.Task]++
		if questions[p.Question] {
			t.Errorf("%q is asked twice", p.Question)
		}
		questions[p.Question] = true
	}
	if len(questions) < 1000 || len(tasks) != 11 {
		t.Errorf("%d problems of %v", len(questions), tasks)
	}
	for _, bad := range []string{"{", `{"task":"add","question":"1+1"}`} {
		if _, err := heldout.Parse("\n" + bad); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
