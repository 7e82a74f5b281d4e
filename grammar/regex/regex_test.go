package regex

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// texts are all texts over alphabet of up to n letters.
func texts(alphabet string, n int) []string {
	out := []string{""}
	for from := 0; n > 0; n-- {
		end := len(out)
		for _, t := range out[from:end] {
			for _, r := range alphabet {
				out = append(out, t+string(r))
			}
		}
		from = end
	}
	return out
}

// language is a set of texts of up to maxText letters, for the definition of every operator.
type language map[string]bool

const maxText = 5

func (l language) concat(m language) language {
	out := language{}
	for a := range l {
		for b := range m {
			if len(a)+len(b) <= maxText {
				out[a+b] = true
			}
		}
	}
	return out
}

// randomExpr returns an expression and, by definition, its texts over {a,b} of up to maxText letters.
func randomExpr(r *rand.Rand, s *Set, all []string, depth int) (Expr, language) {
	sub := func() (Expr, language) { return randomExpr(r, s, all, depth-1) }
	op := r.IntN(9)
	if depth == 0 {
		op = r.IntN(3)
	}
	switch op {
	case 0:
		t := all[r.IntN(20)]
		return s.Literal(t), language{t: true}
	case 1:
		return s.Bytes(ByteOf("ab")), language{"a": true, "b": true}
	case 2:
		return s.Byte('a'), language{"a": true}
	case 3, 4:
		a, la := sub()
		b, lb := sub()
		return s.Concat(a, b), la.concat(lb)
	case 5:
		a, la := sub()
		b, lb := sub()
		out := language{}
		for t := range la {
			out[t] = true
		}
		for t := range lb {
			out[t] = true
		}
		return s.Or(a, b), out
	case 6:
		a, la := sub()
		b, lb := sub()
		out := language{}
		for t := range la {
			if lb[t] {
				out[t] = true
			}
		}
		return s.And(a, b), out
	case 7:
		a, la := sub()
		out := language{}
		for _, t := range all {
			if !la[t] {
				out[t] = true
			}
		}
		return s.Not(a), out
	}
	a, la := sub()
	lo := r.IntN(3)
	hi := []int{Unbounded, lo, lo + 1, lo + 3}[r.IntN(4)]
	out, now := language{}, language{"": true}
	for n := 0; n <= lo+maxText+1 && (hi < 0 || n <= hi); n++ {
		if n >= lo {
			for t := range now {
				out[t] = true
			}
		}
		now = now.concat(la)
	}
	return s.Repeat(a, lo, hi), out
}

// TestOperators compares random expressions with the sets of texts that their definitions give, and says of every
// prefix whether it can be completed.
func TestOperators(t *testing.T) {
	all := texts("ab", maxText)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := NewSet(Limits{})
		e, want := randomExpr(r, s, all, 4)
		empty, err := s.IsEmpty(e)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if empty && len(want) > 0 {
			t.Fatalf("seed %d: said to be empty, has %v", seed, want)
		}
		for _, text := range all {
			if got := s.Match(e, []byte(text)); got != want[text] {
				t.Fatalf("seed %d: %q: %v, want %v", seed, text, got, want[text])
			}
			d := e
			for i := range len(text) {
				d = s.Derive(d, text[i])
			}
			if text == "" {
				continue
			}
			if d == 0 && slices.ContainsFunc(all, func(x string) bool {
				return strings.HasPrefix(x, text) &&
					want[x]
			}) {
				t.Fatalf("seed %d: %q is a dead end and begins a text", seed, text)
			}
			if d != 0 {
				if empty, err := s.IsEmpty(d); empty || err != nil {
					t.Fatalf("seed %d: %q leads to an empty state (%v)", seed, text, err)
				}
			}
		}
		if n := s.MaxLen(e); n >= 0 {
			for text := range want {
				if len(text) > n {
					t.Fatalf("seed %d: %q is longer than %d", seed, text, n)
				}
			}
		}
		if ne := s.NonEmpty(e); s.Nullable(ne) || s.Match(ne, []byte("ab")) != want["ab"] {
			t.Fatalf("seed %d: NonEmpty", seed)
		}
	}
}

// patternParts make patterns that Go's regexp reads as RE2.
var patternParts = []string{"a", "b", "ä", "[ab]", "[^a]", ".", `\d`, `\w`, `\W`, `\.`, "(a|b)", "(?:ab|b)", "x?", "a*",
	"b+", "a{2}", "[a-c]{1,2}", "(ab)*", "(a|)", `[\d.]`, "^", "$", `\x61`, "[^\\n]", "(?i:A)", "(?i)", `\pL`,
	`[[:alpha:]]`, "|"}

