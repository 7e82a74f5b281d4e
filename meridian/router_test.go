package meridian

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const eog = "<eog>"

// Two vocabularies for the same texts: one with single-token tags, one that must spell them.
var (
	singles = newVocab([]string{"a", "b", " ", "\n", ".", "<think>", "</think>"}, eog, "<|im_start|>")
	spelled = bytesVocab([]string{"</", "<", "th", "ink", "think", ">", ">a", "a<", "think>b"}, eog, "<|im_start|>")
)

// run feeds text token by token and ends with a flush.
func run(v *testVocab, r *Router, text string) (tr transcript) {
	for _, t := range v.tokens(text) {
		tr.add(r.OnToken(t, v.Piece(t), v.Text(t) == eog, false))
		r.check()
	}
	think, answer := r.Flush()
	tr.add(Step{Think: think, Answer: answer})
	return tr
}

func TestRouterPhases(t *testing.T) {
	for _, c := range []struct {
		name, prompt, text string
		blocks             int
		phase              Phase
		tokens             int // with single-token tags
		think, answer      string
	}{
		{"plain answer", "a", "ab", 1, OutputDecode, 0, "", "ab"},
		{"thinks, then answers", "a", "<think>ab</think>b", 1, OutputDecode, 2, "ab", "b"},
		{"white space before the tag", "", "\n<think>a", 1, ThinkDecode, 1, "a", ""},
		{"tag opened by the template", "a<think>\n", "a</think>a", 1, OutputDecode, 1, "a", "a"},
		{"thinking begun in the prompt", "a<think>a", "a</think>a", 1, OutputDecode, 1, "a", "a"},
		{"a past block, closed in the prompt", "<think>a</think>a", "a", 1, OutputDecode, 0, "", "a"},
		{"an empty block in the prompt", "a<think>\n\n</think>\n\n", "a", 1, OutputDecode, 0, "", "a"},
		{"a tag in an earlier turn opens nothing", "a<think>a<|im_start|>a", "a", 1, OutputDecode, 0, "", "a"},
		{"a second opening is text of the answer", "", "<think></think><think>a", 1, OutputDecode, 0, "", "<think>a"},
		{"a second block, when two are allowed", "", "<think>a</think>b<think>b</think>a<think>", 2, OutputDecode, 2,
			"ab", "ba<think>"},
		{"a nested opening is thought", "", "<think><think>a", 1, ThinkDecode, 2, "<think>a", ""},
		{"end inside thinking completes", "", "<think>a" + eog, 1, Complete, 1, "a", ""},
		{"complete absorbs", "", eog + "<think>a", 1, Complete, 0, "", ""},
		{"a close before anything opened is a tag, not text", "", "</think>a", 1, OutputDecode, 0, "", "a"},
	} {
		for _, v := range []*testVocab{singles, spelled} {
			tags := mustResolve(v, thinkTags)
			r := NewRouter(tags, c.blocks, beginAfter(tags, v.tokens(c.prompt)))
			tr := run(v, &r, c.text)
			if r.Phase() != c.phase || tr.think.String() != c.think || tr.answer.String() != c.answer {
				t.Errorf("%s: phase %v think %q answer %q, want %v %q %q", c.name, r.Phase(), &tr.think, &tr.answer,
					c.phase, c.think, c.answer)
			}
			if v == singles && r.ThinkTokens() != c.tokens {
				t.Errorf("%s: %d think tokens, want %d", c.name, r.ThinkTokens(), c.tokens)
			}
		}
	}
}

// TestStrayClose: a close tag after a block is a control token that lost its way, never text, where it has an id.
func TestStrayClose(t *testing.T) {
	r := NewRouter(mustResolve(singles, thinkTags), 1, Begin{})
	tr := run(singles, &r, "<think>a</think>b</think>a")
	if tr.answer.String() != "ba" {
		t.Fatalf("answer %q", &tr.answer)
	}
}

func TestThinkTokensOfSpelledTags(t *testing.T) {
	v := spelled
	for _, c := range []struct {
		pieces []string
		want   int
	}{
		{[]string{"<", "think", ">", "a", "b", "</", "think", ">"}, 2},
		{[]string{"<", "think", ">", "a<", "a", "</", "th", "ink", ">a"}, 2},
		{[]string{"<", "think>b", "</", "think>b"}, 1},                 // the piece that ends the tag is a thought too
		{[]string{"<", "th", "ink", ">a", "</", "th", "a"}, 4},         // no tag after all
		{[]string{"<", "th", "ink", ">", "</", "</", "think", ">"}, 1}, // one false start
	} {
		r := NewRouter(mustResolve(v, thinkTags), 1, Begin{})
		for _, p := range c.pieces {
			tok := v.Find(p)
			r.OnToken(tok, v.Piece(tok), false, false)
			r.check()
		}
		if r.ThinkTokens() != c.want {
			t.Errorf("%q: %d think tokens, want %d", c.pieces, r.ThinkTokens(), c.want)
		}
	}
}

