package real

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDistance: half of what the probabilities differ by together; all tokens that the truth does not name are one.
func TestDistance(t *testing.T) {
	said := func(p ...float64) *Token { // the probabilities of tokens 1, 2 …
		out := Token{ID: 1, Logprob: math.Log(p[0])}
		for i, v := range p {
			out.Top = append(out.Top, Token{ID: int32(i + 1), Logprob: math.Log(v)})
		}
		return &out
	}
	for _, c := range []struct {
		truth, server *Token
		want          float64
	}{
		{said(0.5, 0.5), said(0.5, 0.5), 0},
		{said(0.6, 0.4), said(0.4, 0.6), 0.2},
		{said(0.6, 0.2), said(0.6, 0.4), 0.2},
		{said(0.6, 0.2), said(0.6), 0.2}, // the server does not name the second
		{said(0.6), said(0.6, 0.2), 0},   // the truth does not name the second
		{said(1), &Token{ID: 7, Top: []Token{{ID: 7}}}, 1},
	} {
		if got := distance(c.truth, c.server); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v and %v: %v, want %v", c.truth.Top, c.server.Top, got, c.want)
		}
	}
}

// TestExplained: a gap beyond a near tie is explained where the weights in F32 are as near to uma-serve as to
// llama-server; near ties alone do not ask them.
func TestExplained(t *testing.T) {
	paths := func(next func([]int32) []Token) map[string]func(map[string]any) any {
		return map[string]func(map[string]any) any{"/tokenize": vocabulary, "/completion": continuing(next),
			"/apply-template": func(map[string]any) any { return map[string]string{"prompt": "\x0c"} }}
	}
	ours, theirs := counting(14, 3, 15), swapped(14, 3, 15)
	for name, c := range map[string]struct {
		theirs func([]int32) []Token
		truth  func([]int32) []Token // nil: there is none; the start fails
		want   string                // in the failures; "" = passes
		asked  bool
	}{
		"uma-serve is right":    {theirs, ours, "", true},
		"both are as far off":   {theirs, counting(14, 0, 15), "", true},
		"llama-server is right": {theirs, theirs, "from which uma-serve is 0.", true},
		"no truth":              {theirs, nil, "what the weights say in F32 is unknown: no room", true},
		"a near tie":            {swapped(14, 0.1, 15), ours, "", false},
	} {
		cmp := Compare{Ours: serve(t, paths(ours)), Theirs: serve(t, paths(c.theirs)), Tokens: 4, Near: 0.5}
		if name == "a near tie" {
			cmp.Ours = serve(t, paths(counting(14, 0.1, 15)))
		}
		asked, stopped := false, false
		cmp.Truth = func(context.Context) (*Server, func(), error) {
			if asked = true; c.truth == nil {
				return nil, nil, errors.New("no room")
			}
			return serve(t, paths(c.truth)), func() { stopped = true }, nil
		}
		check := cmp.Check(t.Context(), []string{"hi"}, true)
		all := strings.Join(check.Failed, "\n")
		if check.OK != (c.want == "") || !strings.Contains(all, c.want) || asked != c.asked ||
			stopped != (c.asked && c.truth != nil) {
			t.Errorf("%s: asked %v, stopped %v, %+v", name, asked, stopped, check)
		}
		explained := strings.Join(check.Explained, "\n")
		if (explained != "") != (c.want == "" && c.asked) || explained != "" &&
			(!strings.Contains(explained, "the weights in F32 say") ||
				!strings.Contains(check.Summary, "1 explained, 0 differ")) {
			t.Errorf("%s: explained %q; %s", name, explained, check.Summary)
		}
		r := Report{Model: "m", Checks: []Check{check}}
		var lines strings.Builder
		if r.Failures(&lines); explained != "" && !strings.Contains(lines.String(), "m, greedy, explained: prompt 0") {
			t.Errorf("%s: %q", name, &lines)
		}
	}
}

// TestExplainedNeverInTheMean: no place is explained where uma-serve is further from the truth over all partings.
func TestExplainedNeverInTheMean(t *testing.T) {
	truth := serve(t, map[string]func(map[string]any) any{"/completion": continuing(func([]int32) []Token {
		return []Token{{ID: 5, Text: "five", Logprob: -0.01}, {ID: 6, Logprob: -5}}
	})})
	right := Token{ID: 5, Logprob: -0.01, Top: []Token{{ID: 5, Logprob: -0.01}, {ID: 6, Logprob: -5}}}
	wrong := Token{ID: 6, Logprob: -0.01, Top: []Token{{ID: 6, Logprob: -0.01}, {ID: 5, Logprob: -5}}}
	for _, c := range []struct {
		more int // places where uma-serve alone is wrong
		want bool
	}{{1, true}, {8, false}} {
		g := Greedy{Partings: []Parting{{row: []int32{1}, ours: right, theirs: wrong, Known: true}}}
		for range c.more {
			g.Partings = append(g.Partings, Parting{row: []int32{1}, ours: wrong, theirs: right, Known: true})
		}
		if err := g.explain(t.Context(), truth); err != nil {
			t.Fatal(err)
		}
		for i, p := range g.Partings {
			if p.Explained != c.want || p.Truth.Token != "five" {
				t.Errorf("%d more: parting %d: %+v; %+v", c.more, i, p, g.Truth)
			}
		}
	}
}

// TestStartTruth: what a program that fails said is in the error, and the copy is gone.
func TestStartTruth(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fails := script("fails", "echo no such type; exit 1")
	copies := script("copies", `test "$1 $4" = "--allow-requantize F32" && echo weights >"$3"`)
	for want, c := range map[string]struct{ quantize, server string }{"no such type": {fails, copies},
		"ended while starting": {copies, fails}} {
		_, _, err := StartTruth(t.Context(), c.server, c.quantize, "m.gguf", 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
