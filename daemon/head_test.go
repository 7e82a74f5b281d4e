package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// withHead is a configuration whose model has a head with that seed: with the model's, it guesses what the model says.
func withHead(seed uint64, cfg fake.Config) fake.Config {
	cfg.Head = &fake.Head{Seed: seed}
	return cfg
}

// headFile makes a file for heads, which is one for the fake engine alone.
func headFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "head.gguf")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// withEagle is withHead of a head with a file, and withDFlash of one that guesses blocks.
func withEagle(t *testing.T, seed uint64, cfg fake.Config) fake.Config {
	cfg.Head = &fake.Head{Seed: seed, File: headFile(t)}
	return cfg
}

func withDFlash(t *testing.T, seed uint64, cfg fake.Config) fake.Config {
	cfg.Head = &fake.Head{Seed: seed, File: headFile(t), Block: 7}
	return cfg
}

// withAssistant is withHead of a head that reads the model's cells. Its file is one of Gemma 4's, as --spec-type
// draft-mtp looks for one in --draft-model.
func withAssistant(t *testing.T, seed uint64, cfg fake.Config) fake.Config {
	file := ggufgen.Cached(t, ggufgen.AssistantOf(ggufgen.TinyGemma4(false), ggufgen.HeadRandom))
	cfg.Head = &fake.Head{Seed: seed, File: file, Shared: true}
	return cfg
}

// serveHead is serve on an engine of which a Decode takes at least 5 ms, and one of its head next to nothing.
func serveHead(t *testing.T, cfg fake.Config, args ...string) *running {
	t.Helper()
	kind := []string{"--spec-type", "draft-mtp"}
	if file := cfg.Head.File; file != "" {
		kind = []string{"--spec-type", "draft-eagle3", "--draft-model", file}
		switch {
		case cfg.Head.Shared:
			kind[1] = "draft-mtp"
		case cfg.Head.Block > 1:
			kind[1] = "draft-dflash"
		}
	}
	r := serve(t, pacedBy(5, cfg), append(kind, args...)...)
	t.Cleanup(func() { // before the daemon ends
		r.nothingLeft()
		r.inLoop(func(*loop) {
			for s := range runtime.Seq(r.engine.head.Capabilities().MaxSequences) {
				if _, last := r.engine.head.SeqRange(s); last >= 0 && !cfg.Head.Shared {
					t.Errorf("sequence %d of the head holds cells", s)
				}
			}
		})
	})
	return r
}

// heads counts the head's guesses of all requests, and those that came true.
func (r *running) heads() (drafted, accepted float64) {
	for _, phase := range []string{"output", "think"} {
		drafted += r.reads("drafted_tokens_total", phase+"/head")
		accepted += r.reads("accepted_tokens_total", phase+"/head")
	}
	return drafted, accepted
}

// TestHeadChangesNothing: answers have the same events to the bit with and without a head, whether it knows the model
// or has other weights, of which few guesses come true.
func TestHeadChangesNothing(t *testing.T) {
	t.Run("cells", func(t *testing.T) { headChangesNothing(t, false, withHead) })
	t.Run("states", func(t *testing.T) { headChangesNothing(t, true, withHead) })
}

// TestEagleChangesNothing: the same with an EAGLE-3 head.
func TestEagleChangesNothing(t *testing.T) {
	with := func(seed uint64, cfg fake.Config) fake.Config { return withEagle(t, seed, cfg) }
	if !testing.Short() {
		t.Run("cells", func(t *testing.T) { headChangesNothing(t, false, with) })
	}
	t.Run("states", func(t *testing.T) { headChangesNothing(t, true, with) })
}

// TestDFlashChangesNothing: the same with a DFlash head.
func TestDFlashChangesNothing(t *testing.T) {
	with := func(seed uint64, cfg fake.Config) fake.Config { return withDFlash(t, seed, cfg) }
	t.Run("cells", func(t *testing.T) { headChangesNothing(t, false, with) })
	if !testing.Short() {
		t.Run("states", func(t *testing.T) { headChangesNothing(t, true, with) })
	}
}

