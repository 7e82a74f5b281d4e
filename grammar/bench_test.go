package grammar

import (
	"testing"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// people is a grammar such as a JSON schema makes: an object of strings, numbers, an enumeration and an array.
func people(b *Builder) Node {
	set := b.Regex()
	quote := set.Literal(`"`)
	str := func(e regex.Expr) Node { return b.Terminal(set.Concat(quote, set.JSONString(e), quote)) }
	space := b.Terminal(set.Repeat(set.Bytes(regex.ByteOf(" \n\t")), 0, 1))
	number, err := set.Parse(`-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`, regex.Whole)
	if err != nil {
		panic(err)
	}
	key := func(name string, value Node) Node {
		return b.Seq(b.Literal(`"`+name+`"`), space, b.Literal(":"), space, value)
	}
	comma := b.Seq(space, b.Literal(","), space)
	email, err := set.Parse(`^[a-z0-9._]+@[a-z]+\.(com|org)$`, regex.ECMA)
	if err != nil {
		panic(err)
	}
	tags := b.Seq(b.Literal("["), space,
		b.Optional(b.Seq(str(set.AnyText()), b.Repeat(b.Seq(comma, str(set.AnyText())), 0, Unbounded))), space,
		b.Literal("]"))
	return b.Seq(b.Literal("{"), space, b.Unordered(comma, 0, Unbounded,
		Member{Node: key("name", str(set.AnyText())), Min: 1, Max: 1},
		Member{Node: key("short", str(set.Repeat(set.AnyRune(), 2, 40))), Min: 1, Max: 1},
		Member{Node: key("age", b.Terminal(number)), Min: 0, Max: 1},
		Member{Node: key("mail", str(email)), Min: 0, Max: 1},
		Member{Node: key("kind", b.Choice([]string{`"one"`, `"two"`, `"three"`})), Min: 0, Max: 1},
		Member{Node: key("tags", tags), Min: 0, Max: 1},
	), space, b.Literal("}"))
}

const someone = `{"name": "Jürgen \"Jo\" Müller from a long way away", "short":"ab cd", "age": -12.5e3, ` +
	`"mail":"jo.m@example.com", "kind": "two", "tags": ["a", "long tag", "x\u00e9y"]}`

func buildPeople(tb testing.TB) *Grammar {
	b := NewBuilder(Limits{})
	g, err := b.Build(people(b))
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// tokenise cuts text into the longest tokens of the vocabulary.
func tokenise(pieces [][]byte, text string) []int32 {
	ids := map[string]int32{}
	longest := 0
	for id, p := range pieces {
		if len(p) > 0 {
			ids[string(p)] = int32(id)
			longest = max(longest, len(p))
		}
	}
	var out []int32
	for len(text) > 0 {
		n := min(longest, len(text))
		for ; ; n-- {
			if id, ok := ids[text[:n]]; ok {
				out = append(out, id)
				break
			}
		}
		text = text[n:]
	}
	return out
}

func BenchmarkFirstMask(b *testing.B) {
	v, _ := realVocabulary(b)
	for b.Loop() {
		NewMatcher(buildPeople(b), v).Mask()
	}
}

// BenchmarkMaskCold computes every mask on the way through a text once.
func BenchmarkMaskCold(b *testing.B) {
	v, pieces := realVocabulary(b)
	tokens := tokenise(pieces, someone)
	n := 0
	for b.Loop() {
		m := NewMatcher(buildPeople(b), v)
		for _, t := range tokens {
			m.Mask()
			if err := m.Accept(t); err != nil {
				b.Fatal(err)
			}
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/mask")
}

func BenchmarkMaskWarm(b *testing.B) {
	v, pieces := realVocabulary(b)
	tokens := tokenise(pieces, someone)
	m := NewMatcher(buildPeople(b), v)
	for b.Loop() {
		m.Reset()
		for _, t := range tokens {
			m.Mask()
			if err := m.Accept(t); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(tokens)), "ns/token")
}

func BenchmarkVocabulary(b *testing.B) {
	_, pieces := realVocabulary(b)
	for b.Loop() {
		NewVocabulary(pieces, nil)
	}
}

// TestPeople walks a text of a JSON-like grammar over a real vocabulary, comparing each mask with what every token
// says.
func TestPeople(t *testing.T) {
	v, pieces := realVocabulary(t)
	m := NewMatcher(buildPeople(t), v)
	sample := 7 // all of the vocabulary takes minutes
	if testing.Short() {
		sample = 70
	}
	for _, token := range tokenise(pieces, someone) {
		mask := m.Mask()
		if !has(mask, int(token)) {
			t.Fatalf("token %q is not allowed", pieces[token])
		}
		for id, p := range pieces {
			if len(p) == 0 || id%sample != 0 && id != int(token) {
				continue
			}
			c := m.Clone()
			if err := c.AcceptBytes(p); (err == nil) != has(mask, id) {
				t.Fatalf("before %q: token %d (%q): mask %v, accepted: %v", pieces[token], id, p, has(mask, id), err)
			}
		}
		if err := m.Accept(token); err != nil {
			t.Fatal(err)
		}
	}
	if !m.Done() {
		t.Fatal("the text is not complete")
	}
}
