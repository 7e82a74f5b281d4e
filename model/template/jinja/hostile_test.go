package jinja

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// hostile are templates that try to take all there is of time or memory, in every way known.
func hostile() map[string]string {
	double := func(start, op string) string {
		return `{% set ns = namespace(s=` + start + `) %}{% for i in range(64) %}{% set ns.s = ` + op +
			` %}{% endfor %}`
	}
	forever := func(what string) string {
		return `{% for i in range(100000) %}{% for j in range(100000) %}` + what + `{% endfor %}{% endfor %}`
	}
	keep := func(what string) string {
		return `{% set ns = namespace(l=0) %}` + forever(`{% set ns.l = [ns.l, `+what+`] %}`)
	}
	deep := func(start, step, use string) string {
		return `{% set ns = namespace(s=` + start + `, r=` + start + `) %}{% for i in range(99999) %}{% set ns.s = ` +
			step +
			` %}{% set ns.r = ` + strings.ReplaceAll(step, "ns.s", "ns.r") + ` %}{% endfor %}{{ ` + use + ` }}`
	}
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	const big = `{% set a = 'a' * 9000000 %}`
	return map[string]string{
		"repeat":            `{{ 'a' * 10000000000 }}`,
		"repeat nothing":    `{{ ('' * 9000000000000000000) ~ ('ab' * 9000000000000000000) }}`,
		"repeat list":       `{{ ([0] * 1000000000) | length }}`,
		"repeat empty list": `{{ [] * 1000000000 }}` + forever(""),
		"range":             `{% for i in range(1000000000000) %}{% endfor %}`,
		"ranges":            forever(`{% set x = range(100000) | list %}`),
		"nested loops":      forever(""),
		"nested scopes":     strings.Repeat(`{% for i in range(9) %}`, 150) + strings.Repeat(`{% endfor %}`, 150),
		"names far out": `{% set x = 1 %}` +
			strings.Repeat(`{% with %}`, 190) + forever(`{{ x }}`) + strings.Repeat(`{% endwith %}`, 190),
		"wide scope": `{% for i in range(100000) %}{% if i < 0 %}` + many(30_000, `{%% set a%d = 1 %%}`) +
			`{% endif %}{% endfor %}`,
		"wide scope, deep": `{% macro f() %}{% if false %}` + many(30_000, `{%% set a%d = 1 %%}`) +
			`{% endif %}{{ f() }}{% endmacro %}{{ f() }}`,
		"wide scope, kept": `{% set ns = namespace(l=0) %}{% for i in range(100000) %}{% for i in [1] %}{% macro g() ` +
			`%}{% endmacro %}{% set ns.l = [ns.l, g] %}{% if false %}` + many(1000, `{%% set a%d = 1 %%}`) +
			`{% endif %}{% endfor %}{% endfor %}`,
		"keywords": `{% macro f() %}{{ kwargs }}{% endmacro %}{% for i in range(100000) %}{{ f(` +
			many(50_000, `a%d=1,`) + `) | length }}{% endfor %}`,
		"keywords, unpacked": `{% macro f() %}{{ kwargs | length }}{% endmacro %}{% set d = dict(` +
			many(50_000, `a%d=1,`) + `) %}{% for i in range(100000) %}{{ f(**d) }}{% endfor %}`,
		"keywords, refused": `{% for i in range(100000) %}{{ 'a'.format(` + many(50_000, `a%d=1,`) +
			`) }}{{ 'a' | replace(` + many(5_000, `a%d=1,`) + `) }}{% endfor %}`,
		"parameters": `{% macro f(` + many(30_000, `a%d=1,`) +
			`z=1) %}{% endmacro %}{% for i in range(100000) %}{{ f(` + many(30_000, `a%d=2,`) + `z=2) }}{% endfor %}`,
		"dict": `{% set d = dict(` + many(50_000, `a%d=1,`) +
			`) %}{% for i in range(100000) %}{% set d = dict(d, x=i) %}{{ d == d }}{% endfor %}`,
		"elif":              forever(`{% if j < 0 %}` + many(30_000, `{%% elif j == -%d %%}`) + `{% endif %}`),
		"doubling, ~":       double(`'aaaaaaaa'`, `ns.s ~ ns.s`),
		"doubling, +":       double(`'aaaaaaaa'`, `ns.s + ns.s`),
		"doubling, %":       double(`'aaaaaaaa'`, `'%s%s' % (ns.s, ns.s)`),
		"doubling, format":  double(`'aaaaaaaa'`, `'{0}{0}'.format(ns.s)`),
		"doubling, join":    double(`'aaaaaaaa'`, `[ns.s, ns.s] | join`),
		"doubling, escape":  double(`'<'`, `(ns.s ~ ns.s) | e | forceescape | string`),
		"doubling, replace": double(`'aaaaaaaa'`, `ns.s.replace('a', 'aa')`),
		"doubling, capture": `{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set x %}{{ ns.s }}{{ ` +
			`ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}`,
		"doubling, reverse": double(`'é€aaaaaaaa'`, `ns.s[::-1] ~ ns.s`),
		"doubling, repr":    double(`'\n\x01'`, `[ns.s] | string`),
		"doubling, json":    double(`'\n\x01'`, `ns.s | tojson`),
		"doubling, urls":    double(`'é/ '`, `(ns.s ~ ns.s) | urlencode`),
		"doubling, upper":   double(`'ΐ'`, `ns.s.upper() ~ ns.s.swapcase().title()`),
		"doubling, list":    double(`[1]`, `ns.s + ns.s`),
		"doubling, list *":  double(`[1]`, `ns.s * 2`),
		"doubling, nest":    double(`[1]`, `[ns.s, ns.s]`) + `{{ ns.s }}`,
		"doubling, equal":   strings.Replace(deep(`[1]`, `[ns.s, ns.s]`, `ns.s == ns.r`), "99999", "64", 1),
		"doubling, hash":    double(`(1, 2)`, `(ns.s, ns.s)`) + `{{ {ns.s: 1} }}`,
		"doubling, tojson":  double(`[1]`, `[ns.s, ns.s]`) + `{{ ns.s | tojson }}`,
		"doubling, pprint":  double(`[1]`, `[ns.s, ns.s]`) + `{{ ns.s | pprint }}`,
		"doubling, int":     double(`3`, `ns.s * ns.s`),
		"power":             `{{ 7 ** (7 ** (7 ** 7)) }}`,
		"powers":            forever(`{% set x = 3 ** 60000 %}`),
		"big products":      `{% set x = 3 ** 40000 %}` + forever(`{% set y = x * x // 7 % 5 %}`),
		"big decimals":      `{% set x = 3 ** 9000 %}` + forever(`{% set y = x | string | int %}`),
		"big decimal":       `{{ 3 ** 80000 }}`,
		"hex literal":       `{{ 0x` + strings.Repeat("f", 4000) + ` ** 9 }}`,
		"deep list":         deep(`[1]`, `[ns.s]`, `ns.s`),
		"deep json":         deep(`[1]`, `[ns.s]`, `ns.s | tojson`),
		"deep pprint":       deep(`[1]`, `[ns.s]`, `ns.s | pprint`),
		"deep equal":        deep(`[1]`, `[ns.s]`, `ns.s == ns.r`),
		"deep less":         deep(`[1]`, `[ns.s]`, `ns.s < ns.r`),
		"deep hash":         deep(`(1, 2)`, `(ns.s, )`, `{ns.s: 1} | length`),
		"deep generator":    deep(`[1]`, `ns.s | map('string')`, `ns.s | list`),
		"deep namespace":    `{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}`,
		"deep indent": `{% set ns = namespace(s=[1]) %}{% for i in range(900) %}{% set ns.s = [ns.s] %}{% ` +
			`endfor %}{% for i in range(100000) %}{{ ns.s | tojson(indent=1000) | length }}{% endfor %}`,
		"replace":           `{% set a = 'a' * 100000 %}{{ a.replace('a', a) | length }}`,
		"replace nothing":   `{% set a = 'a' * 100000 %}{{ a.replace('', a) | length }}`,
		"join":              `{{ (range(10000) | join('a' * 1000000)) | length }}`,
		"center":            `{{ 'a'.center(1000000000000) }}`,
		"center filter":     `{{ 'a' | center(1000000000000) }}`,
		"zfill":             `{{ 'a'.zfill(1000000000000) }}`,
		"expandtabs":        `{{ '\t'.expandtabs(1000000000000) }}`,
		"indent":            `{{ ('a\n' * 100000) | indent(100000) | length }}`,
		"indent width":      `{{ 'a' | indent(1000000000000, true) }}`,
		"batch":             `{{ [1] | batch(1000000000000, 'x') | list | length }}`,
		"slice":             `{{ [1] | slice(1000000000000, 'x') | list | length }}`,
		"format width":      `{{ '%1000000000d' % 1 }}`,
		"format star":       `{{ '%*d' % (1000000000, 1) }}`,
		"format precision":  `{{ '%.1000000000f' % 1 }}`,
		"format digits":     `{{ '%.1000000000d' % 1 }}`,
		"str.format width":  `{{ '{:1000000000}'.format(1) }}`,
		"str.format zeros":  `{{ '{:01000000000,d}'.format(1) }}`,
		"str.format digits": `{{ '{:.1000000000f}'.format(1.5) }}`,
		"str.format spec":   `{{ ('{:' ~ '9' * 1000000 ~ '}').format(1) }}`,
		"str.format fields": `{% set f = '{0}' * 1000000 %}` + forever(`{{ f.format('') }}`),
		"str.format names": `{% set f = '{a}' * 1000000 %}` +
			forever(`{{ f.format(`+many(50_000, `a%d=1,`)+`a='') }}`),
		"str.format path":   `{{ ('{0' ~ '.a' * 1000000 ~ '}').format({}) }}` + forever(""),
		"percent fields":    `{% set f = '%(a)s' * 1000000 %}` + forever(`{{ f % {'a': ''} }}`),
		"strftime":          `{{ strftime_now('%c' * 3000000) | length }}`,
		"runes":             big + forever(`{% set b = a[::-1] %}`),
		"rune":              big + forever(`{% if a[5] %}{% endif %}`),
		"substrings":        big + forever(`{% if a[5:] %}{% endif %}`),
		"characters":        big + `{{ a | list | length }}`,
		"characters, loop":  big + `{% for x in a %}{% endfor %}`,
		"tojson":            `{{ ('\x01' * 20000000) | tojson }}`,
		"tojson ascii":      `{{ ('é' * 20000000) | tojson(ensure_ascii=true) }}`,
		"tojson again":      `{% set a = '\x01' * 900000 %}` + forever(`{% set b = a | tojson %}`),
		"tojson indent":     `{{ [1] | tojson(indent=1000000000000) }}`,
		"tojson separators": `{{ range(9999) | list | tojson(separators=('a' * 1000000, ':')) }}`,
		"string":            `{{ ['\x01' * 20000000] | string }}`,
		"string again":      `{% set a = ['\x01' * 900000] %}` + forever(`{% set b = a | string %}`),
		"ascii":             `{{ '%a' % ('é' * 20000000) }}`,
		"recursive macro":   `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`,
		"recursive caller": `{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{{ caller }}{% endmacro %}{% ` +
			`call f() %}{% endcall %}`,
		"recursive default": `{% macro f(x=f()) %}{% endmacro %}{{ f() }}`,
		"recursive block":   `{% block a %}{{ self.a() }}{% endblock %}`,
		"recursive loop":    `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`,
		"recursive map":     `{{ [1] | map('map', 'map', 'map', 'map') | map('list') | list }}` + forever(""),
		"macro fan-out":     `{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}`,
		"output":            `{% set a = 'a' * 1000000 %}{% for i in range(1000) %}{{ a }}{% endfor %}`,
		"captured output": `{% set a = 'a' * 1000000 %}{% set b %}{% for i in range(1000) %}{{ a }}{% endfor %}{% ` +
			`endset %}`,
		"captured, kept": `{% set ns = namespace(l=0) %}{% for i in range(100000) %}{% set b %}{{ 'a' * 900 }}{% ` +
			`endset %}{% set ns.l = [ns.l, b] %}{% endfor %}`,
		"loops, kept": `{% set ns = namespace(l=0) %}` +
			forever(`{% for k in [1] %}{% set ns.l = [ns.l, loop] %}{% endfor %}`),
		"closures, kept": `{% set ns = namespace(l=0) %}` +
			forever(`{% for k in [1] %}{% macro f() %}{{ k }}{% endmacro %}{% set ns.l = [ns.l, f] %}{% endfor %}`),
		"varargs, kept": `{% set ns = namespace(l=0) %}{% macro f() %}{% set ns.l = [ns.l, varargs, kwargs] %}{% ` +
			`endmacro %}` + forever(`{{ f(1, 2, 3, 4, 5, 6, 7, 8, 9, a=1, b=2) }}`),
		"namespaces, kept": keep(`namespace(l=1)`),
		"namespaces, wide": `{% set ns = namespace() %}{% for i in range(100000) %}{% set ns.x = dict(ns.x or {}, ` +
			`**{i | string: 1}) %}{% endfor %}`,
		"methods, kept":    keep(`'a'.upper, [].index`),
		"generators, kept": keep(`[1] | map('string'), [1] | reverse`),
		"numbers, kept":    keep(`2 ** 70 + j, j * 1.5, -j`),
		"strings, kept":    keep(`j | string, 'a' ~ j, ('a' ~ j) | upper`),
		"characters, kept": keep(`('a' ~ j)[0], ('a' ~ j) | list`),
		"undefined, kept":  keep(`{}.a, [].b`),
		"views, kept":      keep(`{}.items(), range(j), cycler(1), joiner()`),
		"dicts, kept":      keep(`{}, {'a': 1, 'b': 2}, dict(a=1)`),
		"groups, kept":     keep(`[{'a': 1}] | groupby('a')`),
		"splits, kept":     keep(`'a b c d e f'.split(), 'a,b'.partition(','), 'a\nb'.splitlines()`),
		"accumulate": `{% set ns = namespace(a='a' * 900000) %}` +
			forever(`{% set ns.a = ns.a ~ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' %}`),
		"accumulate two": `{% set ns = namespace(a='a' * 900000, b='b' * 900000) %}` +
			forever(`{% set ns.a = ns.a ~ 'x' %}{% set ns.b = ns.b ~ 'x' %}`),
		"strip set": `{% set a = 'a' * 1000000 %}` + forever(`{% set b = a.strip(a) %}`),
		"compare": big + `{% set b = a ~ 'b' %}{% set a = a ~ 'c' %}` +
			forever(`{% if a == b %}{% endif %}`),
		"less":   big + `{% set b = a ~ 'b' %}{% set a = a ~ 'c' %}` + forever(`{% if a < b %}{% endif %}`),
		"length": big + forever(`{% if a | length %}{% endif %}`),
		"find":   big + forever(`{% if a.find('ab') or 'ab' in a or a.count('b') %}{% endif %}`),
		"find, slow": `{% set a = 'a' * 900000 %}{% set b = 'a' * 400000 ~ 'b' %}` +
			forever(`{% if a.find(b) or a.rfind(b) %}{% endif %}`),
		"split": `{% set a = 'a ' * 300000 %}` +
			forever(`{% set b = a.split() %}{% set b = a.split('a') %}`),
		"splitlines":         `{% set a = 'a\n' * 300000 %}` + forever(`{% set b = a.splitlines() %}`),
		"upper":              big + forever(`{% set b = a.upper() %}`),
		"lower unicode":      `{% set a = 'ΑΣ' * 900000 %}` + forever(`{% set b = a.lower() %}`),
		"final sigma":        `{% set a = "Σ''''''''''''''''''''" * 100000 %}` + forever(`{% set b = a.lower() %}`),
		"casefold":           `{% set a = 'ßİ' * 900000 %}` + forever(`{% set b = a.casefold() %}`),
		"title":              `{% set a = 'ŉ ' * 900000 %}` + forever(`{% set b = a.title() %}{% set b = a | title %}`),
		"isupper":            big + forever(`{% set b = a.isupper() or a.isnumeric() or a is upper %}`),
		"translate":          big + forever(`{% set b = a.translate({}) %}`),
		"wordwrap":           `{% set a = 'a-b ' * 300000 %}` + forever(`{% set b = a | wordwrap(3) %}`),
		"wordwrap long":      `{% set a = 'a' * 900000 %}` + forever(`{% set b = a | wordwrap(3) %}`),
		"wordwrap dashes":    `{% set a = 'a' ~ '-' * 900000 ~ 'a' %}` + forever(`{% set b = a | wordwrap(9) %}`),
		"wordcount":          big + forever(`{% set b = a | wordcount %}`),
		"striptags":          `{% set a = '<' * 900000 %}` + forever(`{% set b = a | striptags %}`),
		"striptags entities": `{% set a = '&lt;' * 900000 %}` + forever(`{% set b = a | striptags %}`),
		"pprint": `{% set a = 'a b' * 90000 %}` +
			forever(`{% set b = a | pprint %}{% set b = [a] | pprint %}`),
		"pprint nested": `{% set ns = namespace(s=['a b' * 90]) %}{% for i in range(400) %}{% set ns.s = [ns.s] %}{% ` +
			`endfor %}` + forever(`{% set b = ns.s | pprint %}`),
		"int":  `{% set a = '9' * 4000 %}` + forever(`{% set b = a | int %}{% set b = a | float %}`),
		"sort": `{% set a = range(100000) | list %}` + forever(`{% set b = a | sort %}`),
		"sort strings": `{% set a = ['a' * 99999 ~ 'x', 'a' * 99999 ~ 'y'] * 999 %}` +
			forever(`{% set b = a | sort %}`),
		"groupby":           `{% set a = [{'a': 1}] * 9999 %}` + forever(`{% set b = a | groupby('a') %}`),
		"unique":            `{% set a = range(100000) | list %}` + forever(`{% set b = a | unique | list %}`),
		"path":              `{% set p = 'a.' * 400000 %}` + forever(`{% set b = [{}] | map(attribute=p) | list %}`),
		"sort paths":        `{% set p = 'a,' * 400000 %}` + forever(`{% set b = [{}, {}] | sort(attribute=p) %}`),
		"star":              `{% set a = range(100000) | list %}` + forever(`{% set b = cycler(*a) %}`),
		"generator":         forever(`{% set x = range(100000) | map('string') | reverse | first %}`),
		"filtered":          forever(`{% for x in range(100000) if false %}{% endfor %}`),
		"settled":           forever(`{% for x in range(100000) %}{% if false %}{% endif %}{% endfor %}`),
		"random":            forever(`{{ [1, 2] | random }}`),
		"cycle":             forever(`{{ loop.cycle(1, 2) }}{{ loop.changed(j) }}{{ loop.nextitem }}{{ loop.length }}`),
		"long sum":          `{{ ` + strings.Repeat("1+", 200_000) + `1 }}`,
		"long concat":       `{{ ` + strings.Repeat("x~", 200_000) + `x }}` + forever(""),
		"long attribute":    `{{ m` + strings.Repeat(".a", 200_000) + ` }}`,
		"long filters":      `{{ 1` + strings.Repeat("|e", 200_000) + ` }}`,
		"long calls":        `{{ dict` + strings.Repeat("()", 200_000) + ` }}`,
		"long items":        `{{ l` + strings.Repeat("[0]", 200_000) + ` }}`,
		"long tests":        `{{ 1` + strings.Repeat(" is defined", 50_000) + ` }}`,
		"long and":          `{{ 1` + strings.Repeat(" and 1", 100_000) + ` }}`,
		"long compare":      `{{ 1` + strings.Repeat("<2", 300_000) + ` }}` + forever(""),
		"long if":           `{{ 1` + strings.Repeat(" if 1", 150_000) + ` }}`,
		"long chain":        `{% if 'x' == m` + strings.Repeat(".a", 200_000) + ` %}{% endif %}`,
		"many words":        `{% if ` + many(40_000, `x == 'a%d' or `) + `1 %}{% endif %}` + forever(""),
		"many sides":        `{% if 1 == 2 ` + strings.Repeat(` == x`, 100_000) + ` %}{% endif %}` + forever(""),
		"many alternatives": `{% if 'x' == (` + many(40_000, `x%d or `) + `1) %}{% endif %}` + forever(""),
		"long target":       `{% set a` + strings.Repeat(",a", 300_000) + ` = 1 %}`,
		"adjacent strings":  `{{ ` + strings.Repeat(`'a' `, 200_000) + ` }}` + forever(""),
		"dotted filter":     `{{ 1 | ` + strings.Repeat(`a.`, 400_000) + `b }}`,
		"many outputs":      strings.Repeat("{{a}}", 190_000) + forever(""),
		"many names":        many(90_000, "{{a%d}}") + forever(""),
		"many macros":       many(25_000, "{%%macro a%d()%%}{%%endmacro%%}") + forever(""),
		"many lists":        `{{ [` + strings.Repeat("[],", 300_000) + `] | length }}` + forever(""),
		"many calls":        `{% if false %}` + strings.Repeat("{{a()}}", 140_000) + `{% endif %}` + forever(""),
		"many comments":     strings.Repeat("{##}", 200_000) + forever(""),
		"many raws":         strings.Repeat("{%raw%}{%endraw%}", 55_000) + forever(""),
		"open raw":          "{%raw%}" + strings.Repeat("{%", 500_000),
		"open tag":          "{%" + strings.Repeat(" ", 1_000_000),
		"blanks":            strings.Repeat(" ", 900_000) + "{#-#}" + forever(""),
		"lines of blanks":   strings.Repeat("   {##}\n", 100_000) + forever(""),
	}
}

