package syntax

import (
	"slices"
	"testing"
)

func TestVariables(t *testing.T) {
	tree, err := Parse(
		`{%- if effort is defined and effort|lower not in ['low', 'high'] %}{{ raise_exception('no') }}{% endif -%}
{%- set a = b if 'max' == effort else none %}{% for m in messages %}{{ m.thinking }}{% endfor %}` +
			`{% macro f(x) %}{{ x ~ mode }}{% endmacro %}{{ mode != "off" }}{{ {'k': deep[0]} }}` +
			`{% set e = wish|default('max') %}{% set ns = namespace(x=asked, y=1) %}{% set ns.y = other if other ` +
			`else none %}{% if e in ['some', 'none'] or ns.x == 'yes' %}{% endif %}{{ ns.y == 'z' }}`)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string][]string{}
	for _, v := range tree.Variables() {
		words[v.Name] = v.Words
	}
	for name, want := range map[string][]string{"effort": {"low", "high", "max"}, "mode": {"off"}, "b": nil,
		"deep": nil, "messages": nil,
		"e": {"some", "none"}, "ns.x": {"yes"}, "ns.y": {"z"}} {
		got, ok := words[name]
		if !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", name, got, ok, want)
		}
	}
	if _, ok := words["thinking"]; ok {
		t.Error("an attribute was taken for a variable")
	}
	if s := tree.Strings(); !slices.Contains(s, "low") || !slices.Contains(s, "max") || !slices.Contains(s, "off") {
		t.Errorf("strings %q", s)
	}
}