// TestAssistantChangesNothing: the same with a head that reads the model's cells.
func TestAssistantChangesNothing(t *testing.T) {
	with := func(seed uint64, cfg fake.Config) fake.Config { return withAssistant(t, seed, cfg) }
	t.Run("cells", func(t *testing.T) { headChangesNothing(t, false, with) })
	if !testing.Short() {
		t.Run("states", func(t *testing.T) { headChangesNothing(t, true, with) })
	}
}

func headChangesNothing(t *testing.T, states bool, with func(uint64, fake.Config) fake.Config) {
	config := fake.Config{Seed: 5, NoRanges: states, Scripts: []fake.Script{{
		After: "think<|im_end|>\n<|im_start|>assistant\n",
		Emit:  "<think>" + strings.Repeat("It may, or not; ", 12) + "</think>It is so."}}}
	plain := serve(t, config, "--speculate", "off")
	knows, other := serveHead(t, with(5, config)), serveHead(t, with(6, config))
	for name, edit := range draftedTexts {
		t.Run(name, func(t *testing.T) {
			want, wantEOS, _, _ := plain.events(edit)
			for what, r := range map[string]*running{"that knows": knows, "with other weights": other} {
				got, eos, _, _ := r.events(edit)
				if !slices.Equal(got, want) || fmt.Sprintf("%+v", eos) != fmt.Sprintf("%+v", wantEOS) {
					t.Errorf("another answer with a head %s: %d events, %+v; without %d, %+v", what, len(got), eos,
						len(want), wantEOS)
				}
			}
		})
	}
	plain.nothingLeft()
	drafted, accepted := knows.heads()
	t.Logf("a head that knows: %v drafted, %v accepted", drafted, accepted)
	if accepted == 0 { // how many depends on what steps take here
		t.Errorf("a head that knows: %v drafted, %v accepted", drafted, accepted)
	}
	most := drafted / 2 // of a head that is never right: how many depends on what steps take here
	drafted, accepted = other.heads()
	t.Logf("other weights: %v drafted, %v accepted", drafted, accepted)
	if accepted > drafted/4 || drafted > most {
		t.Errorf("other weights: %v drafted, %v accepted; at most %v", drafted, accepted, most)
	}
}

// TestHeadBesideOthers: answers of several requests at once, which share prompts and are preempted for cells, are those
// without a head.
func TestHeadBesideOthers(t *testing.T) {
	config := fake.Config{Seed: 5}
	args := []string{"--ctx-size", "320", "--parallel", "4", "--batch-size", "64"}
	plain := serve(t, config, append([]string{"--speculate", "off"}, args...)...)
	for what, cfg := range map[string]fake.Config{"of the model's file": withHead(5, config),
		"of a file": withEagle(t, 5, config), "of blocks": withDFlash(t, 5, config),
		"of the model's cells": withAssistant(t, 5, config)} {
		t.Run(what, func(t *testing.T) {
			head := serveHead(t, cfg, args...)
			sameAnswersAtOnce(t, plain, head)
			if n, _ := head.heads(); n == 0 {
				t.Error("nothing was guessed")
			}
		})
	}
}

// TestHeadIsReported: info has the head, why and the metrics have its guesses.
func TestHeadIsReported(t *testing.T) {
	r := serveHead(t, withHead(5, fake.Config{Seed: 5}), "--draft-ctx-size", "1024", "--parallel", "4")
	_, _, drafted, accepted := r.events(random)
	r.nothingLeft()
	in := r.info()
	if d := in.Draft; d == nil || d.Kind != "head" || d.ContextTokens != 1024 || d.Sequences != 4 || d.Failed ||
		d.Bytes != 8*1024 || in.Memory.Draft != d.Bytes || in.Config.NoHead != "" {
		t.Errorf("info: %+v, %+v, %q", in.Draft, in.Memory, in.Config.NoHead)
	}
	if n, m := r.heads(); int(n) != drafted || int(m) != accepted || accepted == 0 {
		t.Errorf("the metrics count %v and %v tokens, the usage %d and %d", n, m, drafted, accepted)
	}
	c := r.dial()
	defer c.Close()
	rep, err := c.Why(context.Background(), wire.WhyQuestion{Last: 1})
	if err != nil || len(rep.Requests) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if g := rep.Requests[0].Drafts; g == nil || !slices.ContainsFunc(g.Counts, func(c reports.WhyDraftCount) bool {
		return c.Source == "head" && c.Phase == "output" && c.Drafted == drafted && c.Accepted == accepted
	}) {
		t.Errorf("why says %+v", g)
	}
}

