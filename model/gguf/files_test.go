package gguf

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestSplitModel: a model in several files is one model, with the sizes of all of them.
func TestSplitModel(t *testing.T) {
	cfg := ggufgen.TinyWide()
	cfg.Type = ggufgen.Q4_K_M
	whole := ggufgen.Cached(t, cfg)
	dir := t.TempDir()
	files, err := ggufgen.Split(whole, dir, "m", 4)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Inspect(whole)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Inspect(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Files, files) || got.Split != 4 || want.FileType != "Q4_K_M" {
		t.Errorf("files %q, split %d, %s", got.Files, got.Split, want.FileType)
	}
	if a, b := got.Repacked(Processor{AVX2: true}), want.Repacked(Processor{AVX2: true}); a != b || a.Copy == 0 {
		t.Errorf("repacked %+v, want %+v", a, b)
	}
	got.Path, got.Files, got.FileBytes = want.Path, want.Files, want.FileBytes
	got.Split, got.matrices = want.Split, want.matrices
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	said := func(path, want string) {
		t.Helper()
		if _, err := Inspect(path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	said(files[2], "it is file 3 of 4: name the first, "+files[0])
	other := filepath.Join(dir, "alone.gguf")
	link := func(from, to string) {
		t.Helper()
		os.Remove(to)
		if err := os.Link(from, to); err != nil {
			t.Fatal(err)
		}
	}
	link(files[0], other)
	said(other, "it is one of 4 files: their names must end in -00001-of-00004.gguf")
	link(files[1], filepath.Join(dir, "x-00001-of-00004.gguf"))
	said(filepath.Join(dir, "x-00001-of-00004.gguf"), "split.no is 1, but its name says that it is file 1 of 4")
	for i, f := range files {
		link(f, ShardName(filepath.Join(dir, "y"), i+1, 4))
	}
	link(files[2], filepath.Join(dir, "y-00002-of-00004.gguf"))
	said(filepath.Join(dir, "y-00001-of-00004.gguf"), "split.no is 2 and split.count is 4, want 1 and 4")
	if err := os.WriteFile(filepath.Join(dir, "y-00004-of-00004.gguf"), []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	link(files[1], filepath.Join(dir, "y-00002-of-00004.gguf"))
	said(filepath.Join(dir, "y-00001-of-00004.gguf"), "y-00004-of-00004.gguf: not a usable GGUF file")
	os.Remove(files[1])
	said(files[0], "file 2 of 4 is missing: "+files[1])
}

// TestBrief: the short reading agrees with the long one.
func TestBrief(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA(), ggufgen.TinyWide()} {
		path := ggufgen.Cached(t, cfg)
		want, err := Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Brief(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Special {
			want.Special[i].Text = ""
		}
		want.Template, want.TemplateError, want.DefaultTemplate, want.Think, want.templateTexts = nil, "", "", nil, ""
		want.tokens = nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", cfg.Name, got, want)
		}
	}
}

func TestPart(t *testing.T) {
	for name, want := range map[string][3]any{
		"a-00001-of-00003.gguf": {"a", 1, 3}, "d/a-b-00010-of-00010.gguf": {"d/a-b", 10, 10},
		"a.gguf": {"", 0, 0}, "a-00004-of-00003.gguf": {"a", 4, 3}, "a-00000-of-00003.gguf": {"a", 0,
			3}, "-00001-of-00003.gguf": {"", 0, 0},
		"a-1-of-3.gguf": {"", 0, 0}, "a-00001-of-00003.GGUF": {"", 0, 0},
	} {
		prefix, no, count, ok := Shard(name)
		if got := [3]any{prefix, no, count}; got != want || ok != (no >= 1 && no <= count && count > 0) {
			t.Errorf("%s: %v %v, want %v", name, got, ok, want)
		}
		if ok && ShardName(prefix, no, count) != name {
			t.Errorf("%s is put together as %s", name, ShardName(prefix, no, count))
		}
	}
}

// TestNeed: the sums of memory, also of a header that claims more than there can be.
func TestNeed(t *testing.T) {
	info, err := Inspect(ggufgen.Cached(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	r := Repacking{Copy: 300, Spared: 200}
	n, err := info.Need(1000, "f16", "f16", r)
	if err != nil {
		t.Fatal(err)
	}
	kv := uint64(1000 * 2 * 32 * 4)
	if n.KV != kv || n.Weights != info.TensorBytes || n.Total() != kv+info.TensorBytes+300 ||
		n.Resident() != kv+info.TensorBytes+100 ||
		n.Anonymous(true) != kv+300 || n.Anonymous(false) != kv+info.TensorBytes+100 {
		t.Errorf("%+v", n)
	}
	if !n.Fits(n.Resident()+Headroom) || n.Fits(n.Resident()+Headroom-1) {
		t.Error("it fits into what it does not, or does not fit into what it does")
	}
	if _, err := info.Need(1, "x", "f16", r); err == nil {
		t.Error("an unknown type is taken")
	}
	info.KVHeads, info.KeyLength, info.ValueLength, info.attentionLayers = []int64{1 << 20}, 1<<31, 1<<31, 1<<20
	if n, err := info.Need(1<<40, "f32", "f32", Repacking{}); err != nil || n.Fits(1<<50) {
		t.Errorf("a huge model fits: %+v, %v", n, err)
	}
	for train, want := range map[int64]int64{0: 4096, 63: 4096, 64: 64, 2048: 2048, 4096: 4096, 1 << 20: 4096} {
		if got := (&Info{TrainContext: train}).Context(); got != want {
			t.Errorf("trained on %d tokens: served with %d, want %d", train, got, want)
		}
	}
}
