package jinja

import (
	"errors"
	"strings"
	"testing"
)

// Jinja2 as chat templates use it, one test for each trait. The same and much more is among the vectors, which Jinja2
// made; here each has its name.
func TestJinja2AsItIsUsed(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{ // want "!…": an error with this text, when rendered
		{"unknown filter fails when reached", `{% if z %}{{ s | from_json }}{% endif %}ok`, "ok"},
		{"unknown filter fails when reached", "ok\n{{ s | from_json }}", `!line 2: unknown filter "from_json"`},
		{"unknown filter fails when reached", `{{ [] | map('nope') | list }}{{ l | map('nope') | list }}`,
			`!unknown filter "nope"`},
		{"unknown test fails when reached", `{% if z %}{{ s is nope }}{% endif %}ok`, "ok"},
		{"unknown test fails when reached", `{{ s is nope }}`, `!unknown test "nope"`},
		{"map of None and undefined is empty", `{{ z | map('upper') | list }}{{ zz | map(attribute='a') | list }}`,
			"[][]"},
		{"select and reject of None and undefined are empty",
			`{{ z | select | list }}{{ zz | reject('odd') | list }}{{ z | selectattr('a') | list }}{{ zz | ` +
				`rejectattr('a', 'eq', 1) | list }}`, "[][][][]"},
		{"undefined key is not found", `{{ m[zz] is defined }}{{ m[[]] is defined }}{{ l['a'] is defined }}{{ zz in ` +
			`m }}`, "FalseFalseFalseFalse"},
		{"safe joins as Markup", `{{ '<a>' | safe + '<b>' }}{{ ('-' | safe).join(['<']) }}{{ ['<a>' | safe, '<b>'] | ` +
			`join }}`, "<a>&lt;b&gt;&lt;<a><b>"},
		{"generator is true and read once",
			`{% set g = [] | map('upper') %}{{ 1 if g }}{% set g = l | map('upper') %}{{ g | first }}{{ g | list ` +
				`}}{{ g | list }}`, "1P['Q', 'R'][]"},
		{"generator has no length", `{{ l | map('upper') | length }}`, "!a generator has no length"},
		{"generator is lazy", `{% set g = l | map('nope') %}ok`, "ok"},
		{"title", `{{ 'o\'neil x-ray (a' | title }} {{ 'o\'neil x-ray'.title() }}`, "O'neil X-Ray (A O'Neil X-Ray"},
		{"groupby", `{% for k, v in ml | groupby('role') %}{{ k }}{{ v | length }}{% endfor %}{{ (ml | ` +
			`groupby('role'))[0].grouper }}{{ [{'a': 'X'}, {'a': 'x'}] | groupby('a') | length }}`,
			"assistant1system1user2assistant1"},
		{"attr", `{{ m | attr('a') is defined }}{{ 'a' | attr('upper') is callable }}`, "FalseTrue"},
		{"break with else", `{% for x in l %}{{ x }}{% break %}{% else %}e{% endfor %}{% for x in l %}{% if x == 'q' ` +
			`%}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}`, "pep"},
		{"break in else leaves the outer loop",
			`{% for x in l %}{{ x }}{% for y in [] %}{% else %}{% break %}{% endfor %}{% endfor %}`, "p"},
		{"scope of generation", `{% set a = 0 %}{% generation %}{{ a }}{% set a = 1 %}{{ a }}{% endgeneration %}{{ a ` +
			`}}`, "010"},
		{"splitlines", `{{ 'a\r\nb\rc\x0bd\n'.splitlines() }}{{ 'a\n'.splitlines(true) }}`,
			`['a', 'b', 'c', 'd']['a\n']`},
		{"numbers", `{{ 7 // -2 }} {{ -7 % 3 }} {{ 0 / -7 }} {{ 1e16 }} {{ 2 ** -1 }} {{ 0.1 + 0.2 }}`,
			"-4 2 -0.0 1e+16 0.5 0.30000000000000004"},
		{"case", `{{ 'ΑΣ ß ŉ'.lower() }} {{ 'straße'.upper() }} {{ 'ß'.title() }} {{ 'İ'.lower() | ` +
			`length }}`, "ας ß ŉ STRASSE Ss 2"},
		{"find with start", `{{ 'abcabc'.find('a', 1) }}{{ 'abcabc'.rfind('a', 0, 3) }}{{ 'abcabc'.index('c', 3) ` +
			`}}{{ 'éabc'.find('a', -3) }}`, "3051"},
		{"count with start", `{{ 'abcabc'.count('a', 1) }}{{ 'abcabc'.count('b', 0, 3) }}`, "11"},
		{"startswith with start", `{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ ` +
			`'abc'.startswith(('x', 'a')) }}`, "TrueTrueTrue"},
		{"format", `{{ '{}|{!r}|{a[b]}'.format('a', 'q', a={'b': 1}) }}`, "a|'q'|1"},
		{"what no chat template uses is refused", `{{ '{:>5}'.format('a') }}`, "!specification {:>5} is not supported"},
		{"what no chat template uses is refused", `{{ '%s' % s }}`, "!the formats of % are not supported"},
		{"what no chat template uses is refused", `{{ s | format(x=1) }}`, "!the filter format is not supported"},
		{"what no chat template uses is refused", `{{ s | wordwrap(8) }}`, "!the filter wordwrap is not supported"},
		{"what no chat template uses is refused", `{{ 'aB'.swapcase() }}`, "!swapcase of strings is not supported"},
		{"what no chat template uses is refused", `{% set c = cycler('a') %}`, "!cycler is not supported"},
		{"what no chat template uses is refused", `{{ 1.real }}`, "!real of numbers is not supported"},
		{"what no chat template uses is refused", `{{ 2 ** 100 }}`, "!arithmetic beyond 64 bits is not supported"},
		{"slice", `{{ [1, 2, 3, 4, 5] | slice(2) | list }}{{ [1, 2, 3] | slice(2, 'x') | list }}`,
			"[[1, 2, 3], [4, 5]][[1, 2], [3, 'x']]"},
		{"print", `{% print s | trim, 1 %}`, "Some text1"},
		{"block", `{% block a %}{{ l[0] }}{% endblock %}{{ self.a() }}`, "pp"},
		{"large integers are read, compared and printed", `{{ 12345678901234567890 }} {{ -9223372036854775808 }} {{ ` +
			`[2 ** 62, 18446744073709551615] | tojson }} {{ 18446744073709551615 > 1 }}`,
			"12345678901234567890 -9223372036854775808 [4611686018427387904, 18446744073709551615] True"},
		{"hex integers", `{{ 0xff }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 'ff' | int(0, 16) }}`, "255 5 15 1000 255"},
		{"append is refused when called", `{{ l.append is defined }}{{ l.append(1) }}`, `!"append" changes a list`},
		{"include fails when reached", `{% if z %}{% include 'x' %}{% import 'a' as b %}{% endif %}ok`, "ok"},
		{"items are a view", `{{ m.items() }}{{ m.keys() | first }}{{ m.values() | list }}`,
			"dict_items([('b', 2), ('a', '1')])b[2, '1']"},
		{"None has no attributes", `{{ z.a is defined }}{{ z[0] is defined }}`, "FalseFalse"},
		{"keyword arguments of macros", `{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=1) }}`,
			`!macro f has no argument "b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl, err := Compile(c.src)
			if err != nil {
				t.Fatalf("%s does not load: %v", c.src, err)
			}
			got, err := tmpl.Render(vars(), Limits{}, pinned)
			if want, refused := strings.CutPrefix(c.want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s\n got %q, %v\nwant the error %q", c.src, got, err, want)
				}
			} else if err != nil || got != c.want {
				t.Errorf("%s\n got %q, %v\nwant %q", c.src, got, err, c.want)
			}
		})
	}
}

// A loop that only looks for something ends where it has found it, whatever Jinja2 would still go through; it is not
// seen to.
func TestSearchingLoopsEnd(t *testing.T) {
	steps := func(src string) (string, error) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		return tmpl.Render(vars(), Limits{Steps: 3000, Bytes: 1 << 20, Output: 1 << 20, Depth: 100}, pinned)
	}
	for src, want := range map[string]string{
		`{% set n = namespace(f=0) %}{% for i in range(99999) %}{% if not n.f %}{% if i == 7 %}{% set n.f = i %}{% ` +
			`endif %}{% endif %}{% endfor %}{{ n.f }}`: "7",
		`{% set n = namespace(f=0) %}{% for i in range(99999) %}{% if n.f %}{% elif i == 7 %}{% set n.f = i %}{% ` +
			`else %}.{% endif %}{% endfor %}{{ n.f }}`: ".......7",
		`{% set n = namespace(f=0) %}{% for i in range(9) %}{% if not n.f %}{% set n.f = i %}{% else %}{{ i }}{% ` +
			`endif %}{% else %}none{% endfor %}{{ n.f }}`: "23456781",
		`{% for i in range(99999) %}{% if z %}{{ i }}{% endif %}{% else %}none{% endfor %}`: "",
		`{% set g = [1, 2, 3] | map('string') %}{% for i in g %}{% if z %}{{ i }}{% endif %}{% endfor %}{{ g | list ` +
			`}}`: "[]",
		`{% set g = l | select %}{% for i in range(2) %}{% if 'q' in g %}{% endif %}{% endfor %}{{ g | list }}`: "[]",
		`{% for i in range(5) %}{% if i < 3 %}{% else %}{{ i }}{% endif %}{% endfor %}{% for i in range(3) %}{% if ` +
			`loop.first %}{% else %}{{ i }}{% endif %}{% endfor %}`: "3412",
		`{% for i in range(3) %}{% if x is defined %}{{ i }}{% endif %}{% set x = 1 %}{% endfor %}`: "",
	} {
		if got, err := steps(src); err != nil || got != want {
			t.Errorf("%s\n got %q, %v\nwant %q", src, got, err, want)
		}
	}
	// One whose condition changes with each pass goes on.
	if _, err := steps(`{% for i in range(99999) %}{% if i < 0 %}{{ i }}{% endif %}{% endfor %}`); !errors.Is(err,
		ErrLimit) {
		t.Errorf("error %v, want ErrLimit", err)
	}
}

// A text built part by part takes time in proportion to its length.
func TestTextsGrowInPlace(t *testing.T) {
	tmpl, err := Compile(`{% set ns = namespace(a='', b='') %}{% for i in range(20000) %}{% set ns.a = ns.a ~ 'abc' ` +
		`%}{% if i == 15000 %}{% set ns.b = ns.a %}{% endif %}{% endfor %}{% set x = ns.b ~ 'x' %}{% set y = ns.b + ` +
		`'y' %}{{ ns.a | length }} {{ ns.b | length }} {{ ns.a[-1] }}{{ ns.b[-1] }}{{ x[-1] }}{{ y[-1] }}{{ x | ` +
		`length }}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(nil, Limits{Steps: 1_000_000, Bytes: 2 << 20, Output: 1 << 20, Depth: 100}, pinned)
	if want := "60000 45003 ccxy45004"; got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