func TestHarmony(t *testing.T) {
	v := bytesVocab([]string{"analysis", "final", "assistant"}, "<|start|>", "<|end|>", "<|channel|>", "<|message|>",
		"<|return|>")
	tags, err := Detect(v, Markers{}, "")
	if err != nil || !tags.Known() || !tags.Fallback() {
		t.Fatalf("%v %v", tags, err)
	}
	for _, c := range []struct{ prompt, text, think, answer string }{
		{"<|start|>user<|message|>hi<|end|><|start|>assistant",
			"<|channel|>analysis<|message|>hm, final<|end|><|start|>assistant<|channel|>final<|message|>yes",
			"hm, final", "yes"},
		{"<|start|>assistant", "<|channel|>final<|message|>yes<|end|>", "", "yes"},
		{"<|start|>assistant<|channel|>analysis<|message|>", "a<|channel|>final<|message|>b", "a", "b"},
		{"<|start|>assistant", "<|channel|>analysis<|message|>a<|end|>", "a", ""},
		{"<|start|>assistant", "hello<|end|>", "", "hello"},
	} {
		r := NewRouter(tags, 1, beginAfter(tags, v.tokens(c.prompt)))
		tr := run(v, &r, c.text)
		if tr.think.String() != c.think || tr.answer.String() != c.answer {
			t.Errorf("%q: think %q answer %q, want %q %q", c.text, &tr.think, &tr.answer, c.think, c.answer)
		}
	}
}

