package gbnf

import (
	"errors"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
)

// bytesOnly is a vocabulary of a token a byte.
var bytesOnly = func() *grammar.Vocabulary {
	pieces := make([][]byte, 256)
	for b := range pieces {
		pieces[b] = []byte{byte(b)}
	}
	return grammar.NewVocabulary(pieces, nil)
}()

func compile(text string) (*grammar.Matcher, error) {
	b := grammar.NewBuilder(grammar.Limits{Nodes: 20_000, Expressions: 20_000, States: 2_000})
	root, err := Parse(b, text)
	if err != nil {
		return nil, err
	}
	g, err := b.Build(root)
	if err != nil {
		return nil, err
	}
	return grammar.NewMatcher(g, bytesOnly), nil
}

func matches(m *grammar.Matcher, text string) bool {
	m.Reset()
	return m.AcceptBytes([]byte(text)) == nil && m.MayEnd()
}

const arithmetic = `
# sums and products, as people write them
root  ::= sum "\n"
sum   ::= product ([-+] product)*
product ::= (
    atom | # a comment inside
    "-" atom
  ) ("*"
  product)?
atom  ::= [0-9]{1,3} | "(" sum ")"`

// TestSyntax: every form of the notation, by texts that it has and has not.
func TestSyntax(t *testing.T) {
	for _, c := range []struct {
		name, grammar string
		yes, no       []string
	}{
		{"literal and escapes", `root ::= "a\"\\\n\t\r\x41\u00e4\U0001F600[]"`, []string{"a\"\\\n\t\rAä😀[]"},
			[]string{"a"}},
		{"class", `root ::= [a-cx\]\[^-]+`, []string{"abcx][^-", "-"}, []string{"d", "", "a d"}},
		{"negated class", `root ::= [^a-c\n]`, []string{"d", "ä", "^"}, []string{"a", "\n", "dd", ""}},
		{"dash at the ends", `root ::= [-a]{2} [a-]{2}`, []string{"-a-a", "aa--"}, []string{"bbbb"}},
		{"any", `root ::= . .`, []string{"ab", "ä\n", "😀😀"}, []string{"a", "abc"}},
		{"alternatives, one empty", `root ::= "a" | | "b" "c"`, []string{"a", "", "bc"}, []string{"b", "abc"}},
		{"repetitions", `root ::= "a"? "b"* "c"+ "d"{2} "e"{1,} "f"{0,2}`, []string{"cdde", "abbccddeeeff"},
			[]string{"adde", "cde", "cddefff", "cdd"}},
		{"of a literal as a whole", `root ::= "ab"{2}`, []string{"abab"}, []string{"abb", "ab"}},
		{"of a repetition", `root ::= "a"+? "b"`, []string{"b", "aab"}, []string{"a"}},
		{"of a group", `root ::= ("a" | "b" root)* "."`, []string{".", "ab..", "aa."}, []string{"b."}},
		{"spaces in a count", `root ::= "a"{ 1 , 3 } "b"`, []string{"ab", "aaab"}, []string{"aaaab", "b"}},
		{"a large count", `root ::= "a"{0,100000} "b"`, []string{"b", strings.Repeat("a", 5000) + "b"}, []string{"a"}},
		{"rules in any order", "root ::= x\ny-2 ::= \"b\"\nx ::= \"a\" y-2", []string{"ab"}, []string{"a"}},
		{"the last definition counts", "root ::= x\nx ::= \"a\"\nx ::= \"b\"", []string{"b"}, []string{"a"}},
		{"line ends behind ::= and |", "root ::=\r\n \"a\" |\n  \"b\"\r\n\r\n# end", []string{"a", "b"}, nil},
		{"recursion", `root ::= "(" root ")" | "x"`, []string{"x", "((x))"}, []string{"((x)", "()"}},
		{"left recursion", `root ::= root "+" [0-9] | [0-9]`, []string{"1", "1+2+3"}, []string{"+1", "1+"}},
		{"an empty literal and class", `root ::= "" "a" [] "b"`, []string{"ab"}, []string{"a"}},
		{"a rule of nothing", "root ::= x \"a\"\nx ::=", []string{"a"}, []string{""}},
		{"arithmetic", arithmetic, []string{"1+2*3\n", "-(1-22)*-4*5\n"}, []string{"1+\n", "1+2", "--1\n", "1234\n"}},
		{"a surrogate is no character", `root ::= [\uD800a]`, []string{"a"}, []string{"\xed\xa0\x80"}},
	} {
		m, err := compile(c.grammar)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range c.yes {
			if !matches(m, text) {
				t.Errorf("%s: %.40q is rejected", c.name, text)
			}
		}
		for _, text := range c.no {
			if matches(m, text) {
				t.Errorf("%s: %.40q is accepted", c.name, text)
			}
		}
	}
}

