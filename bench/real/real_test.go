package real

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// serve runs a server on a Unix socket that answers each path by a function of the decoded body.
func serve(t *testing.T, paths map[string]func(body map[string]any) any) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "real") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for path, f := range paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			if err := json.NewEncoder(w).Encode(f(body)); err != nil {
				t.Error(err)
			}
		})
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	srv.Start()
	s := &Server{Name: "fake", Socket: l.Addr().String()}
	t.Cleanup(func() {
		s.Close()
		srv.Close()
		os.RemoveAll(dir)
	})
	return s
}

// vocabulary tokenizes a character as its code, after a 1 where special tokens are wanted.
func vocabulary(body map[string]any) any {
	var out []int32
	if body["add_special"] == true {
		out = append(out, 1)
	}
	for _, r := range body["content"].(string) {
		out = append(out, int32(r))
	}
	return map[string]any{"tokens": out}
}

// continuing continues a prompt of token ids by next, which has the distribution behind a row of tokens.
func continuing(next func(row []int32) []Token) func(map[string]any) any {
	return func(body map[string]any) any {
		var row []int32
		for _, v := range body["prompt"].([]any) {
			row = append(row, int32(v.(float64)))
		}
		var c Completion
		for range int(body["n_predict"].(float64)) {
			top := next(row)
			if top == nil {
				break
			}
			t := top[0]
			t.Top = top
			c.Probs, row = append(c.Probs, t), append(row, t.ID)
		}
		return c
	}
}

// counting says 10, 11, 12 … , each with the probabilities of two tokens.
func counting(at int32, gap float64, second int32) func([]int32) []Token {
	return func(row []int32) []Token {
		id := row[len(row)-1] + 1
		if id > 20 {
			return nil
		}
		first, other := Token{ID: id, Logprob: -0.1}, Token{ID: 99, Logprob: -3}
		if id == at {
			first.Logprob, other = -0.5, Token{ID: second, Logprob: -0.5 - gap}
		}
		return []Token{first, other}
	}
}

// swapped is counting with the second token first, at the same place.
func swapped(at int32, gap float64, second int32) func([]int32) []Token {
	f := counting(at, gap, second)
	return func(row []int32) []Token {
		top := f(row)
		if top != nil && top[0].ID == at {
			top[0].ID, top[1].ID = top[1].ID, top[0].ID
		}
		return top
	}
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		ours, theirs func([]int32) []Token
		want         Greedy
		gap          float64
	}{
		"equal": {counting(0, 0, 0), counting(0, 0, 0), Greedy{Prompts: 1, Equal: 1, Tokens: 8}, 0},
		// The comparison goes on behind their token, 50, where both say nothing more.
		"near": {counting(14, 0.1, 15), swapped(14, 0.2, 15),
			Greedy{Prompts: 1, Near: 1, Tokens: 7, MaxNear: 0.2}, 0.2},
		"far": {counting(14, 0.1, 15), swapped(14, 2, 15), Greedy{Prompts: 1, Different: 1, Tokens: 7}, 2},
		"not among the alternatives": {counting(14, 0.1, 98), swapped(14, 0.1, 15),
			Greedy{Prompts: 1, Different: 1, Tokens: 7}, 0.1},
		"one ends": {counting(0, 0, 0), func(row []int32) []Token {
			if row[len(row)-1] > 12 {
				return nil
			}
			return counting(0, 0, 0)(row)
		}, Greedy{Prompts: 1, Different: 1, Tokens: 1}, unknownGap},
	} {
		t.Run(name, func(t *testing.T) {
			cmp := Compare{Tokens: 8, Near: 0.5, Concurrency: 2,
				Ours:   serve(t, map[string]func(map[string]any) any{"/completion": continuing(c.ours)}),
				Theirs: serve(t, map[string]func(map[string]any) any{"/completion": continuing(c.theirs)})}
			got, err := cmp.Run(t.Context(), [][]int32{{12}})
			if err != nil {
				t.Fatal(err)
			}
			partings := got.Partings
			got.Partings, got.MeanDelta, got.P99Delta, got.MaxDelta, got.NearGap = nil, 0, 0, 0, 0
			got.MaxNear = math.Round(got.MaxNear*1e6) / 1e6
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%+v, want %+v; %+v", *got, c.want, partings)
			}
			if c.gap == 0 != (len(partings) == 0) || c.gap != 0 && math.Abs(partings[0].Gap-c.gap) > 1e-6 {
				t.Errorf("partings %+v, want a gap of %v", partings, c.gap)
			}
		})
	}
}

