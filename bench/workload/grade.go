package workload

import (
	"math/big"
	"strings"
)

// Right reports whether text answers the request rightly.
func (r *Request) Right(text string) bool {
	switch r.Grader {
	case "math":
		got, ok := Boxed(text)
		if !ok { // without a box the last line is the answer
			lines := strings.Split(strings.TrimSpace(text), "\n")
			got = lines[len(lines)-1]
		}
		return equalMath(got, r.Answer)
	default:
		return strings.TrimSpace(text) == r.Answer
	}
}

// Boxed returns the content of the last \boxed{…} of a text.
func Boxed(text string) (string, bool) {
	i := strings.LastIndex(text, `\boxed{`)
	if i < 0 {
		return "", false
	}
	rest, depth := text[i+len(`\boxed{`):], 1
	for j, c := range rest {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return rest[:j], true
			}
		}
	}
	return "", false
}

// equalMath compares two answers: as numbers where both are, else as text without what LaTeX allows in several ways.
// It is strict: an equivalent form that it does not know counts as wrong.
func equalMath(a, b string) bool {
	a, b = plain(a), plain(b)
	if a == b {
		return a != ""
	}
	x, okx := rational(a)
	y, oky := rational(b)
	return okx && oky && x.Cmp(y) == 0
}

var latex = strings.NewReplacer(`\left`, "", `\right`, "", `\!`, "", `\,`, "", `\;`, "", `\ `, "", "$", "", `\dfrac`,
	`\frac`, `\tfrac`, `\frac`, `^\circ`, "",
	`^{\circ}`, "", `\%`, "", "%", "", " ", "", "\n", "", "{,}", "", "−", "-")

func plain(s string) string {
	s = strings.TrimSuffix(latex.Replace(strings.TrimSpace(s)), ".")
	for _, command := range []string{`\text{`, `\mathrm{`, `\textbf{`} {
		if rest, ok := strings.CutPrefix(s, command); ok && strings.HasSuffix(rest, "}") &&
			strings.Count(rest, "{") == 0 {
			s = strings.TrimSuffix(rest, "}")
		}
	}
	// 1,234 is a number; (1,234) are two.
	if i := strings.IndexByte(s, ','); i > 0 && !strings.ContainsAny(s, "()[]{}") &&
		digits(strings.ReplaceAll(s, ",", "")) && len(s)-strings.LastIndexByte(s, ',') == 4 {
		s = strings.ReplaceAll(s, ",", "")
	}
	return s
}

func digits(s string) bool { return s != "" && strings.Trim(s, "-0123456789.") == "" }

func rational(s string) (*big.Rat, bool) {
	sign := ""
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		sign, s = "-", rest
	}
	if rest, ok := strings.CutPrefix(s, `\frac{`); ok {
		top, bottom, ok := strings.Cut(rest, "}{")
		if !ok || !strings.HasSuffix(bottom, "}") {
			return nil, false
		}
		s = top + "/" + strings.TrimSuffix(bottom, "}")
	} else if rest, ok := strings.CutPrefix(s, `\frac`); ok && len(rest) == 2 {
		s = rest[:1] + "/" + rest[1:]
	}
	if len(s) > 40 || s == "" || strings.Trim(s, "0123456789./-") != "" {
		return nil, false // an exponent could ask for a number of any size
	}
	return new(big.Rat).SetString(sign + s)
}