// TestErrors: what is no grammar is refused with its kind and place.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		grammar string
		kind    error
		names   string
	}{
		{``, grammar.ErrUndefined, `"root"`},
		{`x ::= "a"`, grammar.ErrUndefined, `"root"`},
		{`root ::= y`, grammar.ErrUndefined, `"y"`},
		{"root ::= \"a\"\n= b", ErrSyntax, "line 2, column 1"},
		{`root = "a"`, ErrSyntax, "::="},
		{`root ::= "a`, ErrSyntax, "ends inside"},
		{`root ::= [a`, ErrSyntax, "ends inside"},
		{`root ::= "\q"`, ErrSyntax, `\q`},
		{`root ::= "\x4"`, ErrSyntax, "hexadecimal"},
		{`root ::= "\UFFFFFFFF"`, ErrSyntax, "code point"},
		{`root ::= ("a"`, ErrSyntax, ")"},
		{`root ::= "a")`, ErrSyntax, "line end"},
		{`root ::= *`, ErrSyntax, "repetition of nothing"},
		{`root ::= ""*`, ErrSyntax, "repetition of nothing"},
		{`root ::= "a"{2,1}`, ErrSyntax, "{2,1}"},
		{`root ::= "a"{x}`, ErrSyntax, "count"},
		{`root ::= "a"{99999999999}`, ErrSyntax, "count"},
		{`root ::= "a"{1`, ErrSyntax, "}"},
		{"root ::= \"a\"\n  | \"b\"", ErrSyntax, "line 2"},
		{`root ::= <[5]>`, ErrUnsupported, "token"},
		{`root ::= !<x>`, ErrUnsupported, "token"},
		{"root ::= \"\xff\"", ErrSyntax, "UTF-8"},
		{`root ::= "a" root`, grammar.ErrEmpty, ""},
		{"root ::= a \"x\" | \"y\"\na ::= root | \"z\"", grammar.ErrLeftRecursion, ""},
		{"root ::= " + strings.Repeat("(", 300) + `"a"` + strings.Repeat(")", 300), grammar.ErrLimit, "200"},
		{"root ::= " + strings.Repeat(`"a" `, 30_000), grammar.ErrLimit, "Nodes"},
		{strings.Repeat("#", 2<<20), grammar.ErrLimit, "bytes"},
	} {
		_, err := compile(c.grammar)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%.40q: %v, want %v that names %q", c.grammar, err, c.kind, c.names)
		}
	}
}

// FuzzParse: no grammar panics, every error has its kind, and what compiles can be walked to an end of its texts.
func FuzzParse(f *testing.F) {
	f.Add(arithmetic)
	for _, s := range []string{`root ::= root "+" [0-9] | [0-9]`, "root ::= x\nx ::= (x | \"a\"{2,3})* .",
		`root ::= [^\]a-z]{3,} "\u00e4"?`, `root ::= <[1]>`, "root ::= |"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 {
			return
		}
		m, err := compile(text)
		if err != nil {
			for _, kind := range []error{ErrSyntax, ErrUnsupported, grammar.ErrUndefined, grammar.ErrLimit,
				grammar.ErrEmpty, grammar.ErrLeftRecursion} {
				if errors.Is(err, kind) {
					return
				}
			}
			t.Fatalf("an error of no kind: %v", err)
		}
		for range 50 {
			mask := m.Mask()
			if m.Err() != nil {
				return
			}
			next := int32(-1)
			for b := int32(255); b >= 0; b-- {
				if mask[b/32]>>(b%32)&1 != 0 {
					next = b
				}
			}
			if next < 0 {
				if !m.MayEnd() {
					t.Fatalf("a dead end in %q", text)
				}
				return
			}
			if err := m.Accept(next); err != nil {
				t.Fatalf("the mask has %d: %v", next, err)
			}
		}
	})
}