// TestHeadFileIsReported: info has the head and its file, and the head of the model's file is left out.
func TestHeadFileIsReported(t *testing.T) {
	for kind, cfg := range map[string]fake.Config{"eagle3": withEagle(t, 5, fake.Config{Seed: 5}),
		"dflash":           withDFlash(t, 5, fake.Config{Seed: 5}),
		"gemma4-assistant": withAssistant(t, 5, fake.Config{Seed: 5})} {
		t.Run(kind, func(t *testing.T) {
			r := serveHead(t, cfg, "--draft-ctx-size", "1024", "--parallel", "4")
			_, _, drafted, accepted := r.events(random)
			r.nothingLeft()
			in := r.info()
			cells, sequences, spec := 1024, 4, "draft-"+kind
			if cfg.Head.Shared { // it has no cells, and reads those of all sequences
				cells, sequences, spec = 0, r.engine.Capabilities().MaxSequences, "draft-mtp"
			}
			if d := in.Draft; d == nil || d.Kind != kind || d.Path != cfg.Head.File || d.ContextTokens != cells ||
				d.Sequences != sequences || d.Failed || !cfg.Head.Shared && d.Bytes != 8*1024 ||
				in.Memory.Draft != d.Bytes || in.Config.NoHead != "" {
				t.Errorf("info: %+v, %+v, %q", in.Draft, in.Memory, in.Config.NoHead)
			}
			if n, m := r.heads(); int(n) != drafted || int(m) != accepted || accepted == 0 {
				t.Errorf("the metrics count %v and %v tokens, the usage %d and %d", n, m, drafted, accepted)
			}
			off := serve(t, cfg, "--spec-type", spec, "--draft-model", cfg.Head.File, "--speculate", "off")
			if in := off.info(); in.Draft != nil || off.engine.head != nil {
				t.Errorf("with --speculate off, info says %+v", in.Draft)
			}
		})
	}
}

// TestHeadFileThatDoesNotFit: the daemon does not start, and says what is wrong with which file.
func TestHeadFileThatDoesNotFit(t *testing.T) {
	file := headFile(t)
	model, eagle := ggufgen.TinyTarget(false), ggufgen.EagleOf(ggufgen.TinyTarget(false), ggufgen.HeadRandom)
	dflash := ggufgen.DFlashOf(model, ggufgen.HeadRandom, 7)
	assistant, wide := ggufgen.AssistantOf(ggufgen.TinyGemma4(false), ggufgen.HeadRandom), eagle
	wide.Target = &ggufgen.Target{Width: 96, All: 4, Reads: [3]int{1, 2, 3}}
	real := ggufgen.Cached(t, model)
	for name, c := range map[string]struct {
		cfg         fake.Config
		model, file string
		kind        string
		want        []string
	}{
		"no head":      {fake.Config{}, "big.gguf", file, "draft-eagle3", []string{file, "it is no head"}},
		"another file": {withEagle(t, 5, fake.Config{}), "big.gguf", file, "draft-eagle3", []string{file}},
		"no file": {fake.Config{}, real, file + "x", "draft-eagle3", []string{"--draft-model", file + "x",
			"no such file"}},
		"another vocabulary": {fake.Config{Head: &fake.Head{File: file, Other: true}}, "big.gguf", file,
			"draft-eagle3", []string{file, "vocabularies differ", `token 3 is "<think>"`}},
		"another width": {fake.Config{}, real, ggufgen.Cached(t, wide), "draft-eagle3",
			[]string{"an embedding of 96, and the model's is 64"}},
		"a model": {fake.Config{}, real, real, "draft-eagle3", []string{`its architecture is "llama"`}},
		"a head as a model": {fake.Config{}, real, ggufgen.Cached(t, eagle), "draft-simple",
			[]string{"--spec-type draft-eagle3 uses it"}},
		"blocks as a model": {fake.Config{}, real, ggufgen.Cached(t, dflash), "draft-simple",
			[]string{"--spec-type draft-dflash uses it"}},
		"another kind": {fake.Config{}, real, ggufgen.Cached(t, dflash), "draft-eagle3",
			[]string{`its architecture is "dflash"`, "--spec-type draft-dflash uses it"}},
		"an assistant as a model": {fake.Config{}, real, ggufgen.Cached(t, assistant), "auto",
			[]string{"a head (Gemma 4 assistant)", "--spec-type draft-mtp uses it"}},
		"an assistant of another architecture": {fake.Config{}, real, ggufgen.Cached(t, assistant), "draft-mtp",
			[]string{`a model of the architecture "gemma4", and the model's is "llama"`}},
		"an encoder": {fake.Config{Encoder: true, Head: &fake.Head{File: file}}, "big.gguf", file, "draft-eagle3",
			[]string{file, "the model generates nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			wontStart(t, func(runtime.Options) (fake.Config, error) { return c.cfg, nil }, c.want,
				"--model", c.model, "-md", c.file, "--spec-type", c.kind)
		})
	}
}

