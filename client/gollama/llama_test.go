package llama

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sampler"
)

// echo starts a fake daemon that answers with pieces, and opens it.
func echo(t *testing.T, seen *[]wire.Request, pieces ...string) *LLama {
	t.Helper()
	s := &clienttest.Server{Health: clienttest.HealthOK,
		Info: strings.Replace(clienttest.InfoTiny, `"max_sessions":4096`, `"max_sessions":4096,"max_tokens":2000`, 1),
		Answer: func(c *clienttest.Conn, r *clienttest.Request) {
			if seen != nil {
				*seen = append(*seen, r.Request)
			}
			end := wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: r.Stream}
			if r.Prompt == "refuse" {
				c.Error(wire.Error{ID: r.ID, Code: wire.QueueLimit, Message: "the queue is full"})
				return
			}
			if r.Stream {
				c.Token(r.ID, "hm", wire.Thinking)
				for _, p := range pieces {
					c.Token(r.ID, p, wire.Output)
				}
			}
			if r.Prompt == "endless" {
				<-r.Cancelled
				end.Reason = wire.Cancelled
			}
			c.EOS(end)
		},
		Question: func(*wire.Frame) string { return `{"op":"save","target":"all","done":1}` },
	}
	s.Start(t)
	t.Setenv("UMA_SOCKET", s.Path)
	l, err := New("tiny")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Free)
	return l
}

// TestOptions: every option of Predict becomes a field of the request, has no effect on it, or is refused by name.
func TestOptions(t *testing.T) {
	var seen []wire.Request
	l := echo(t, &seen, "x")
	plain := func(r *wire.Request) {}
	for _, c := range []struct {
		option PredictOption
		want   func(r *wire.Request)
		err    string
	}{
		{SetTokens(7), func(r *wire.Request) { r.MaxTokens = 7 }, ""},
		{SetTokens(0), func(r *wire.Request) { r.MaxTokens = 0 }, ""},
		{SetTokens(1 << 30), func(r *wire.Request) { r.MaxTokens = 2000 }, ""},
		{SetStopWords("a", "b"), func(r *wire.Request) { r.Stop = []string{"a", "b"} }, ""},
		{SetSeed(5), func(r *wire.Request) { r.Sampling.Seed, r.Sampling.SeedSet = 5, true }, ""},
		{SetSeed(0), plain, ""},
		{SetTopK(9), func(r *wire.Request) { r.Sampling.TopK = 9 }, ""},
		{SetTopP(.5), func(r *wire.Request) { r.Sampling.TopP = .5 }, ""},
		{SetTemperature(0), func(r *wire.Request) { r.Sampling.Temperature = 0 }, ""},
		{SetPenalty(1.5), func(r *wire.Request) { r.Sampling.RepeatPenalty = 1.5 }, ""},
		{SetRepeat(-1), func(r *wire.Request) { r.Sampling.PenaltyLastN = -1 }, ""},
		{SetFrequencyPenalty(.25), func(r *wire.Request) { r.Sampling.FrequencyPenalty = .25 }, ""},
		{SetPresencePenalty(.5), func(r *wire.Request) { r.Sampling.PresencePenalty = .5 }, ""},
		{SetTypicalP(.5), func(r *wire.Request) { r.Sampling.TypicalP = .5 }, ""},
		{SetMirostat(2), func(r *wire.Request) { r.Sampling.Mirostat = 2 }, ""},
		{SetMirostatTAU(4), func(r *wire.Request) { r.Sampling.MirostatTau = 4 }, ""},
		{SetMirostatETA(.5), func(r *wire.Request) { r.Sampling.MirostatEta = .5 }, ""},
		{IgnoreEOS, func(r *wire.Request) { r.Sampling.IgnoreEOS = true }, ""},
		{SetLogitBias("15043+1.5"),
			func(r *wire.Request) { r.Sampling.LogitBias = []sampler.Bias{{Token: 15043, Bias: 1.5}} }, ""},
		{SetLogitBias("7 - 2"), func(r *wire.Request) { r.Sampling.LogitBias = []sampler.Bias{{Token: 7, Bias: -2}} },
			""},
		{SetLogitBias("7"), nil, "SetLogitBias"},
		{SetLogitBias("+7"), nil, "SetLogitBias"},
		{SetLogitBias("7+x"), nil, "SetLogitBias"},
		{SetLogitBias("7+NaN"), nil, "SetLogitBias"},
		{WithGrammar(`root ::= "a"`), func(r *wire.Request) {
			r.Format = wire.Format{Kind: wire.FormatGrammar, Payload: `root ::= "a"`}
		}, ""},
		{SetTailFreeSamplingZ(.5), nil, "SetTailFreeSamplingZ"},
		{SetNegativePrompt("bad"), nil, "SetNegativePrompt"},
		{SetNegativePromptScale(2), nil, "SetNegativePromptScale"},
		{SetRopeFreqBase(5e5), nil, "RoPE base"},
		{SetRopeFreqScale(.5), nil, "RoPE scale"},
		{EnableF16KV, plain, ""},
		{Debug, plain, ""}, {EnablePromptCacheAll, plain, ""}, {EnablePromptCacheRO, plain, ""},
		{SetThreads(3), plain, ""},
		{SetBatch(3), plain, ""}, {SetNKeep(3), plain, ""}, {SetNDraft(3), plain, ""}, {SetPenalizeNL(true), plain, ""},
		{SetPathPromptCache("f"), plain, ""}, {SetMlock(true), plain, ""}, {SetMemoryMap(false), plain, ""},
		{SetPredictionMainGPU("1"), plain, ""}, {SetPredictionTensorSplit("1,2"), plain, ""},
	} {
		seen = nil
		_, err := l.Predict("p", c.option)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || seen != nil {
				t.Errorf("%+v: %v, want an error about %s", NewPredictOptions(c.option), err, c.err)
			}
			continue
		}
		want := wire.DefaultRequest()
		s := &want.Sampling
		want.Prompt, want.ParseSpecial, want.Stream, want.MaxTokens = "p", true, true, 128
		s.Temperature, s.TopK, s.TopP, s.MinP, s.TypicalP = .8, 40, .95, 0, 1
		s.RepeatPenalty, s.PenaltyLastN, s.MirostatTau, s.MirostatEta = 1.1, 64, 5, .1
		c.want(&want)
		if err != nil || len(seen) != 1 {
			t.Errorf("%+v: %v, %d requests", NewPredictOptions(c.option), err, len(seen))
			continue
		}
		want.ID = seen[0].ID
		if !reflect.DeepEqual(seen[0], want) {
			t.Errorf("%+v:\n%+v, want\n%+v", NewPredictOptions(c.option), seen[0], want)
		}
	}
}