// TestCompareGoesOn: behind a near tie the rest of the answer is compared as well.
func TestCompareGoesOn(t *testing.T) {
	wrong := func(row []int32) []Token {
		if top := counting(14, 0.1, 15)(row); top == nil || top[0].ID != 18 {
			return top
		}
		return []Token{{ID: 60, Logprob: -0.1}, {ID: 18, Logprob: -4}}
	}
	cmp := Compare{Tokens: 8, Near: 0.5,
		Ours:   serve(t, map[string]func(map[string]any) any{"/completion": continuing(wrong)}),
		Theirs: serve(t, map[string]func(map[string]any) any{"/completion": continuing(swapped(14, 0.2, 15))})}
	g, err := cmp.Run(t.Context(), [][]int32{{12}})
	if err != nil || len(g.Partings) != 2 || !g.Partings[0].Near || g.Partings[1].Near || g.Different != 1 {
		t.Errorf("%v %+v", err, g)
	}
}

// TestCheckNamesWhatDiffers: another template or tokenizer is a failure with both texts' tokens, a far gap one with the
// prompt.
func TestCheckNamesWhatDiffers(t *testing.T) {
	with := func(template string, next func([]int32) []Token) *Server {
		return serve(t, map[string]func(map[string]any) any{"/tokenize": vocabulary, "/completion": continuing(next),
			"/apply-template": func(map[string]any) any { return map[string]string{"prompt": template} }})
	}
	for _, c := range []struct {
		ours, theirs *Server
		ok           bool
		want         string
	}{
		{with("\x0c", counting(0, 0, 0)), with("\x0c", counting(0, 0, 0)), true, ""},
		{with("a", counting(0, 0, 0)), with("b", counting(0, 0, 0)), false,
			"prompt 0 is [1 97] here and [1 98] in fake"},
		{with("\x0c", counting(14, 3, 15)), with("\x0c", swapped(14, 3, 15)), false, `prompt 0 ("hi"): token 1`},
	} {
		cmp := Compare{Ours: c.ours, Theirs: c.theirs, Tokens: 4, Near: 0.5}
		check := cmp.Check(t.Context(), []string{"hi"}, true)
		if check.OK != c.ok || !strings.Contains(strings.Join(check.Failed, "\n"), c.want) {
			t.Errorf("%+v, want %q", check, c.want)
		}
		if _, err := json.Marshal(check); err != nil {
			t.Error(err)
		}
	}
}

// TestControl: what llama-server differs from itself by widens what is a near tie, and bounds the mean difference.
func TestControl(t *testing.T) {
	// off is counting whose tokens' log-probabilities are less likely by d.
	off := func(next func([]int32) []Token, d float64) *Server {
		return serve(t, map[string]func(map[string]any) any{"/tokenize": vocabulary,
			"/apply-template": func(map[string]any) any { return map[string]string{"prompt": "\x0c"} },
			"/completion": continuing(func(row []int32) []Token {
				top := next(row)
				if top != nil {
					top[0].Logprob -= d
				}
				return top
			})})
	}
	theirs := swapped(14, 1, 15)
	for name, c := range map[string]struct {
		control, mean float64 // differences from llama-server
		want          string  // "" = passes
	}{
		"a gap of rounding":      {0.6, 0.1, ""},
		"a gap of more":          {0.4, 0.1, "a gap of 1.000 nats"},
		"a difference in common": {0.6, 2, "more than twice llama-server's 0.6000 with itself"},
	} {
		cmp := Compare{Ours: off(counting(14, 1, 15), c.mean), Theirs: off(theirs, 0), Control: off(theirs, c.control),
			Tokens: 2, Near: 0.5}
		check := cmp.Check(t.Context(), []string{"hi"}, true)
		all := strings.Join(check.Failed, "\n")
		if check.OK != (c.want == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: %+v", name, check)
		}
		if !strings.Contains(check.Summary, "llama-server beside itself without flash attention: 1 of 1 equal") {
			t.Errorf("%s: %q", name, check.Summary)
		}
	}
}