// TestPatternsAgainstGo compares random patterns with Go's regexp: as a whole, and anywhere in the text.
func TestPatternsAgainstGo(t *testing.T) {
	letters := []string{"a", "b", "ä", "A", "x", ".", "1", " ", "-", "é", "_"}
	compared, matched := 0, 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 2))
		var b strings.Builder
		for range 1 + r.IntN(5) {
			p := patternParts[r.IntN(len(patternParts))]
			if seed%2 == 0 && strings.HasPrefix(p, "[[") {
				continue // RE2's alone
			}
			b.WriteString(p)
		}
		pattern, flavour := b.String(), []Flavour{ECMA, Whole}[seed%2]
		whole := pattern
		if flavour == Whole {
			whole = "^(?:" + pattern + ")$"
		}
		re, err := regexp.Compile(whole)
		if err != nil {
			continue
		}
		s := NewSet(Limits{})
		e, err := s.Parse(pattern, flavour)
		if errors.Is(err, ErrUnsupported) || errors.Is(err, ErrSyntax) && strings.Contains(err.Error(), "quantifier") {
			continue // ^* and the like
		}
		if err != nil {
			t.Fatalf("%q: %v", pattern, err)
		}
		for range 40 {
			text := ""
			for range r.IntN(6) {
				text += letters[r.IntN(len(letters))]
			}
			want := re.MatchString(text)
			if got := s.Match(e, []byte(text)); got != want {
				t.Fatalf("%q on %q (%q, flavour %d): %v, want %v", pattern, text, whole, flavour, got, want)
			}
			if compared++; want {
				matched++
			}
		}
	}
	if compared < 50_000 || matched < compared/20 {
		t.Fatalf("%d compared, %d matched", compared, matched)
	}
}

