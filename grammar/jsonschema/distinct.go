package jsonschema

import (
	"strings"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Names and items that must differ from each other: the automaton remembers them (grammar.Key).

// Values of keys begin with a tag, so that an array's string and number of the same text differ.
const (
	stringTag = "s"
	numberTag = "n"
)

// tagged returns the values that begin with tag, without it.
func tagged(values []string, tag string) (out []string) {
	for _, v := range values {
		if rest, ok := strings.CutPrefix(v, tag); ok {
			out = append(out, rest)
		}
	}
	return out
}

// stringKey returns the key of JSON strings in texts, which are decoded.
func (c *compiler) stringKey(texts regex.Expr) *grammar.Key {
	s, quote := c.s, c.marks.quote
	written := func(e regex.Expr) regex.Expr { return s.Concat(quote, s.JSONString(e), quote) }
	return &grammar.Key{Texts: written(texts),
		Value: func(text []byte) string {
			if v, err := parseValue(text, 1); err == nil {
				return stringTag + v.text
			}
			return stringTag + string(text)
		},
		Without: func(values []string) regex.Expr {
			return written(s.Minus(texts, s.Literals(tagged(values, stringTag))))
		},
	}
}

// numberKey returns the key of the numbers in texts: those that are equal are one.
func (c *compiler) numberKey(texts regex.Expr) *grammar.Key {
	s, num := c.s, c.num
	return &grammar.Key{Texts: texts,
		Value: func(text []byte) string {
			if d, err := parseDecimal(string(text)); err == nil {
				return numberTag + d.String()
			}
			return numberTag + string(text)
		},
		Without: func(values []string) regex.Expr {
			var equal []regex.Expr
			for _, v := range tagged(values, numberTag) {
				if d, err := parseDecimal(v); err == nil {
					equal = append(equal, num.equal(d))
				} else {
					equal = append(equal, s.Literal(v))
				}
			}
			return s.Minus(texts, s.Or(equal...))
		},
	}
}

// plenty says how many texts there are.
type plenty uint8

const (
	unknown plenty = iota
	few
	many
)

// maxTextWork is the most bytes of beginnings that texts looks at: tens of milliseconds.
const maxTextWork = 1 << 19

// texts returns the texts of e if there are at most most (few), or says that there are more (many). It counts the
// beginnings of one length, each of which has at least one text.
func (c *compiler) texts(e regex.Expr, most int) ([]string, plenty) {
	type beginning struct {
		text string
		rest regex.Expr
	}
	var out []string
	level := []beginning{{"", e}}
	for work := 0; ; {
		var next []beginning
		for _, b := range level {
			if c.s.Nullable(b.rest) {
				out = append(out, b.text)
			}
			first := c.s.First(b.rest)
			for ch := range 256 {
				if !first.Has(byte(ch)) {
					continue
				}
				if work += 1 + len(b.text); work > maxTextWork {
					return nil, unknown
				}
				if rest := c.s.Derive(b.rest, byte(ch)); rest != c.s.Nothing() {
					next = append(next, beginning{b.text + string([]byte{byte(ch)}), rest})
				}
			}
			if c.s.Err() != nil {
				return nil, unknown
			}
			if len(out)+len(next) > most {
				return nil, many
			}
		}
		if level = next; len(level) == 0 {
			return out, few
		}
	}
}