// TestPerplexity: the second half of each chunk is scored, behind the token that begins every text.
func TestPerplexity(t *testing.T) {
	var seen [][]int32
	ours := serve(t, map[string]func(map[string]any) any{"/tokenize": vocabulary,
		"/v1/completions": func(body map[string]any) any {
			var row []int32
			lps := []any{nil}
			for i, v := range body["prompt"].([]any) {
				if row = append(row, int32(v.(float64))); i > 0 {
					lps = append(lps, -float64(i))
				}
			}
			seen = append(seen, row)
			return map[string]any{"choices": []any{map[string]any{"logprobs": map[string]any{
				"token_logprobs": append(lps, -1.0)}}}}
		}})
	dir := t.TempDir()
	program := filepath.Join(dir, "ppl")
	want := math.Exp((5. + 6 + 7) / 3) // of 8 tokens the last 3 are predicted from the second half
	for said, ok := range map[string]bool{fmt.Sprintf("Final estimate: PPL = %.4f +/- 1", want*1.0005): true,
		fmt.Sprintf("Final estimate: PPL = %.4f +/- 1", want*1.002): false, "out of memory": false} {
		seen = nil
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho '"+said+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		cfg := PerplexityConfig{Ours: ours, Program: program, Text: "abcdefghijklmnopqrst", Chunk: 8, Chunks: 2,
			Most: 0.001}
		check := cfg.Check(t.Context())
		if check.OK != ok {
			t.Errorf("%s: %+v", said, check)
		}
		chunks := [][]int32{{1, 97, 98, 99, 100, 101, 102, 103}, {1, 105, 106, 107, 108, 109, 110, 111}}
		if !reflect.DeepEqual(seen, chunks) {
			t.Errorf("chunks %v", seen)
		}
	}
	cfg := PerplexityConfig{Ours: ours, Program: program, Text: "short", Chunk: 8, Chunks: 2}
	if check := cfg.Check(t.Context()); check.OK || !strings.Contains(check.Failed[0], "the text has 6 tokens") {
		t.Errorf("%+v", check)
	}
}

