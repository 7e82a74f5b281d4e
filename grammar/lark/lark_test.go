package lark

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
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
	l := grammar.Limits{Nodes: 20_000, Expressions: 20_000, States: 2_000, Work: 200_000}
	b := grammar.NewBuilder(l)
	root, err := Parse(b, text, jsonschema.Limits{Grammar: l})
	if err != nil {
		return nil, err
	}
	g, err := b.Build(root)
	if err != nil {
		return nil, err
	}
	return grammar.NewMatcher(g, bytesOnly), nil
}

const arithmetic = `%llguidance {"no_forcing": true}
// sums and products
?start: product
      | start "+" product -> add   # an alias
      | start "-" product
!product.2: atom ("*" atom)*
atom[capture="x"]: NUMBER | "(" start ")"
%import common.NUMBER
%import common (WS_INLINE)
%ignore WS_INLINE
`

func TestSyntax(t *testing.T) {
	for _, c := range []struct {
		name, grammar string
		yes, no       []string
	}{
		{"literals", `start: "a\"\\\n\x41\u00e4" "bC"i`, []string{"a\"\\\nAäbc", "a\"\\\nAäBC"}, []string{"a"}},
		{"a range", `start: "a".."c"+`, []string{"a", "abc"}, []string{"d", ""}},
		{"a regular expression", `start: /a\/[b-d]{2}/ /x./is`, []string{"a/bcX\n"}, []string{"a/bx."}},
		{"groups", `start: ("a" | "b") ["c"] "."`, []string{"a.", "bc."}, []string{"c.", "acc."}},
		{"repetitions", `start: "a"? "b"* "c"+ "d"~2 "e"~1..2 "f"{2} "g"{1,} "h"{,1}`,
			[]string{"cddeffg", "abbccddeeffggh"}, []string{"cdeffg", "cddeffghh"}},
		{"alternatives over lines", "start: A\n  | B\n\n  | \"c\"\nA: \"a\"\nB: A A", []string{"a", "aa", "c"},
			[]string{"", "b"}},
		{"JSON's literals", `start: "\ud83d\ude00" "a\/b"`, []string{"😀a/b"}, []string{"a/b"}},
		{"blanks before a repetition", `start: "a" ~ 2 "b" ~2..3 "c" * "d" ?`, []string{"aabb", "aabbbccd"},
			[]string{"abb", "aab"}},
		{"names with hyphens", "start: my-rule\nmy-rule: \"a\" -> x", []string{"a"}, []string{"b"}},
		{"groups over lines", "start: (\n \"a\"\n | \"b\"\n)+\nx: \"y\"", []string{"ab"}, []string{"y"}},
		{"recursion", `start: "(" start ")" | "x"`, []string{"((x))"}, []string{"(x"}},
		{"a name of a terminal with _", "start: _A\n_A: \"a\"", []string{"a"}, []string{"b"}},
		{"an import by another name", "%import common.INT -> N\nstart: N", []string{"12"}, []string{"-1", "x"}},
		{"a schema", `start: "<" %json {"type":"integer","minimum":3} ">"`, []string{"<3>", "<12>"}, []string{"<2>"}},
		{"nothing is ignored within a terminal", "start: A A\nA: \"a\" \"b\"\n%ignore \" \"", []string{" ab  ab "},
			[]string{"a bab"}},
		{"arithmetic", arithmetic, []string{"1+2*3", "( 1.5 - 2 ) * 4"}, []string{"1+", "*2", "1 2"}},
	} {
		if !Is(c.grammar) {
			t.Errorf("%s: it is not taken for Lark", c.name)
		}
		m, err := compile(c.grammar)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range append(append([]string(nil), c.yes...), c.no...) {
			m.Reset()
			got := m.AcceptBytes([]byte(text)) == nil && m.MayEnd()
			if want := len(c.yes) > 0 && contains(c.yes, text); got != want {
				t.Errorf("%s: %q: %v, want %v", c.name, text, got, want)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]struct {
		is   error
		says string
	}{
		`start: <|tool|>`:                            {ErrUnsupported, "a token"},
		`start: @other`:                              {ErrUnsupported, "another grammar"},
		`start[max_tokens=5]: "a"`:                   {ErrUnsupported, "max_tokens"},
		`start: A & "b"`:                             {ErrUnsupported, "intersection"},
		"start: INT\nINT: \"x\"\n%import common.INT": {ErrSyntax, "defined twice"},
		`start: ~"b"`:                                {ErrUnsupported, "negation"},
		`start{x}: "b"`:                              {ErrUnsupported, "a template (start{…})"},
		`start: %regex {"x":1}`:                      {ErrUnsupported, "%regex"},
		"%override start: \"a\"":                     {ErrUnsupported, "%override"},
		`start: /a/m`:                                {ErrUnsupported, "flag m"},
		"%import python.NAME\nstart: NAME":           {ErrUnsupported, "python"},
		"%import common.NOTHING\nstart: \"a\"":       {ErrUnsupported, "NOTHING"},
		`start: a`:                                   {grammar.ErrUndefined, `"a"`},
		`begin: "a"`:                                 {grammar.ErrUndefined, `"start"`},
		"start: \"a\"\nstart: \"b\"":                 {ErrSyntax, "twice"},
		`start: "a`:                                  {ErrSyntax, "line 1, column 10"},
		`start: ("a"`:                                {ErrSyntax, ") is expected"},
		`start: "ab".."c"`:                           {ErrSyntax, "range"},
		`start: "a"~3..2`:                            {ErrSyntax, "3 to 2"},
		"start: " + strings.Repeat("(", 300):         {grammar.ErrLimit, "parentheses"},
		`start: %json 5`:                             {ErrSyntax, "JSON object"},
		`start: /(/`:                                 {nil, "/(/"},
	} {
		_, err := compile(text)
		if err == nil || want.is != nil && !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%.60s: %v, want %q", text, err, want.says)
		}
	}
}

func TestIs(t *testing.T) {
	for text, want := range map[string]bool{
		"root ::= \"a\"": false, "root ::=\n\"x: y\"": false, "start: \"a ::= b\"": true, "%llguidance {}": true,
		"": false, "a b": false, "root : \"a\"": true, "?x.2[capture]: y": true, "root::=a": false,
	} {
		if Is(text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

// TestManyDirectives: what reads a directive does not copy the text behind it, which takes memory by the square.
func TestManyDirectives(t *testing.T) {
	const most = 512 << 20 // 27 GiB with copies, 90 MiB without
	text := strings.Repeat("%llguidance {}\n", 60_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := compile(text); !errors.Is(err, grammar.ErrUndefined) {
		t.Errorf("%v", err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > most {
		t.Errorf("%d bytes were allocated", after.TotalAlloc-before.TotalAlloc)
	}
}

// FuzzParse: no text panics; what is read has errors of known kinds alone.
func FuzzParse(f *testing.F) {
	f.Add(arithmetic)
	f.Add("start: A~2..3 | /x/i [\"a\"..\"z\"] %json {\"type\":\"integer\"}\nA.1: \"a\"i{2,}\n%ignore /\\s/")
	f.Add("%import common (INT, WS)\nstart: INT -> x\n | <t> @g &")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		m, err := compile(text)
		if err != nil {
			return
		}
		m.Reset()
		if err := m.AcceptBytes([]byte(text)); err != nil && !errors.Is(err, grammar.ErrRejected) &&
			!errors.Is(err, grammar.ErrLimit) {
			t.Logf("%v", err) // a limit of an expression
		}
	})
}