// TestNew: the model, the context and what the daemon cannot do.
func TestNew(t *testing.T) {
	echo(t, nil)
	file := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model  string
		option ModelOption
		err    string
	}{
		{"", nil, ""}, {"tiny", nil, ""}, {"/models/tiny.gguf", nil, ""},
		{"other", nil, "serves tiny (/models/tiny.gguf), not other"},
		{"/models/other.gguf", nil, "start uma-serve -m /models/other.gguf"},
		{file, nil, "not " + file}, // another file of that name
		{"", SetContext(4096), ""}, {"", SetContext(4097), "--ctx-size 4097"},
		{"", EnableF16Memory, ""}, {"", SetLoraAdapter("a"), "SetLoraAdapter"}, {"", SetLoraBase("a"), "SetLoraBase"},
		{"", WithRopeFreqBase(1e6), "RoPE base"}, {"", WithRopeFreqScale(.5), "RoPE scale"},
		{"", WithRopeFreqBase(0), ""},
		{"", EnabelLowVRAM, ""}, {"", EnableNUMA, ""}, {"", EnableMLock, ""}, {"", SetNBatch(1), ""},
		{"", SetMMap(false), ""},
		{"", SetGPULayers(9), ""}, {"", SetMainGPU("1"), ""}, {"", SetTensorSplit("1"), ""}, {"", SetMulMatQ(true), ""},
		{"", SetModelSeed(3), ""}, {"", SetPerplexity(true), ""}, {"", EnableEmbeddings, ""},
	} {
		var opts []ModelOption
		if c.option != nil {
			opts = append(opts, c.option)
		}
		l, err := New(c.model, opts...)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q %+v: %v, want %q", c.model, NewModelOptions(opts...), err, c.err)
		}
		if err == nil {
			l.Free()
		}
	}
	t.Setenv("UMA_SOCKET", filepath.Join(t.TempDir(), "none"))
	if l, err := New(""); err == nil || l != nil {
		t.Errorf("without a daemon: %v, %v", l, err)
	}
}