// TestForms: an answer that breaks its schema, or a call that breaks its tool's, fails the check by name.
func TestForms(t *testing.T) {
	schemas := []Schema{{"a",
		json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}}
	tools := []Tool{{Name: "add", Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"maximum":5}}}`)}}
	tasks := []Task{{"?", "add"}}
	answer := func(reason, content string, calls ...string) *Server {
		var c choice
		c.Reason, c.Message.Content = reason, content
		b, _ := json.Marshal(map[string]any{"choices": []choice{c}})
		var out map[string]any
		json.Unmarshal(b, &out)
		var list []any
		for i := 0; i < len(calls); i += 2 {
			list = append(list, map[string]any{"function": map[string]string{"name": calls[i],
				"arguments": calls[i+1]}})
		}
		out["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["tool_calls"] = list
		return serve(t, map[string]func(map[string]any) any{
			"/v1/chat/completions": func(map[string]any) any { return out }})
	}
	for _, c := range []struct {
		server *Server
		tool   bool
		want   string // "" = it passes
	}{
		{answer("stop", `{"n": 3}`), false, ""},
		{answer("stop", `{"n": "3"}`), false, "a: jsonschema validation failed"},
		{answer("stop", `{"n": 3`), false, "a: unexpected EOF"},
		{answer("length", `{"n": 3`), false, "1 of 1 answers did not end"},
		{answer("tool_calls", "", "add", `{"n": 3}`), true, ""},
		{answer("tool_calls", "", "add", `{"n": 9}`), true, "add{\"n\": 9}: jsonschema validation failed"},
		{answer("tool_calls", "", "sub", `{}`), true, `it calls "sub"`},
		{answer("stop", "no"), true, `it ended with "stop" and 0 calls`},
	} {
		check := CheckSchemas(t.Context(), c.server, schemas, 1)
		if c.tool {
			check = CheckTools(t.Context(), c.server, tools, tasks, 1)
		}
		if check.OK != (c.want == "") || !strings.Contains(strings.Join(check.Failed, "\n"), c.want) {
			t.Errorf("%+v, want %q", check, c.want)
		}
	}
}

// TestPrefix: tokens that are computed again are a failure, unless the memory cannot share them.
func TestPrefix(t *testing.T) {
	next := func(row []int32) []Token { return []Token{{ID: row[len(row)-1]%50 + 1, Logprob: -0.1}} }
	server := func(cached func(step, prompt int) int) *Server {
		step := 0
		return serve(t, map[string]func(map[string]any) any{"/tokenize": vocabulary,
			"/completion": func(body map[string]any) any {
				c := continuing(next)(body).(Completion)
				n := len(body["prompt"].([]any))
				c.Timings.Cached = cached(step, n)
				c.Timings.Computed = n - c.Timings.Cached
				step++
				return c
			}})
	}
	theirs := server(func(int, int) int { return 0 })
	text := strings.Repeat("a row of characters ", 100)
	for name, c := range map[string]struct {
		cached func(step, prompt int) int
		forks  bool
		want   string
	}{
		"all": {func(step, n int) int { return []int{0, 723, 763, 350, 763}[min(step, 4)] }, true, ""},
		"no forks": {func(step, n int) int { return []int{0, 723, 763, 0, 763}[min(step, 4)] }, true,
			"forked in the middle: 0 of 350"},
		"none expected": {func(step, n int) int { return []int{0, 723, 763, 0, 763}[min(step, 4)] }, false, ""},
		"nothing":       {func(int, int) int { return 0 }, false, "continued: 0 of 723"},
	} {
		cmp := Compare{Ours: server(c.cached), Theirs: theirs, Near: 0.5, Concurrency: 1}
		check := cmp.CheckPrefix(t.Context(), text, c.forks)
		if check.OK != (c.want == "") || !strings.Contains(strings.Join(check.Failed, "\n"), c.want) {
			t.Errorf("%s: %+v", name, check)
		}
	}
}

// TestData: the lists have what the checks say of them, all of it different, and every schema compiles.
func TestData(t *testing.T) {
	prompts := Prompts()
	if n := len(slices.Compact(slices.Sorted(slices.Values(prompts)))); len(prompts) != 200 || n != 200 {
		t.Errorf("%d prompts, %d different", len(prompts), n)
	}
	schemas, err := Schemas()
	if err != nil || len(schemas) != 100 {
		t.Errorf("%d schemas, %v", len(schemas), err)
	}
	names := map[string]bool{}
	for _, s := range schemas {
		if _, err := validator(s.Name, s.Schema); err != nil {
			t.Error(err)
		}
		names[s.Name] = true
	}
	if len(names) != 100 {
		t.Errorf("%d different names", len(names))
	}
	tools, tasks, err := Tools()
	if err != nil || len(tools) != 10 || len(tasks) != 50 {
		t.Errorf("%d tools, %d tasks, %v", len(tools), len(tasks), err)
	}
	for _, task := range tasks {
		if !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == task.Tool }) {
			t.Errorf("%q: there is no tool %q", task.Question, task.Tool)
		}
	}
	if len(Text) < 20_000 || !strings.Contains(ThinkTemplate, "<think>") {
		t.Error("the text or the template is missing")
	}
}

// TestEach: the first failure ends the rest.
func TestEach(t *testing.T) {
	err := each(t.Context(), 1000, 3, func(ctx context.Context, i int) error {
		if i == 5 {
			return fmt.Errorf("number %d", i)
		}
		if i > 100 {
			t.Errorf("%d is called", i)
		}
		<-func() <-chan struct{} {
			if i > 5 {
				return ctx.Done()
			}
			c := make(chan struct{})
			close(c)
			return c
		}()
		return nil
	})
	if err == nil || err.Error() != "number 5" {
		t.Error(err)
	}
}

// TestLlamaServerThatEnds: what it said is in the error.
func TestLlamaServerThatEnds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "llama-server")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no such model; exit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := StartLlamaServer(t.Context(), program, "m.gguf")
	if err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	r := Report{Model: "m", Checks: []Check{{Name: "a", OK: true, Summary: "fine"}, {Name: "b", Skipped: true}}}
	if !r.OK() {
		t.Error("a skipped check fails the report")
	}
	var c Check
	for i := range 20 {
		c.Fail("failure %d", i)
	}
	r.Checks = append(r.Checks, c)
	var table, failures strings.Builder
	r.Markdown(&table, true)
	r.Failures(&failures)
	if r.OK() || strings.Count(failures.String(), "\n") != maxFailures || !strings.Contains(table.String(),
		"| m | a | passed | fine | 0 |") {
		t.Errorf("%v\n%s\n%s", r.OK(), &table, &failures)
	}
}

// TestAlign: llama-server tells no probabilities of a token that does not end its character.
func TestAlign(t *testing.T) {
	c := Completion{Tokens: []int32{5, 6, 7, 6, 8}, Probs: []Token{{ID: 5, Logprob: -1}, {ID: 7, Logprob: -2},
		{ID: 8, Logprob: -3}}}
	c.align()
	if want := []Token{{ID: 5, Logprob: -1}, {ID: 6, Bare: true}, {ID: 7, Logprob: -2}, {ID: 6, Bare: true},
		{ID: 8, Logprob: -3}}; !reflect.DeepEqual(c.Probs, want) {
		t.Errorf("%+v, want %+v", c.Probs, want)
	}
	whole := Completion{Tokens: []int32{1}, Probs: []Token{{ID: 1}}}
	if whole.align(); len(whole.Probs) != 1 || whole.Probs[0].Bare {
		t.Errorf("%+v", whole)
	}
	// A place of which one server tells the id alone is judged by the other's alternatives.
	cmp := Compare{}
	top := []Token{{ID: 1, Logprob: -0.5}, {ID: 2, Logprob: -0.6}}
	ours := &Completion{Probs: []Token{{ID: 1, Logprob: -0.5, Top: top}}}
	theirs := &Completion{Probs: []Token{{ID: 2, Bare: true}}}
	var deltas []float64
	if _, p := cmp.compare(ours, theirs, 0, &deltas); p == nil || !p.Known || p.Gap < 0.09 || p.Gap > 0.11 {
		t.Errorf("%+v", p)
	}
	if n, p := cmp.compare(theirs, theirs, 0, &deltas); n != 1 || p != nil || len(deltas) != 0 {
		t.Errorf("%d %+v %v", n, p, deltas)
	}
}