// TestECMA: what only ECMA-262 has, and where it is anchored.
func TestECMA(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		yes, no  []string
		mustFail string
	}{
		{pattern: `^(?=.*\d)(?=.*[a-z]).{3,5}$`, yes: []string{"a1b", "1aaaa"},
			no: []string{"abc", "123", "a1", "a1bcde"}},
		{pattern: `^(?!foo)[a-z]+$`, yes: []string{"bar", "fo", "xfoo"}, no: []string{"foo", "foobar", ""}},
		{pattern: `^(?!.*--)[a-z-]+$`, yes: []string{"a-b", "ab"}, no: []string{"a--b", "--"}},
		{pattern: `a(?!b)`, yes: []string{"a", "ac", "xab a"}, no: []string{"ab", "b"}},
		{pattern: `^a|b$`, yes: []string{"ax", "xb", "a"}, no: []string{"xa", "bx"}},
		{pattern: `^$|^[ab]+$`, yes: []string{"", "ab"}, no: []string{"c"}},
		{pattern: `(^|,)x(,|$)`, yes: []string{"x", "a,x", "x,b", "a,x,b"}, no: []string{"ax", "xa", ""}},
		{pattern: `\u00e4\u{1F600}\x41\cJ`, yes: []string{"ä😀A\n"}, no: []string{"ä😀A"}},
		{pattern: `^\ud83d\ude00$`, yes: []string{"😀"}, no: []string{"x"}},
		{pattern: `^[\s\S]{2}$`, yes: []string{"a\n", "  "}, no: []string{"a"}},
		{pattern: `^\S+$`, yes: []string{"ab"}, no: []string{"a b", "a\u00a0", ""}},
		{pattern: `^\p{Lu}\p{Script=Greek}[\P{L}]$`, yes: []string{"Aα1"}, no: []string{"aα1", "AA1", "Aαx"}},
		{pattern: `^[^]$`, yes: []string{"x", "\n"}, no: []string{""}},
		{pattern: `[]`, no: []string{"", "x"}},
		{pattern: `^a{,3}$`, yes: []string{"a{,3}"}, no: []string{"aa"}},
		{pattern: `^\/\-\_$`, mustFail: ""},
		{pattern: `^.$`, yes: []string{"x", "ä"}, no: []string{"\n", "\r", "\u2028"}},
		{pattern: `x`, yes: []string{"axb", "x\n", "\nx"}, no: []string{"ab"}},
		{pattern: `(a)\1`, mustFail: "backreference"},
		{pattern: `(?<=a)b`, mustFail: "lookbehind"},
		{pattern: `\bfoo`, mustFail: "word boundary"},
		{pattern: `(a`, mustFail: ")"},
		{pattern: `a)`, mustFail: ")"},
		{pattern: `*a`, mustFail: "quantifier"},
		{pattern: `a{3,2}`, mustFail: "{3,2}"},
		{pattern: `[z-a]`, mustFail: "order"},
		{pattern: `[a`, mustFail: "]"},
		{pattern: `\p{Nope}`, mustFail: "Nope"},
		{pattern: `\`, mustFail: "backslash"},
		{pattern: `\Z`, mustFail: `\Z`},
		{pattern: `\u{`, mustFail: "hexadecimal"},
		{pattern: `a\x{12`, mustFail: "hexadecimal"},
		{pattern: `\u{}`, mustFail: "hexadecimal"},
		{pattern: `\u{110000}`, mustFail: "hexadecimal"},
		{pattern: strings.Repeat("(", 200) + strings.Repeat(")", 200), mustFail: "Depth"},
	} {
		s := NewSet(Limits{})
		e, err := s.Parse(c.pattern, ECMA)
		if c.mustFail != "" {
			if err == nil || !strings.Contains(err.Error(), c.mustFail) {
				t.Errorf("%.40q: %v, want an error that names %q", c.pattern, err, c.mustFail)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		for _, text := range c.yes {
			if !s.Match(e, []byte(text)) {
				t.Errorf("%q does not match %q", c.pattern, text)
			}
		}
		for _, text := range c.no {
			if s.Match(e, []byte(text)) {
				t.Errorf("%q matches %q", c.pattern, text)
			}
		}
	}
}

// TestJSONString compares JSONString with a decoder: for random expressions and random JSON strings, with every kind of
// escape and with broken ones.
func TestJSONString(t *testing.T) {
	patterns := []string{`[a-cä😀]*`, `.{0,3}`, `a\n?b*`, `[^a]+`, `(?:é|"|\\)*`, `[\x{10000}-\x{10ffff}]{1,2}`,
		`/[\x00-\x1f]`, `[\s\S]*`}
	pieces := []string{"a", "b", "ä", "😀", `\n`, `\"`, `\\`, `\/`, `/`, `\u0061`, `\u00e4`, `\u00E4`, `\ud83d\ude00`,
		`\uD83D\uDE00`, `\u000a`, "\n", `"`, `\x`, `\ud83d`, `\ude00`, `\u12`, "é", `\t`, `\u00e9`}
	matched := 0
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := NewSet(Limits{})
		e, err := s.Parse(patterns[r.IntN(len(patterns))], Whole)
		if err != nil {
			t.Fatal(err)
		}
		if seed%3 == 0 {
			e = s.And(e, s.Not(s.Literal("ab")))
		}
		text := ""
		for range r.IntN(4) {
			text += pieces[r.IntN(len(pieces))]
		}
		var decoded string
		want := json.Unmarshal([]byte(`"`+text+`"`), &decoded) == nil &&
			!strings.ContainsRune(decoded, utf8.RuneError) && s.Match(e, []byte(decoded))
		if got := s.Match(s.JSONString(e), []byte(text)); got != want {
			t.Fatalf("seed %d: %q: %v, want %v", seed, text, got, want)
		}
		if want {
			matched++
		}
		d := s.JSONString(e)
		for i := range len(text) {
			if d = s.Derive(d, text[i]); d != 0 {
				if empty, err := s.IsEmpty(d); empty || err != nil {
					t.Fatalf("seed %d: %q leads to an empty state (%v)", seed, text[:i+1], err)
				}
			}
		}
	}
	if matched < 500 {
		t.Fatalf("only %d texts matched", matched)
	}
}

// TestMultipleOf compares MultipleOf with exact arithmetic.
func TestMultipleOf(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := NewSet(Limits{})
		scale := r.IntN(5)
		n := 1 + r.Uint64N([]uint64{3, 100, 1 << 40, 1 << 59}[r.IntN(4)])
		e := s.MultipleOf(n, scale)
		text := fmt.Sprint(r.IntN(1000))
		if r.IntN(2) == 0 { // a multiple, most likely
			v := new(big.Rat).SetFrac(new(big.Int).SetUint64(n*uint64(r.IntN(30))),
				new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
			text = v.FloatString(scale + r.IntN(3))
		} else if r.IntN(2) == 0 {
			text += fmt.Sprintf(".%0*d", 1+r.IntN(5), r.IntN(1000))
		}
		v, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		v.Mul(v, new(big.Rat).SetFrac(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil),
			new(big.Int).SetUint64(n)))
		if got := s.Match(e, []byte(text)); got != v.IsInt() {
			t.Fatalf("seed %d: %s is a multiple of %d/10^%d: %v, want %v", seed, text, n, scale, got, v.IsInt())
		}
		for _, bad := range []string{"", ".5", "1.", "-1", "1e2", "0x"} {
			if s.Match(e, []byte(bad)) {
				t.Fatalf("%q is a numeral", bad)
			}
		}
	}
}

// TestAbsorbs: what an expression is said to absorb it reads, whatever the characters are.
func TestAbsorbs(t *testing.T) {
	alphabet := [NumClasses][]string{Word: {"a", "Z", "0", "_", "-"},
		Plain: {"a", " ", "ä", "€", "😀", ".", "\u2027", "\u202a", "~", "0"}}
	patterns := []string{`.*`, `.{0,9}`, `[^\n]{2,4}`, `\w+`, `[\w-]*`, `[\w-]{1,20}x`, `[\s\S]*z`, `a[\s\S]*`, `[^a]*`,
		`(?:[\w-]|\.)*`, `.{5}|[\w-]*`}
	found := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := NewSet(Limits{})
		e, err := s.Parse(patterns[r.IntN(len(patterns))], []Flavour{ECMA, Whole}[r.IntN(2)])
		if err != nil {
			t.Fatal(err)
		}
		switch r.IntN(4) {
		case 0:
			e = s.Minus(e, s.Literals([]string{"a", "abc", "Z0"}))
		case 1:
			e = s.JSONString(e)
		case 2:
			e = s.Concat(s.JSONString(s.Minus(e, s.Literal("aaa"))), s.Literal(`"`))
		}
		for c := range NumClasses {
			n := s.Absorbs(e, c)
			if n == 0 {
				continue
			}
			found++
			d, text := e, ""
			for range min(n, 8) {
				letter := alphabet[c][r.IntN(len(alphabet[c]))]
				text += letter
				for i := range len(letter) {
					d = s.Derive(d, letter[i])
				}
			}
			if d == 0 {
				t.Fatalf("seed %d: absorbs %d characters of class %d, but not %q", seed, n, c, text)
			}
		}
	}
	if found < 1000 {
		t.Fatalf("only %d absorb anything", found)
	}
}

