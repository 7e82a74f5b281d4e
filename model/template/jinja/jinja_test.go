package jinja

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

func vars() map[string]any {
	msg := func(role, content string) *Dict { return NewDict("role", role, "content", content) }
	node := func(v int, c ...any) *Dict { return NewDict("v", v, "c", append([]any{}, c...)) }
	return map[string]any{
		"l": []any{"p", "q", "r"}, "n": []any{3, 1, 2}, "m": NewDict("b", 2, "a", "1"), "s": "  Some text\n", "t": true,
		"f": 1.5, "z": nil,
		"u": "é€😀", "empty": []any{}, "inf": math.Inf(1),
		"ml": []any{msg("system", "S"), msg("user", "U1"),
			NewDict("role", "assistant", "content", "A", "k", NewDict("x", 1)), msg("user", "U2")},
		"tree": []any{node(1, node(2), node(3, node(4)))},
	}
}

// vectors are templates and what Jinja2 made of them (testdata/vectors.py), nil where it refused.
func vectors(t testing.TB) (list [][2]*string) {
	if err := json.Unmarshal(unzip(t, "testdata/vectors.json.gz"), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAgainstJinja2(t *testing.T) {
	all := vectors(t)
	leftOut := 0
	for _, v := range all {
		src, want := *v[0], v[1]
		var got string
		tmpl, err := Compile(src)
		if err == nil {
			got, err = tmpl.Render(vars(), Limits{}, pinned)
		}
		switch {
		case want == nil && err == nil:
			t.Errorf("%q\n got %q, Jinja2 refuses it", src, got)
		case want != nil && err != nil && strings.Contains(err.Error(), "not supported"):
			leftOut++
		case want != nil && err != nil:
			t.Errorf("%q\n error %v\nwant %q", src, err, *want)
		case want != nil && got != *want:
			t.Errorf("%q\n got %q\nwant %q", src, got, *want)
		}
	}
	if len(all) < 15_000 {
		t.Errorf("only %d vectors", len(all))
	}
	// What no chat template uses is an error that says so, never another text.
	if leftOut > 2700 {
		t.Errorf("%d vectors are not supported", leftOut)
	}
}

func TestSourceLimits(t *testing.T) {
	for _, src := range []string{
		strings.Repeat("x", syntax.MaxSource+1),
		"{{ " + strings.Repeat("(", 100_000), "{{ " + strings.Repeat("[", 100_000), "{{ " +
			strings.Repeat("not ", 100_000) + "1 }}",
		"{{ " + strings.Repeat("-", 100_000) + "1 }}", strings.Repeat("{% if 1 %}", 100_000), "{{ " +
			strings.Repeat("1 if 1 else ", 100_000) + "1 }}",
		"{{ a" + strings.Repeat("[a", 100_000) + " }}", "{% for " + strings.Repeat("(", 100_000) + " in l %}", "{{ " +
			strings.Repeat("9", 5000) + " }}",
	} {
		if _, err := Compile(src); err == nil {
			t.Errorf("%.20q… compiled", src)
		}
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for src, want := range map[string]string{
		"a\nb\n{{ 1 | nope }}":                     `line 3: unknown filter "nope"`,
		"\n{% if true %}\n{{ zz.a }}\n{% endif %}": `line 3: zz is undefined, it has no "a"`,
		"{{ 'a\nb' }}\n{% include 'x' %}": `line 3: {% include %} is not supported: a chat template ` +
			`is a single file`,
		"{% for x in l %}\n":                              `line 1: missing {% endfor %}`,
		"\n{{ raise_exception('roles must alternate') }}": `line 2: roles must alternate`,
		"\n\n{{ l.append(1) }}": `line 3: "append" changes a list, which chat templates ` +
			`may not`,
	} {
		tmpl, err := Compile(src)
		if err == nil {
			_, err = tmpl.Render(vars(), Limits{}, time.Time{})
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", src, err, want)
		}
	}
}

func TestRaisedIsTold(t *testing.T) {
	tmpl, _ := Compile(`{{ raise_exception('no ' ~ l[0]) }}`)
	_, err := tmpl.Render(vars(), Limits{}, time.Time{})
	var r *Raised
	if !errors.As(err, &r) || r.Message != "no p" {
		t.Errorf("error %v, want Raised with the template's message", err)
	}
}

func TestStrftime(t *testing.T) {
	now := time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)
	tmpl, err := Compile(`{{ strftime_now('%d %B %Y|%Y-%m-%d %H:%M:%S|%-d %b %y|%A %j|100%%') }}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(nil, Limits{}, now)
	if want := "07 March 2026|2026-03-07 09:05:02|7 Mar 26|Saturday 066|100%"; got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// What a variable holds is never read as template code.
func TestValuesAreNotTemplates(t *testing.T) {
	tmpl, _ := Compile(`{% for x in l %}{{ x }}{{ x | upper }}{% endfor %}`)
	evil := "{{ 1 + 1 }}{% raw %}{# x #}"
	got, err := tmpl.Render(map[string]any{"l": []any{evil}}, Limits{}, time.Time{})
	if want := evil + strings.ToUpper(evil); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestConcurrentRender(t *testing.T) {
	tmpl, err := Compile(`{% set ns = namespace(n=0) %}{% for x in range(k) %}{% set ns.n = ns.n + x %}{% endfor ` +
		`%}{{ ns.n }}{% for x in l | sort(reverse=true) %}{{ x }}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	shared := []any{"p", "q", "r"}
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			want := str(freshState(), int64(k*(k-1)/2)) + "rqp"
			for range 50 {
				got, err := tmpl.Render(map[string]any{"k": k, "l": shared}, Limits{}, time.Time{})
				if got != want || err != nil {
					t.Errorf("k=%d: got %q, %v, want %q", k, got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func freshState() *state { return &state{limits: DefaultLimits} }

// fuzzLimits are small: what is looked for shows in small templates.
var fuzzLimits = Limits{Steps: 20_000, Bytes: 1 << 20, Output: 64 << 10, Depth: 200}

// rendered renders src and checks the package's promise: the result is a text within the limits, or an *Error with a
// line of the template.
func rendered(t *testing.T, src string, vars map[string]any) {
	tmpl, err := Compile(src)
	if err == nil {
		var out string
		if out, err = tmpl.Render(vars, fuzzLimits, pinned); len(out) > fuzzLimits.Output {
			t.Fatalf("%d bytes rendered", len(out))
		}
	}
	var e *syntax.Error
	if err != nil && (!errors.As(err, &e) || e.Line < 1 ||
		e.Line > strings.Count(src, "\n")+strings.Count(src, "\r")+1 || strings.Contains(e.Msg, "internal error")) {
		t.Fatalf("error %v", err)
	}
}

// No template, however broken, may do anything but render or return an *Error, and no limit is exceeded.
func FuzzRender(f *testing.F) {
	all := vectors(f)
	for i := 0; i < len(all); i += 1 + i/200 { // all of those written by hand, then ever fewer
		f.Add(*all[i][0])
	}
	for _, src := range published(f) {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) { rendered(t, src, vars()) })
}

// No format and no text makes a method, filter or operator do anything else either.
func FuzzText(f *testing.F) {
	f.Add("{:>5}|{0[a].b!r:{1}}", "%(a)05.2f%s", int64(7), 2.5)
	f.Add("a\tb\r\nc ΑΣ ŉ", "<!-- &amp; <b", int64(-1), 1e300)
	f.Add("x-y--z (é)", "a.0.b", int64(1)<<62, math.Copysign(0, -1))
	f.Add("\xff\x00", "a,b", int64(0), 5e-324)
	operations := []string{
		`a.format(n, x, b, m, a=b)`, `a % (n, x, b)`, `b % m`, `a.format_map(m)`,
		`[a, n, x, b] | tojson(indent=2, ensure_ascii=true)`, `[a, x] | pprint`,
		`a | wordwrap(7, n > 0, b)`, `a | title ~ a.title() ~ a.swapcase() ~ a.casefold() ~ a.capitalize()`,
		`a | striptags | urlencode`,
		`a.split(b, n) ~ a.rsplit(b, n) ~ a.rsplit() ~ a.splitlines(true)`,
		`a.find(b, n, 3) ~ a.count(b, n) ~ a.startswith(b, n) ~ a.replace(b, a, n)`,
		`a[n:] ~ a[:n] ~ a[::n] ~ a[n]`, `l[n:] ~ l[:n] ~ l[::n] ~ l[n]`, `a | int(0, 16) ~ a | float ~ b | int`,
		`a | truncate(n) ~ a | indent(b) ~ a | center(n)`,
		`n + x ~ n * 3 ~ n // 7 ~ n % x ~ x // n ~ x ~ n ** 2 ~ x | round(n) ~ n | round(-2)`,
		`m[a] ~ l | map(attribute=b) | list`, `{(a, n): x}[(a, n)]`,
		`a | batch(n) | list ~ a | slice(n, b) | list ~ a | unique | list ~ [a, b] | sort`, `strftime_now(a)`,
		`a.expandtabs(n) ~ a.zfill(9) ~ a.partition(b) ~ a.translate({n: b})`,
		`(a | safe) + b ~ (a | safe) % b ~ (a | safe).format(b) ~ (a | e).striptags()`,
		`[a, b] | xmlattr ~ {a: b} | xmlattr`, `n | filesizeformat ~ x | filesizeformat(true)`,
	}
	f.Fuzz(func(t *testing.T, a, b string, n int64, x float64) {
		vars := map[string]any{"a": a, "b": b, "n": n, "x": x, "l": []any{a, n, b}, "m": NewDict("a", n, b, x)}
		for _, op := range operations {
			rendered(t, "{{ "+op+" }}", vars)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	tmpl, err := Compile("{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' + " +
		"message['content'] | trim + '<|im_end|>' + '\n' }}{%- endfor %}")
	if err != nil {
		b.Fatal(err)
	}
	var msgs []any
	for range 20 {
		msgs = append(msgs, NewDict("role", "user", "content", strings.Repeat("word ", 100)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(map[string]any{"messages": msgs}, Limits{}, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
}
