package jsonschema

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/uma-serve/uma-serve/grammar"
)

// maker makes random schemas and values that have to do with each other.
type maker struct{ r *rand.Rand }

func (k maker) one(of ...string) string { return of[k.r.IntN(len(of))] }

func (k maker) name() string { return k.one("a", "b", "ab", "c") }

// schema is a random schema of at most depth.
func (k maker) schema(depth int) string {
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	list := func(n int) string {
		items := make([]string, n)
		for i := range items {
			items[i] = k.schema(depth - 1)
		}
		return strings.Join(items, ",")
	}
	if k.r.IntN(12) == 0 {
		return k.one("true", "false", "{}")
	}
	for range 1 + k.r.IntN(3) {
		n := 22
		if depth <= 0 {
			n = 12
		}
		switch k.r.IntN(n) {
		case 0, 1:
			add(`"type":"%s"`, k.one("null", "boolean", "integer", "number", "string", "array", "object"))
		case 2:
			add(`"enum":[%s,%s]`, k.value(1), k.value(1))
		case 3:
			add(`"const":%s`, k.value(1))
		case 4:
			add(`"%s":%s`, k.one("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
				k.one("0", "1", "-1.5", "2", "10.25", "-3"))
		case 5:
			add(`"multipleOf":%s`, k.one("1", "2", "0.5", "3", "0.01"))
		case 6:
			add(`"%s":%d`, k.one("minLength", "maxLength"), k.r.IntN(4))
		case 7:
			add(`"pattern":"%s"`, k.one("^a", "b$", "^[ab]*$", "a.c", "^(?!a)", "[^a]"))
		case 8:
			add(`"%s":%d`, k.one("minItems", "maxItems"), k.r.IntN(4))
		case 9:
			add(`"required":["%s"]`, k.name())
		case 10:
			add(`"%s":%d`, k.one("minProperties", "maxProperties"), k.r.IntN(3))
		case 11:
			add(`"dependentRequired":{"%s":["%s"]}`, k.name(), k.name())
		case 12:
			add(`"properties":{"a":%s,"b":%s}`, k.schema(depth-1), k.schema(depth-1))
		case 13:
			add(`"additionalProperties":%s`, k.schema(depth-1))
		case 14:
			add(`"patternProperties":{"%s":%s}`, k.one("^a", "b$", "."), k.schema(depth-1))
		case 15:
			add(`"items":%s`, k.schema(depth-1))
		case 16:
			add(`"prefixItems":[%s]`, list(1+k.r.IntN(2)))
		case 17:
			add(`"contains":%s`, k.schema(depth-1))
		case 18:
			add(`"%s":[%s]`, k.one("allOf", "anyOf", "oneOf"), list(2))
		case 19:
			add(`"not":%s`, k.schema(depth-1))
		case 20:
			add(`"if":%s,"then":%s,"else":%s`, k.schema(depth-1), k.schema(depth-1), k.schema(depth-1))
		case 21:
			add(`"%s":%s`, k.one("propertyNames", "unevaluatedProperties", "unevaluatedItems"), k.schema(depth-1))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// value is a random value of at most depth.
func (k maker) value(depth int) string {
	n := 7
	if depth <= 0 {
		n = 5
	}
	switch k.r.IntN(n) {
	case 0:
		return k.one("null", "true", "false")
	case 1, 2:
		return k.one("0", "1", "2", "-1", "3", "1.5", "-1.5", "10.25", "1.0", "0.01", "12", "-2.5")
	case 3, 4:
		return k.one(`""`, `"a"`, `"b"`, `"ab"`, `"abc"`, `"cb"`, `"é"`, `"bbbb"`)
	case 5:
		items := make([]string, k.r.IntN(4))
		for i := range items {
			items[i] = k.value(depth - 1)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	for _, name := range []string{"a", "b", "ab", "c"} {
		if k.r.IntN(2) == 0 {
			members = append(members, fmt.Sprintf(`"%s":%s`, name, k.value(depth-1)))
		}
	}
	k.r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// TestRandomSchemas holds random schemas to an independent validator, on random values and on random texts of theirs.
func TestRandomSchemas(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 500
	}
	v := bytesVocab()
	compiled, refused := 0, map[error]int{}
	for seed := range uint64(n) {
		k := maker{rand.New(rand.NewPCG(seed, 9))}
		schema := k.schema(3)
		s := validate([]byte(schema))
		if s == nil {
			continue // one keyword twice, with values that the validator does not take
		}
		g, err := Compile([]byte(schema), Options{AnyForm: true}, Limits{})
		if err != nil {
			e := &Error{}
			if !asError(err, &e) {
				t.Errorf("seed %d: %s: %v", seed, schema, err)
				continue
			}
			refused[e.Kind]++
			if e.Kind != ErrUnsatisfiable {
				continue
			}
		}
		compiled++
		var closed *grammar.Grammar // as for a model: each of its texts is valid, too
		if seed%4 == 0 && g != nil {
			if closed, err = Compile([]byte(schema), Options{AnyForm: true, Closed: true}, Limits{}); err != nil {
				t.Errorf("seed %d: %s: closed: %v", seed, schema, err)
			}
		}
		for range 60 {
			text := k.value(3)
			data, err := validator.UnmarshalJSON(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			valid := s.Validate(data) == nil
			if g == nil && valid || g != nil && accepts(t, g, v, text) != valid {
				t.Errorf("seed %d: %s: %s is valid: %v, and the grammar says otherwise", seed, schema, text, valid)
				break
			}
			if closed != nil && !valid && accepts(t, closed, v, text) {
				t.Errorf("seed %d: %s: %s is not valid, and the closed grammar has it", seed, schema, text)
				break
			}
		}
		if g == nil {
			continue
		}
		w := newWalker(g, k.r, []byte(schema))
		for range 3 {
			if text, ok := w.walk(t, 30); ok {
				checkWalk(t, fmt.Sprintf("seed %d: %s", seed, schema), s, text)
			}
		}
	}
	t.Logf("%d of %d schemas compiled; refused: %v", compiled, n, refused)
	if compiled < n/2 {
		t.Errorf("%d of %d schemas compiled", compiled, n)
	}
}

func asError(err error, to **Error) bool {
	e, ok := err.(*Error)
	*to = e
	return ok
}