// TestHeadThatIsNotUsed: info says why.
func TestHeadThatIsNotUsed(t *testing.T) {
	config := withHead(5, fake.Config{Seed: 5})
	refused := config
	refused.Head = &fake.Head{Refused: "it has windows"}
	for name, c := range map[string]struct {
		cfg  fake.Config
		args []string
		want string
	}{
		"off":       {config, []string{"--speculate", "off"}, "--speculate is off"},
		"none":      {config, []string{"--spec-type", "none"}, "--spec-type is none"},
		"left out":  {config, []string{"--spec-type", "draft-simple,ngram-simple"}, "--spec-type leaves it out"},
		"a model":   {config, []string{"--draft-model", "small"}, "--draft-model makes the drafts"},
		"not asked": {config, nil, "--spec-type draft-mtp uses it"},
		"it cannot": {refused, []string{"--spec-type", "draft-mtp"}, "it has windows"},
		"no head":   {fake.Config{Seed: 5}, []string{"--spec-type", "draft-mtp"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := serveEngines(t, slog.New(slog.DiscardHandler), c.cfg, fake.Config{Seed: 5}, overrides{}, c.args...)
			r.events(random)
			in := r.info()
			if in.Config.NoHead != c.want || in.Draft != nil && in.Draft.Kind != "model" {
				t.Errorf("info says %q, and drafts are made by %+v; want %q", in.Config.NoHead, in.Draft, c.want)
			}
			if n, _ := r.heads(); n != 0 {
				t.Errorf("%v guesses of a head", n)
			}
		})
	}
}

// TestHeadFailsWhileItRuns: the answer goes on without it. A recording of that replays.
func TestHeadFailsWhileItRuns(t *testing.T) {
	plain := serve(t, fake.Config{Seed: 5}, "--speculate", "off")
	file := filepath.Join(t.TempDir(), "trace")
	r := serve(t, pacedBy(5, withHead(5, fake.Config{Seed: 5})), "--spec-type", "draft-mtp", "--trace", file)
	want, _, _, _ := plain.events(random)
	if got, _, _, _ := r.events(random); !slices.Equal(got, want) {
		t.Error("another answer with the head")
	}
	r.nothingLeft()
	if n, _ := r.heads(); n == 0 {
		t.Error("nothing was guessed")
	}
	r.inLoop(func(*loop) {
		r.engine.head.(interface{ FailDecode(n int, err error) }).FailDecode(3, runtime.ErrDecode)
	})
	if got, _, _, _ := r.events(random); !slices.Equal(got, want) {
		t.Error("another answer with the head that fails")
	}
	r.nothingLeft()
	if in := r.info(); in.Draft == nil || !in.Draft.Failed {
		t.Errorf("info: %+v", in.Draft)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := core.Replay(b); err != nil || got.Tokens < 240 {
		t.Errorf("%+v, %v", got, err)
	}
}