// TestLimits: what is too large is refused by the limit's name, and the Set stays usable.
func TestLimits(t *testing.T) {
	s := NewSet(Limits{Expressions: 100})
	s.Literal(strings.Repeat("abcdefghij", 50))
	if err := s.Err(); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "Expressions") {
		t.Errorf("%v", err)
	}
	if s.Match(s.Literal("x"), []byte("y")) {
		t.Error("matches")
	}
	s = NewSet(Limits{PatternBytes: 10})
	if _, err := s.Parse(strings.Repeat("a", 11), ECMA); !errors.Is(err, ErrLimit) ||
		!strings.Contains(err.Error(), "PatternBytes") {
		t.Errorf("%v", err)
	}
	// An intersection that is empty for a reason that lies far away.
	s = NewSet(Limits{Steps: 100})
	ab := s.Bytes(ByteOf("ab"))
	far := s.And(s.Concat(s.Star(ab), s.Byte('a'), s.Repeat(ab, 30, 30)),
		s.Concat(s.Star(ab), s.Byte('b'), s.Repeat(ab, 30, 30)))
	if _, err := s.IsEmpty(far); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "Steps") {
		t.Errorf("%v", err)
	}
	s = NewSet(Limits{})
	if s.Repeat(s.Byte('a'), 1<<40, Unbounded); s.Err() == nil {
		t.Error("a repetition of 2^40 is not refused")
	}
}

// FuzzParse: no pattern panics or takes long, and one that Go reads too matches the same texts.
func FuzzParse(f *testing.F) {
	for _, p := range append(patternParts, `^(?=a)[^\s\S]{3}(?!b|$)\u{1F600}`, `((((a*)*)*)*)*`, `[\w--z]`, `(?i)[^k]`,
		`a{1000000}b`) {
		f.Add(p, "ab a", true)
		f.Add(p, "ä1", false)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, whole bool) {
		if len(pattern) > 200 || len(text) > 50 {
			return
		}
		s := NewSet(Limits{Expressions: 20_000, Steps: 2_000})
		flavour := ECMA
		if whole {
			flavour = Whole
		}
		e, err := s.Parse(pattern, flavour)
		if err != nil {
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrLimit) {
				t.Fatalf("%q: an error of no kind: %v", pattern, err)
			}
			return
		}
		got := s.Match(e, []byte(text))
		if s.Err() != nil || !whole || !utf8.ValidString(text) || strings.ContainsAny(pattern, `\.^$[]()`) {
			return // the flavours differ in classes, anchors and flags
		}
		re, err := regexp.Compile("^(?:" + pattern + ")$")
		if err == nil && re.MatchString(text) != got {
			t.Fatalf("%q on %q: %v", pattern, text, got)
		}
	})
}