func TestDetect(t *testing.T) {
	plain := []string{"a", "<", ">", "/", "think", "[", "]", "THINK"}
	for _, c := range []struct {
		name     string
		v        *testVocab
		cfg      Markers
		template string
		open     string
		fallback bool
		suffix   string
	}{
		{"single tokens", newVocab(append(plain, "<think>", "</think>")), Markers{}, "", "<think>", false, "\n"},
		{"single tokens that are control tokens", newVocab(plain, "[THINK]", "[/THINK]"), Markers{}, "", "[THINK]",
			false, "\n"},
		{"what the template says before single tokens", newVocab(plain, "[THINK]", "[/THINK]"), Markers{},
			"<think></think>", "<think>", true, "\n"},
		{"spelled, because the template says so", newVocab(plain), Markers{}, "x<think>y</think>\n\n{{z}}", "<think>",
			true, "\n\n"},
		{"the template's escaped line breaks", newVocab(plain), Markers{}, `'<think>' + '</think>\n\n' }}</think>`,
			"<think>", true, "\n\n"},
		{"configured", newVocab(plain), Markers{[]string{"<a>"}, []string{"</a>"}}, "<think></think>", "<a>", true,
			"\n"},
		{"none", newVocab(plain), Markers{}, "you may <think>", "", false, ""},
	} {
		tags, err := Detect(c.v, c.cfg, c.template)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if tags.Known() != (c.open != "") || tags.Fallback() != c.fallback {
			t.Errorf("%s: known %v, fallback %v", c.name, tags.Known(), tags.Fallback())
		}
		if tags.Known() && (tags.Markers().Open[0] != c.open || tags.suffix != c.suffix) {
			t.Errorf("%s: %v, suffix %q", c.name, tags.Markers(), tags.suffix)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	v := newVocab([]string{"a", "b"})
	for _, c := range []struct {
		m    Markers
		want string
	}{
		{Markers{nil, []string{"a"}}, "open has 0 markers"},
		{Markers{[]string{"a"}, []string{""}}, "close[0] has 0 bytes"},
		{Markers{[]string{"a"}, []string{strings.Repeat("b", 129)}}, "close[0] has 129 bytes"},
		{Markers{[]string{"a"}, []string{"b", "a"}}, `"a" is in both open and close`},
		{Markers{[]string{"a"}, []string{"\xff"}}, "not UTF-8"},
		{Markers{[]string{"a"}, []string{"<x>"}}, "no token for this text"},
		{Markers{slices.Repeat([]string{"a"}, 9), []string{"b"}}, "9 markers"},
	} {
		if _, err := Resolve(v, c.m, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.m, err, c.want)
		}
	}
}

// spell cuts a text into pieces at the given places; the vocabulary is those pieces.
func splitAt(text string, cut func(i int) bool) (pieces []string) {
	begin := 0
	for i := 1; i <= len(text); i++ {
		if i == len(text) || cut(i) {
			pieces = append(pieces, text[begin:i])
			begin = i
		}
	}
	return pieces
}

// divide returns the thinking and the answer into which the router must split a text, found from the text as a whole.
func divide(text string, m Markers, blocks int) (think, answer string) {
	first := func(s string, texts []string) (at, size int) {
		at = -1
		for _, x := range texts {
			// The earliest end wins, then the longest.
			if i := strings.Index(s, x); i >= 0 && (at < 0 || i+len(x) < at+size || i+len(x) == at+size &&
				len(x) > size) {
				at, size = i, len(x)
			}
		}
		return at, size
	}
	phase, opened := Prefill, 0
	after, seen := false, false // a tag; text of the answer
	show := func(part string) {
		if !seen {
			for i := range len(part) {
				if !strings.ContainsRune(" \n\t\r", rune(part[i])) {
					seen = true
					break
				}
			}
		}
		answer += part
	}
	done := func() (string, string) {
		trimmed := strings.TrimLeft(answer, " \n\t\r")
		lead := answer[:len(answer)-len(trimmed)]
		if after {
			lead = lead[strings.LastIndexByte(lead, '\n')+1:]
			if trimmed == "" {
				lead = ""
			}
		}
		return think, lead + trimmed
	}
	for {
		var at, size int
		var opens bool
		switch phase {
		case Prefill:
			at, size = first(text, append(slices.Clone(m.Open), m.Close...))
			if at >= 0 {
				opens = slices.Contains(m.Open, text[at:at+size])
			}
			if s := strings.TrimLeft(text, " \n\t\r"); at < 0 && s != "" || at >= 0 &&
				strings.Trim(text[:at], " \n\t\r") != "" {
				phase = OutputDecode
				continue
			}
		case ThinkDecode:
			at, size = first(text, m.Close)
		case OutputDecode:
			at, opens = -1, true
			if 0 < opened && opened < blocks {
				at, size = first(text, m.Open)
			}
		}
		part := text
		if at >= 0 {
			part = text[:at]
		}
		if phase == ThinkDecode {
			think += part
		} else {
			show(part)
		}
		if at < 0 {
			return done()
		}
		after = true
		if !seen {
			answer = ""
		}
		text, phase = text[at+size:], OutputDecode
		if opens {
			phase = ThinkDecode
			opened++
		}
	}
}

func checkSplit(t interface {
	Fatalf(string, ...any)
	Helper()
}, text string, m Markers, blocks int, cut func(i int) bool) {
	t.Helper()
	pieces := splitAt(text, cut)
	v := bytesVocab(pieces)
	tags := mustResolve(v, m)
	if !tags.Fallback() || len(tags.specials) > 0 {
		return // a piece happens to be the whole tag: other rules
	}
	r := NewRouter(tags, blocks, Begin{})
	var tr transcript
	for _, p := range pieces {
		tok := v.Find(p)
		tr.add(r.OnToken(tok, v.Piece(tok), false, false))
		r.check()
	}
	think, answer := r.Flush()
	tr.add(Step{Think: think, Answer: answer})
	if wantThink, wantAnswer := divide(text, m, blocks); tr.think.String() != wantThink ||
		tr.answer.String() != wantAnswer {
		t.Fatalf("%q: think %q answer %q, want %q %q", pieces, &tr.think, &tr.answer, wantThink, wantAnswer)
	}
	if n := r.ThinkTokens(); n < 0 || n > len(pieces) || tr.think.Len() > 0 && n == 0 {
		t.Fatalf("%q: %d think tokens for thought %q", pieces, n, &tr.think)
	}
}

// TestTagSplitEverywhere cuts a conversation at every pair of places.
func TestTagSplitEverywhere(t *testing.T) {
	for _, m := range []Markers{thinkTags, {[]string{"[T]", "<t>"}, []string{"]]>", "</t>", "[/T]"}},
		{[]string{"aab"}, []string{"aaab", "bb"}}} {
		text := "\n" + m.Open[0] + "x" + m.Close[0][:2] + "y" + m.Open[0] + m.Close[0] + "z" + m.Open[0] + m.Close[0]
		for i := range len(text) {
			for j := range i + 1 {
				checkSplit(t, text, m, 1+j%2, func(k int) bool { return k == i || k == j })
			}
		}
		checkSplit(t, text, m, 1, func(int) bool { return true })
	}
}

func FuzzTagSplit(f *testing.F) {
	f.Add("<think>a</think>b", "<think>", "</think>", uint64(1))
	f.Add("x<t<t>a</t></t>", "<t>", "</t>", uint64(0b10110))
	f.Add("aaabaab", "ab", "aab", uint64(5))
	f.Fuzz(func(t *testing.T, text, open, shut string, cuts uint64) {
		m := Markers{[]string{open}, []string{shut}}
		if m.validate() != nil || len(text) > 200 {
			return
		}
		rnd := rand.New(rand.NewPCG(cuts, 0))
		checkSplit(t, text, m, 1+int(cuts%3), func(int) bool { return rnd.IntN(3) > 0 })
	})
}

func TestTagSplitProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := rapid.StringOfN(rapid.RuneFrom([]rune("ab<")), 1, 5, -1)
		m := Markers{rapid.SliceOfN(tag, 1, 3).Draw(t, "open"), rapid.SliceOfN(tag, 1, 3).Draw(t, "close")}
		if m.validate() != nil {
			t.Skip("a text that opens and closes")
		}
		parts := append(append([]string{"a", "b", "<", " "}, m.Open...), m.Close...)
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 20).Draw(t, "text"), "")
		cuts := rapid.SliceOfN(rapid.Bool(), len(text)+1, len(text)+1).Draw(t, "cuts")
		checkSplit(t, text, m, rapid.IntRange(1, 3).Draw(t, "blocks"), func(i int) bool { return cuts[i] })
	})
}

