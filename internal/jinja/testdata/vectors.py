"""Makes vectors.json: what Jinja2 answers, configured as Hugging Face configures it for chat templates.

    pip install jinja2==3.1.6 && python3 vectors.py > vectors.json

Each vector is [template, result], the result null where Jinja2 refuses. The variables are VARS below; the Go test
has the same.
"""
import json
from jinja2.ext import Extension, loopcontrols
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARS = {
    "l": ["p", "q", "r"], "n": [3, 1, 2], "m": {"b": 2, "a": "1"}, "s": "  Some text\n", "t": True, "f": 1.5, "z": None,
    "u": "é€😀", "empty": [],
    "ml": [{"role": "system", "content": "S"}, {"role": "user", "content": "U1"}, {"role": "assistant", "content": "A", "k": {"x": 1}}, {"role": "user", "content": "U2"}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
}

class Generation(Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)
    def _body(self, caller):
        return caller()

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

def raise_exception(message):
    raise ValueError(message)

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception

TEMPLATES = r'''
{{ 'x' + ('a' if 1 == 2 else 'b') }}
{{ 'a' if m.nope else 'b' if m.b else 'c' }}
{{ 'only if' if false }}|
{{ '  hi \n'.strip() }}|{{ '\n\nhi\n'.lstrip('\n') }}|{{ 'xxhixx'.rstrip('x') }}|{{ 'abcba'.strip('ab') }}|
{{ 'a b  c'.split() }} {{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.split(none, 1) }}
{{ 'ab</think>c</think>d'.split('</think>')[-1] }} {{ 'x'.split('y') }}
{% for x in l[1:] %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}
{{ l[::-1] }} {{ l[:-1] }} {{ l[-2:] }} {{ l[5:] }} {{ u[1:] }} {{ u[::-1] }} {{ l[none:2] }} {{ l[1:0] }} {{ l[::2] }} {{ l[-1::-2] }}
{% set ns = namespace(x=0) %}{% for x in l %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}
{% set x = 1 %}{% for y in l %}{% set x = y %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}
{{ m.nope is defined }} {{ m.a is defined }} {{ m['nope'] is none }} {{ zz is none }} {{ zz is undefined }} {{ z is none }} {{ z is defined }}
{{ m is mapping }} {{ 'a' is string }} {{ l is sequence }} {{ l is iterable }} {{ m is iterable }} {{ 1 is number }} {{ true is number }} {{ 1.0 is float }} {{ true is integer }} {{ 1 is boolean }} {{ m is sequence }}
{{ m | tojson }} {{ m | tojson(indent=2) }} {{ {'b': 1, 'a': [1, 2.5, none, true, 'é<"\n']} | tojson }} {{ [] | tojson(indent=1) }} {{ u | tojson(ensure_ascii=true) }} {{ m | tojson(sort_keys=true, separators=(',', ':')) }} {{ {1: 2, none: 3.0} | tojson }}
{{ '%s-%d' % ('a', 3) }} {{ '%s' | format('q') }} {{ '%05.1f|%-4s|%x' % (3.14159, 'a', 255) }} {{ '100%%' % () }}
{{ "a" "b" 'c' }} {{ "a\\nb\n\"q\"" }} {{ 'it\'s' }} {{ '\u00e9\x41\101' }} {{ '\d' }}
{{ l | map('upper') | list }} {{ ml | map(attribute='k.x', default=0) | list }} {{ ml | map(attribute='role') | join(', ') }}
{{ ml | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }} {{ ml | rejectattr('role', 'in', ['user', 'system']) | list | length }} {{ ml | selectattr('k') | list | length }} {{ n | select('gt', 1) | list }} {{ n | reject('odd') | list }} {{ n | select | list }}
{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}{% for k in m %}{{ k }};{% endfor %}{{ m.keys() | list }} {{ m.values() | list }} {{ m | items | list }}
{{ m.get('a', 'z') }} {{ m.get('q', 'z') }} {{ m.get('q') }} {{ m['a'] }} {{ m.a }} {{ m.items is defined }}
{{ none }} {{ true }} {{ 1.0 }} {{ l }} {{ m }} {{ (1,) }} {{ (1, 'a') }} {{ [1.5, none, 'it\'s', "q\"", '\n'] }} {{ 1e20 }} {{ 1e-7 }} {{ 123456789.125 }} {{ 1e15 }} {{ 1e16 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 3 }} {{ 2 ** -1 }} {{ 7 / 2 }} {{ 7.5 // 2 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ (-2) ** 3 }} {{ 1 + 2 * 3 - 4 }} {{ +3 }}
{{ 'a' in 'abc' }} {{ 'x' not in l }} {{ not false }} {{ 'a' == "a" }} {{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ not 'a' in l }} {{ 'b' in m }} {{ l == ['p', 'q', 'r'] }} {{ (1,) == [1] }}
{% macro f(a, b='d', c=none) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f('q') }}{{ f('q', b='z') }}{{ f() }}{{ f(1, 2, 3, 4, x=5) }}
{{ 'a' ~ 'x' | upper }} {{ ('a' ~ 'x') | upper }} {{ 1 ~ none ~ 2.0 }} {{ l | length > 1 and 'y' }} {{ '' or 'd' }} {{ 0 and 1 }}
{% for x in ml if x.role == 'user' %}{{ x.content }}{{ loop.index }}/{{ loop.length }}{% endfor %}
{% for x in empty %}a{% else %}none{% endfor %}{% for x in ml if x.role == 'q' %}a{% else %}none{% endfor %}
{{ ml[0].role }} {{ ml[-1]['role'] }} {{ (ml|first).role }} {{ (ml|last)['role'] }} {{ ml.0.role }} {{ l[7] is defined }}
{% for x in l %}{{ loop.previtem if loop.previtem is defined else '-' }}{{ loop.nextitem if loop.nextitem is defined else '+' }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.cycle('o', 'e') }}{{ loop.depth }};{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}
{% for x in tree recursive %}{{ x.v }}{% if x.c %}({{ loop(x.c) }}){% endif %}{{ loop.depth }}{% endfor %}
{% for x in l %}{% if x == 'q' %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% if x == 'q' %}{% break %}{% endif %}{{ x }}{% endfor %}
{% generation %}x{{ l[0] }}{% endgeneration %}
{{ 'user' == ml[1]['role'] != false }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}
{{ [1,2] + [3] }} {{ (1,2) + (3,) }} {{ 'abc'[1:] }} {{ 'abc'[-1] }} {{ 'ab' * 2 }} {{ [0] * 2 }} {{ 'x' * -1 }}|
{{ ml | map('tojson') | list }}
{{ 'x' is in ['x'] }} {{ 6 is divisibleby 3 }} {{ 3 is not odd }} {{ 4 is even }} {{ 1 is eq 1 }} {{ 'A' is upper }} {{ 'a' is lower }} {{ none is sameas none }} {{ 2 is gt(1) }} {{ f is callable }} {{ 'upper' is filter }}
{%- set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set d %}block {{ a }}{% endset %}[{{ d }}]{% set e | upper %}x{% endset %}{{ e }}
{{ '{{' }}{% raw %}{{ x }}{% endraw %}{{ '%}' }}{% raw -%}  a  {%- endraw %}b
{{ dict(a=1, b=2).a }} {{ dict(m, c=3) }} {{ dict([('x', 1)]) }} {{ {'a': {'b': {}}}['a'] }}
{{ "tab\t|" }}{% filter upper %}a{{ 'b' }}{% endfilter %}{% filter trim | upper %} q {% endfilter %}
{%- for x in ml -%} {{- x.role -}} {%- endfor -%}  x
{#- c -#} x {# d #} y {{- 'z' -}}   w
a {%- if true %} b {% endif -%} c
{% with a=1, b=2 %}{{ a + b }}{% endwith %}{{ a is defined }}
{% macro g() %}[{{ caller('x') }}]{% endmacro %}{% call(v) g() %}<{{ v }}>{% endcall %}
{{ l | join }} {{ l | join('-') }} {{ ml | join(',', attribute='role') }} {{ ','.join(l) }}
{{ n | sort }} {{ n | sort(reverse=true) }} {{ ml | sort(attribute='content') | map(attribute='content') | list }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ m | dictsort }}
{{ n | max }} {{ n | min }} {{ n | sum }} {{ l | first }} {{ l | last }} {{ l | length }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ [1, 2, 1] | unique | list }}
{{ ml | groupby('role') | map('first') | list }} {{ [1,2,3,4,5] | batch(2) | list }} {{ [1,2,3] | batch(2, 'x') | list }}
{{ 'a b' | title }} {{ 'hELLO wORLD' | capitalize }} {{ 'hELLO'.title() }} {{ 'abc' | upper }} {{ 'x y z' | wordcount }} {{ s | trim }}| {{ 'xax' | trim('x') }}
{{ zz | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | default('d') }} {{ zz | d }}|
{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 5 | string + 'a' }} {{ -3 | abs }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 3 | round }} {{ 'ff' | int(0, 16) }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\nb' | indent('> ') }}
{{ '<a href="x">' | e }} {{ 'hello world foo' | truncate(9, end='..', leeway=0) }} {{ 'hello' | truncate(3, true, '') }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'aXb' | replace('X', '') }} {{ 'abc'.find('c') }} {{ u.find('😀') }} {{ 'abc'.find('z') }} {{ 'abab'.rfind('b') }} {{ 'abab'.count('b') }} {{ 'abab'.index('b') }}
{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('b') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'x'.partition('=') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}
{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ ''.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ 'a'.center(4) }}|{{ 'ab'.center(5) }}|{{ 'a\nb\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}
{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}{x}{{}}'.format('a', 'b', x=3) }}
{{ u | length }} {{ u.upper() }} {{ '' | length }} {{ 'straße' | upper }}
{{ range(3) | list }} {{ range(1, 6, 2) | list }} {{ range(3, 0, -1) | list }} {{ range(0) | list }}
{{ true and false or true }} {{ not true or true }} {{ (1 if true else 2) + 1 }} {{ -1 | abs }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ l.index('q') }} {{ l.count('p') }} {{ [[1, 2], [3]][0][1] }} {{ 'abc' is defined and 'abc'[0] == 'a' }}
{%- macro outer(x) %}{% macro inner(y) %}{{ y }}!{% endmacro %}{{ inner(x) }}{% endmacro %}{{ outer('a') }}
{% if false %}a{% elif 0 %}b{% elif 'x' %}c{% else %}d{% endif %}
{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}{% for (a, b) in [(5, 6)] %}{{ a }}{{ b }}{% endfor %}
{{ ml | selectattr('k', 'defined') | list | length }} {{ ml | selectattr('content', 'ne', 'S') | first }}
{{ zz }}|{{ m.zz }}|{{ zz ~ 'a' }}|{{ zz | length }}|{% for q in zz %}a{% endfor %}|{{ zz == yy }}|{{ zz | list }}|{{ zz or 'x' }}
{{ loop is defined }}{% for x in l %}{{ loop is defined }}{% set loop_first = loop.first %}{{ loop_first }}{% endfor %}
{{ 1_000 }} {{ 0.5 }} {{ 1.5e3 }} {{ 10 // 3.0 }} {{ 5 % 3.5 }} {{ 1 - -1 }}
{{ {'a': 1}.a }} {{ {'items': 5}['items'] }} {{ {}.get('x') is none }} {{ {'a': 1} == {'a': 1.0} }}
{% set x = {'a': [1, {'b': 'c'}]} %}{{ x.a[1].b }} {{ x['a'][0] }}
{{ zz.foo }}
{{ zz() }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ none + 'a' }}
{{ 1 / 0 }}
{{ l.append('x') }}
{{ m.update({}) }}
{{ raise_exception('no') }}
{{ 1 | nope }}
{{ 1 is nope }}
{{ 'a'.nope() }}
{{ l | join(1, 2, 3) }}
{% nope %}
{% if %}a{% endif %}
{% for x in l %}a
{{ 'a }}
{{ 'a' 
{{ (1 }}
{{ [1, 2 }}
{{ 1 + }}
{{ a b }}
{{ 'a' ~ 1 + 2 }}
{% endif %}
{% set 1 = 2 %}
{% set m.a = 2 %}
{% for x in 5 %}{% endfor %}
{% break %}
{{ 'abc' < 1 }}
{{ 5 in 'abc' }}
{{ {[]: 1} }}
{{ 'x' is divisibleby 3 }}
'''.strip("\n").split("\n")

TEMPLATES += [
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n",
    "a\n  {%+ if true %}\nb\n  {%- endif %}\n\nc\n\n",
    "  {% if true %}  {% if true %}x{% endif %}  {% endif %}  y\n",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend",
    "  {# comment #}\n  text\n{# another\n over lines #}  z",
    "{%- if true -%}\n\n  a  \n\n{%- endif -%}\n\n b",
    "a {{- ' b ' -}} c\n{{ 'd' }}\n\ne\n",
    "x\r\n{% if true %}\r\ny\r\n{% endif %}\r\nz\r\n",
    "{% if true +%}\na{% endif +%}\nb",
    "   {{ 'x' }}\n\t{% set a = 1 %}\t\n{{ a }}",
    "{{ {'a': {'b': 1}}['a']['b'] }} {{ {'a': {}}}}",
    "{% set a = 'multi\nline' %}{{ a }}",
    "{{ 'a'\n  ~ 'b' }}",
    "{% raw %}\n {{ a }} \n{% endraw %}\nx",
    "  {% raw %} a {% endraw %} b",
    "{{ '" + "\\U0001F600" + "' }}",
    "{}{ {{ '{' }} } %} #}",
    "",
    "\n",
    "\n\n",
]

out = []
for t in TEMPLATES:
    try:
        r = env.from_string(t).render(**VARS)
    except Exception as e:
        r = None
    out.append([t, r])
print("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in out) + "\n]")
