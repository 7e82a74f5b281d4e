package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// Each type of weights gets the first shape whose rows it can store; a mixture of super-blocks does not fall back.
func TestShapeForWeights(t *testing.T) {
	shapes := []ggufgen.Config{ggufgen.Bench135M(), ggufgen.Bench135MWide()}
	for _, typ := range ggufgen.Types() {
		c, err := shapeFor(typ, shapes)
		want := "ggufgen-bench-135m"
		if strings.HasSuffix(string(typ), "_k") || typ == ggufgen.Q4_K_M {
			want = "ggufgen-bench-135m-wide"
		}
		if err != nil || c.Name != want || c.Type != typ {
			t.Errorf("%s: %s of %s, %v", typ, c.Name, c.Type, err)
		}
	}
	if _, err := shapeFor(ggufgen.Q4_K_M, shapes[:1]); !errors.Is(err, ggufgen.ErrConfig) {
		t.Errorf("no shape fits: %v", err)
	}
}

func TestBenchModels(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	tiny := ggufgen.Tiny()
	models, err := benchModels("", []string{"Q4_0", "f16"}, tiny)
	if err != nil || len(models) != 2 || models[0].weights != "Q4_0" || models[1].weights != "F16" ||
		models[0].path == models[1].path {
		t.Fatalf("%+v, %v", models, err)
	}
	before, err := os.Stat(models[0].path)
	if err != nil || filepath.Base(models[0].path) != "uma-tiny-q4_0-v1.gguf" {
		t.Fatalf("%v, %v", models[0], err)
	}
	if again, err := benchModels("", []string{"q4_0"}, tiny); err != nil || again[0] != models[0] {
		t.Errorf("%+v, %v", again, err)
	} else if after, _ := os.Stat(models[0].path); !os.SameFile(before, after) {
		t.Error("the model was written again")
	}
	if models, err := benchModels("some.gguf", []string{"q4_0"}); err != nil || len(models) != 1 ||
		models[0] != (benchModelFile{path: "some.gguf"}) {
		t.Errorf("a named file: %+v, %v", models, err)
	}
	for _, weights := range [][]string{{"q3_k"}, {}} {
		_, err := benchModels("", weights, tiny)
		if _, ok := errors.AsType[usageError](err); !ok || !strings.Contains(err.Error(), "--weights") ||
			!strings.Contains(err.Error(), "q4_k_m") {
			t.Errorf("%v: %v", weights, err)
		}
	}
}

// The ratios of the types stand in columns beside each other.
func TestPrintOverheadHasAColumnForEachType(t *testing.T) {
	rows := []bench.Overhead{
		{Weights: "Q8_0", Streams: 1, Throughput: 0.991, ITLp95: 1.01},
		{Weights: "Q8_0", Streams: 4, Throughput: 0.992, ITLp95: 1.02},
		{Weights: "F16", Streams: 1, Throughput: 0.993, ITLp95: 1.03},
		{Weights: "F16", Streams: 4, Throughput: 0.994, ITLp95: 1.04},
	}
	var out bytes.Buffer
	printOverhead(&out, rows)
	want := "| streams | Q8_0 | F16 |\n|---|---|---|\n| 1 | **0.991** / 1.010 | **0.993** / 1.030 |\n| 4 | **0.992** " +
		"/ 1.020 | **0.994** / 1.040 |\n"
	if text := out.String(); !strings.HasSuffix(text, want) || strings.Count(text, "bare tok/s") != 2 {
		t.Errorf("got\n%s\nwant at its end\n%s", text, want)
	}
}

func TestOverheadFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--size 3b":           `--size is "3b"; it takes 135m, 1b, 30m`,
		"--lone-prompt 0":     "--lone-prompt is [0]; each must be 1…1024",
		"--lone-prompt 5000":  "each must be 1…1024",
		"--rounds 0":          "--rounds is 0; it must be at least 1",
		"--weights q3":        "--weights has",
		"stray":               "does not take",
		"stray -- --policy x": "does not take",
	} {
		root := newRoot()
		root.SetArgs(append([]string{"overhead"}, strings.Fields(line)...))
		err := root.Execute()
		if _, ok := errors.AsType[usageError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("overhead %s: %v, want %q", line, err, want)
		}
	}
}