// TestMatcher holds the automaton to a search of each marker at each end.
func TestMatcher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 6, -1)
		open, shut := rapid.SliceOfN(tag, 1, 3).Draw(t, "open"), rapid.SliceOfN(tag, 1, 3).Draw(t, "close")
		all := append(slices.Clone(open), shut...)
		var marks []mark
		for _, s := range all {
			marks = append(marks, mark{s, markHidden})
		}
		m := newMatcher(marks...)
		state, text := uint16(0), ""
		for i, b := range []byte(rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 40, -1).Draw(t, "text")) {
			text += string(b)
			state = m.next[state][b]
			depth, match := 0, 0
			for _, x := range all {
				for n := 1; n <= len(x); n++ {
					if strings.HasSuffix(text, x[:n]) {
						depth = max(depth, n)
						if n == len(x) {
							match = max(match, n)
						}
					}
				}
			}
			if got := m.node[state]; got.depth != depth || got.match != match {
				t.Fatalf("after %q (%d): %+v, want depth %d match %d", text, i, got, depth, match)
			}
		}
	})
}

// TestRouterMonotone: with one block a turn no phase comes back.
func TestRouterMonotone(t *testing.T) {
	for name, v := range map[string]*testVocab{"single": singles, "spelled": spelled} {
		tags := mustResolve(v, thinkTags)
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			tok := rapid.Int32Range(0, int32(v.Size())-1)
			r := NewRouter(tags, 1, beginAfter(tags, rapid.SliceOfN(tok, 0, 8).Draw(t, "prompt")))
			p := r.Phase()
			for _, x := range rapid.SliceOf(tok).Draw(t, "tokens") {
				r.OnToken(x, v.Piece(x), v.Text(x) == eog, false)
				r.check()
				if r.Phase() < p {
					t.Fatalf("went back from %v to %v", p, r.Phase())
				}
				p = r.Phase()
			}
		}))
	}
}

func TestRouterWithoutTags(t *testing.T) {
	r := NewRouter(nil, 1, Begin{})
	if s := r.OnToken(0, []byte(" "), false, false); string(s.Answer) != " " || r.Phase() != OutputDecode {
		t.Fatalf("%+v in %v", s, r.Phase())
	}
	if s := r.OnToken(0, nil, true, false); s.Event != Completed || r.Phase() != Complete {
		t.Fatalf("%+v in %v", s, r.Phase())
	}
}

func ExampleRouter() {
	v := spelled
	tags, _ := Detect(v, Markers{}, "<think>…</think>")
	r := NewRouter(tags, 1, Begin{})
	for _, p := range []string{"<", "think>b", ".", "</", "th", "ink", ">a"} {
		s := r.OnToken(v.Find(p), []byte(p), false, false)
		fmt.Printf("%-8q think %-4q answer %-4q %v\n", p, s.Think, s.Answer, r.Phase())
	}
	// Output:
	// "<"      think ""   answer ""   prefill
	// "think>b" think "b"  answer ""   think_decode
	// "."      think "."  answer ""   think_decode
	// "</"     think ""   answer ""   think_decode
	// "th"     think ""   answer ""   think_decode
	// "ink"    think ""   answer ""   think_decode
	// ">a"     think ""   answer "a"  output_decode
}
