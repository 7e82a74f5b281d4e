// Package letters has Python's idea of letters: their case, and which characters are digits, numerals and blanks. Text
// in ASCII is by far the most frequent; the rest goes by Unicode's full mappings, under which ß becomes SS and a Σ at
// the end of a word ς. It takes strings and characters, and counts no cost: its caller does, before a call.
package letters

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// IsSpace is Python's str.isspace for one character.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// IsASCII reports whether every character of t is one of ASCII.
func IsASCII(t string) bool {
	for i := range len(t) {
		if t[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Upper is str.upper.
func Upper(t string) string {
	if IsASCII(t) {
		return strings.ToUpper(t)
	}
	return cases.Upper(language.Und).String(t)
}

// Lower is str.lower.
func Lower(t string) string {
	if IsASCII(t) {
		return strings.ToLower(t)
	}
	var b strings.Builder
	for i, r := range t {
		lowerAt(&b, t, i, r)
	}
	return b.String()
}

// lowerAt writes the small form of r, which is at i in t.
func lowerAt(b *strings.Builder, t string, i int, r rune) {
	switch r {
	case 'Σ':
		if finalSigma(t, i) {
			r = 'ς'
		} else {
			r = 'σ'
		}
	case 'İ':
		b.WriteString("i̇")
		return
	case utf8.RuneError: // or a byte that is no UTF-8
		_, n := utf8.DecodeRuneInString(t[i:])
		b.WriteString(t[i : i+n])
		return
	}
	b.WriteRune(unicode.ToLower(r))
}

// finalSigma reports whether the Σ at i has a letter before it and none after it, marks and such left aside.
func finalSigma(t string, i int) bool {
	before := strings.TrimRightFunc(t[:i], ignorable)
	after := strings.TrimLeftFunc(t[i+len("Σ"):], ignorable)
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(after)
	return before != "" && cased(last) && (after == "" || !cased(first))
}

// ignorable is Unicode's Case_Ignorable.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:^`·\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}

// IsUpper reports whether r is a capital letter, or counts as one.
func IsUpper(r rune) bool { return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r) }

// IsLower reports whether r is a small letter, or counts as one.
func IsLower(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }
func cased(r rune) bool   { return IsUpper(r) || IsLower(r) || unicode.IsTitle(r) }

// titleRune returns a character at the beginning of a word.
func titleRune(r rune) string {
	if c := unicode.ToTitle(r); c != r || r < utf8.RuneSelf || !IsLower(r) {
		return string(c)
	}
	return cases.Title(language.Und, cases.NoLower).String(string(r)) // ß, ŉ, ﬁ become two
}

// Title is str.title: a word begins after everything that has no case.
func Title(t string) string {
	var b strings.Builder
	inWord := false
	for i, r := range t {
		switch {
		case r == utf8.RuneError || inWord:
			lowerAt(&b, t, i, r)
		default:
			b.WriteString(titleRune(r))
		}
		inWord = cased(r)
	}
	return b.String()
}

// Capitalize is str.capitalize.
func Capitalize(t string) string {
	r, n := utf8.DecodeRuneInString(t)
	if n == 0 || r == utf8.RuneError {
		return Lower(t)
	}
	var b strings.Builder
	b.WriteString(titleRune(r))
	for i, r := range t[n:] {
		lowerAt(&b, t, n+i, r)
	}
	return b.String()
}

// OneCase is islower and isupper: some character has the case, none another.
func OneCase(t string, has, hasNot func(r rune) bool) bool {
	some := false
	for _, r := range t {
		if hasNot(r) || unicode.IsTitle(r) {
			return false
		}
		some = some || has(r)
	}
	return some
}

// IsDigit and IsNumeric are Python's: digits in circles and such, and the numerals of Chinese.
func IsDigit(r rune) bool {
	return unicode.IsDigit(r) || unicode.IsNumber(r) && (r == '²' || r == '³' || r == '¹' || in(r, digitRanges))
}

func IsNumeric(r rune) bool { return unicode.IsNumber(r) || in(r, numeralRanges) }

func in(r rune, ranges [][2]rune) bool {
	for _, x := range ranges {
		if r >= x[0] && r <= x[1] {
			return true
		}
	}
	return false
}

// digitRanges are the characters beyond Latin-1 that are digits without being decimal ones.
var digitRanges = [][2]rune{
	{0x1369, 0x1371}, {0x19da, 0x19da}, {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2460, 0x2468},
	{0x2474, 0x247c}, {0x2488, 0x2490}, {0x24ea, 0x24ea}, {0x24f5, 0x24fd}, {0x24ff, 0x24ff}, {0x2776, 0x277e},
	{0x2780, 0x2788}, {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a},
	{0x1f100, 0x1f10a},
}

// numeralRanges are the letters that are numerals.
var numeralRanges = [][2]rune{
	{0x3405, 0x3405}, {0x3483, 0x3483}, {0x382a, 0x382a}, {0x3b4d, 0x3b4d}, {0x4e00, 0x4e00}, {0x4e03, 0x4e03},
	{0x4e07, 0x4e07}, {0x4e09, 0x4e09}, {0x4e5d, 0x4e5d}, {0x4e8c, 0x4e8c}, {0x4e94, 0x4e94}, {0x4e96, 0x4e96},
	{0x4ebf, 0x4ec0}, {0x4edf, 0x4edf}, {0x4ee8, 0x4ee8}, {0x4f0d, 0x4f0d}, {0x4f70, 0x4f70}, {0x5104, 0x5104},
	{0x5146, 0x5146}, {0x5169, 0x5169}, {0x516b, 0x516b}, {0x516d, 0x516d}, {0x5341, 0x5341}, {0x5343, 0x5345},
	{0x534c, 0x534c}, {0x53c1, 0x53c4}, {0x56db, 0x56db}, {0x58f1, 0x58f1}, {0x58f9, 0x58f9}, {0x5e7a, 0x5e7a},
	{0x5efe, 0x5eff}, {0x5f0c, 0x5f0e}, {0x5f10, 0x5f10}, {0x62fe, 0x62fe}, {0x634c, 0x634c}, {0x67d2, 0x67d2},
	{0x6f06, 0x6f06}, {0x7396, 0x7396}, {0x767e, 0x767e}, {0x8086, 0x8086}, {0x842c, 0x842c}, {0x8cae, 0x8cae},
	{0x8cb3, 0x8cb3}, {0x8d30, 0x8d30}, {0x9621, 0x9621}, {0x9646, 0x9646}, {0x964c, 0x964c}, {0x9678, 0x9678},
	{0x96f6, 0x96f6}, {0xf96b, 0xf96b}, {0xf973, 0xf973}, {0xf978, 0xf978}, {0xf9b2, 0xf9b2}, {0xf9d1, 0xf9d1},
	{0xf9d3, 0xf9d3}, {0xf9fd, 0xf9fd}, {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2},
	{0x20121, 0x20121}, {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c},
	{0x20aea, 0x20aea}, {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390}, {0x22998, 0x22998},
	{0x23b1b, 0x23b1b}, {0x2626d, 0x2626d}, {0x2f890, 0x2f890},
}