// A hostile template is stopped, whatever it tries, by an error that says where. A tenth of the limits show that as
// well as all of them, sooner.
func TestHostileTemplates(t *testing.T) {
	part := 10
	if testing.Short() {
		part = 40
	}
	limits := Limits{DefaultLimits.Steps / part, DefaultLimits.Bytes / part, DefaultLimits.Output / part,
		DefaultLimits.Depth}
	for name, src := range hostile() {
		t.Run(name, func(t *testing.T) { stopped(t, src, limits) })
	}
}

func stopped(t *testing.T, src string, limits Limits) {
	tmpl, err := Compile(src)
	if err == nil {
		tmpl.Variables()
		tmpl.Strings()
		_, err = tmpl.Render(vars(), limits, pinned)
	}
	var e *syntax.Error
	if !errors.As(err, &e) || e.Line < 1 || strings.Contains(e.Msg, "internal error") {
		t.Fatalf("error %v, want an *Error with a line", err)
	}
}

// What takes the most memory of all, measured as what the heap grew to: the limit is 256 MiB for the whole process.
func TestHostileMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it goes to the limits of memory fifteen times")
	}
	all := hostile()
	for _, name := range []string{"characters", "sort paths", "many lists", "long target", "generators, kept",
		"characters, kept",
		"slice", "join", "runes", "tojson", "string", "indent", "output", "doubling, capture", "loops, kept"} {
		if all[name] == "" {
			t.Fatalf("no template %q", name)
		}
		debug.FreeOSMemory() // so that only this one is measured
		stopped(t, all[name], DefaultLimits)
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.HeapSys-m.HeapReleased > 256<<20 {
			t.Fatalf("%s: the heap grew to %d MiB", name, (m.HeapSys-m.HeapReleased)>>20)
		}
	}
}