// TestDocumentedOptions: the package's documentation says of every option what it means here.
func TestDocumentedOptions(t *testing.T) {
	fset := token.NewFileSet()
	doc, err := parser.ParseFile(fset, "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(fset, "options.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	check := func(name string) {
		if strings.HasPrefix(name, "New") || strings.HasPrefix(name, "Default") || !ast.IsExported(name) {
			return
		}
		n++
		if !strings.Contains(doc.Doc.Text(), name) {
			t.Errorf("the documentation does not say what %s does", name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			check(d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					check(v.Names[0].Name)
				}
			}
		}
	}
	if n != 55 {
		t.Errorf("%d options, want 55, as the published binding has", n)
	}
}

func TestPredict(t *testing.T) {
	l := echo(t, nil, " It", " is", " 42.")
	var pieces []string
	all := func(s string) bool { pieces = append(pieces, s); return true }
	got, err := l.Predict("q", SetTokenCallback(all))
	if err != nil || got != "It is 42." || fmt.Sprint(pieces) != fmt.Sprint([]string{" It", " is", " 42."}) {
		t.Errorf("%q, %q, %v", got, pieces, err)
	}
	pieces = nil
	l.SetTokenCallback(all)
	if _, err := l.Predict("q"); err != nil || len(pieces) != 3 {
		t.Errorf("%q, %v", pieces, err)
	}
	l.SetTokenCallback(nil)
	n := 0
	got, err = l.Predict("endless", SetTokenCallback(func(string) bool { n++; return n < 2 }))
	if err != nil || n != 2 || got != "It is" {
		t.Errorf("a callback that says no: %q after %d, %v", got, n, err)
	}
	if got, err = l.Predict("q"); err != nil || got != "It is 42." {
		t.Errorf("after a cancelled one: %q, %v", got, err)
	}
	if _, err = l.Predict("refuse"); err == nil || !strings.Contains(err.Error(), "the queue is full") {
		t.Errorf("%v", err)
	}
	if _, err = l.Predict(""); err == nil {
		t.Error("an empty prompt is no error")
	}
	if _, err = l.SpeculativeSampling(l, "q"); err == nil || !strings.Contains(err.Error(), "SpeculativeSampling") {
		t.Errorf("%v", err)
	}
	if _, err = l.Embeddings("q"); err == nil || !strings.Contains(err.Error(), "EnableEmbeddings") {
		t.Errorf("%v", err)
	}
}

func TestState(t *testing.T) {
	var seen []wire.Request
	l := echo(t, &seen, " yes")
	file := filepath.Join(t.TempDir(), "state")
	if err := l.SaveState(file); err == nil {
		t.Error("there was nothing to save")
	}
	if _, err := l.Predict("Is it?"); err != nil {
		t.Fatal(err)
	}
	if err := l.SaveState(file); err != nil {
		t.Fatal(err)
	}
	if err := l.Eval("something else"); err != nil || !seen[1].FillOnly {
		t.Fatalf("%+v, %v", seen, err)
	}
	if err := l.LoadState(file); err != nil {
		t.Fatal(err)
	}
	if r := seen[2]; r.Prompt != "Is it? yes" || !r.FillOnly {
		t.Errorf("%+v", r)
	}
	for text, want := range map[string]string{
		"": "is not a file of SaveState", "{}": "is not a file of SaveState",
		`{"format":"x"`: "is not a file of SaveState",
		`{"format":"uma-serve gollama state 1","model":"big","text":"a"}`: `of the model "big"`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.LoadState(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := l.LoadState(file + "x"); err == nil {
		t.Error("a missing file is no error")
	}
	if err := l.SaveState(filepath.Join(file, "below", "a file")); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}
