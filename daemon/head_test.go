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
)

// withHead is a configuration whose model has a head with that seed: with the model's, it guesses what the model says.
func withHead(seed uint64, cfg fake.Config) fake.Config {
	cfg.Head = &fake.Head{Seed: seed}
	return cfg
}

// serveHead is serve on an engine of which a Decode takes at least 5 ms, and one of its head next to nothing.
func serveHead(t *testing.T, cfg fake.Config, args ...string) *running {
	t.Helper()
	r := serve(t, pacedBy(5, cfg), append([]string{"--spec-type", "draft-mtp"}, args...)...)
	t.Cleanup(func() { // before the daemon ends
		r.nothingLeft()
		r.inLoop(func(*loop) {
			for s := range runtime.Seq(r.engine.head.Capabilities().MaxSequences) {
				if _, last := r.engine.head.SeqRange(s); last >= 0 {
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
	t.Run("cells", func(t *testing.T) { headChangesNothing(t, false) })
	t.Run("states", func(t *testing.T) { headChangesNothing(t, true) })
}

func headChangesNothing(t *testing.T, states bool) {
	config := fake.Config{Seed: 5, NoRanges: states, Scripts: []fake.Script{{
		After: "think<|im_end|>\n<|im_start|>assistant\n",
		Emit:  "<think>" + strings.Repeat("It may, or not; ", 12) + "</think>It is so."}}}
	plain := serve(t, config, "--speculate", "off")
	knows, other := serveHead(t, withHead(5, config)), serveHead(t, withHead(6, config))
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
	head := serveHead(t, withHead(5, config), args...)
	sameAnswersAtOnce(t, plain, head)
	if n, _ := head.heads(); n == 0 {
		t.Error("nothing was guessed")
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
			r := serveEngines(t, slog.New(slog.DiscardHandler), c.cfg, fake.Config{Seed: 5}, parts{}, c.args...)
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
