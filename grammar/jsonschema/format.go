package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Parts of the formats below, in RE2's syntax.
const (
	fmtHex   = `[0-9A-Fa-f]`
	fmtPct   = `%[0-9A-Fa-f]{2}`
	fmtOctet = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	fmtIPv4  = `(?:` + fmtOctet + `\.){3}` + fmtOctet
	fmtLabel = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	fmtHost  = fmtLabel + `(?:\.` + fmtLabel + `)*`
	fmtDay   = `(?:[0-9]{4}` +
		`-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|` +
		`2[0-8]))|` + fmtLeapYear + `-02-29)`
	fmtLeapYear = `(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	fmtZone     = `(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	fmtClock    = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?` + fmtZone
	fmtAtom     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	fmtUnused   = `A-Za-z0-9._~!$&'()*+,;=-` // unreserved and sub-delims of RFC 3986; the dash is last
	// fmtUCS is ucschar of RFC 3987.
	fmtUCS = `\x{A0}-\x{D7FF}\x{F900}-\x{FDCF}\x{FDF0}-\x{FFEF}\x{10000}-\x{1FFFD}\x{20000}-\x{2FFFD}\x{30000}` +
		`-\x{3FFFD}\x{40000}-\x{4FFFD}\x{50000}-\x{5FFFD}\x{60000}-\x{6FFFD}\x{70000}-\x{7FFFD}\x{80000}-\x{8FFFD}` +
		`\x{90000}-\x{9FFFD}\x{A0000}-\x{AFFFD}\x{B0000}-\x{BFFFD}\x{C0000}-\x{CFFFD}\x{D0000}-\x{DFFFD}\x{E1000}` +
		`-\x{EFFFD}`
	fmtSemver = `(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}(?:-` + fmtPre + `(?:\.` + fmtPre +
		`)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?`
	fmtPre     = `(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)`
	fmtPointer = `(?:/(?:[^~/]|~[01])*)*`
	fmtVar     = `(?:[A-Za-z0-9_]|` + fmtPct + `)(?:\.?(?:[A-Za-z0-9_]|` + fmtPct + `))*`
	fmtVarSpec = fmtVar + `(?::[1-9][0-9]{0,3}|\*)?`
)

// formats are the formats that are enforced, each with an expression of the whole string and the text that it is from.
var formats = map[string]struct{ pattern, source string }{
	"date":                  {fmtDay, "RFC 3339, leap years counted"},
	"time":                  {fmtClock, "RFC 3339, with an offset; second 60 where it is 23:59:60 UTC"},
	"date-time":             {fmtDay + `[Tt]` + fmtClock, "RFC 3339"},
	"duration":              {fmtDuration(), "RFC 3339, appendix A"},
	"email":                 {fmtEmail(), "RFC 5321, 4.1.2: a local part of 64, 254 in all"},
	"hostname":              {fmtHost, "RFC 1123: labels of 63, 253 in all"},
	"ipv4":                  {fmtIPv4, "RFC 2673, 3.2"},
	"ipv6":                  {fmtIPv6(), "RFC 4291, 2.2"},
	"uri":                   {fmtURI(fmtUnused), "RFC 3986"},
	"uri-reference":         {fmtReference(fmtUnused), "RFC 3986"},
	"iri":                   {fmtURI(fmtUCS + fmtUnused), "RFC 3987"},
	"iri-reference":         {fmtReference(fmtUCS + fmtUnused), "RFC 3987"},
	"uri-template":          {fmtTemplate(), "RFC 6570"},
	"semver":                {fmtSemver, "semver.org 2.0.0; not of the standard"},
	"uuid":                  {fmtHex + `{8}(?:-` + fmtHex + `{4}){3}-` + fmtHex + `{12}`, "RFC 4122"},
	"json-pointer":          {fmtPointer, "RFC 6901"},
	"relative-json-pointer": {`(?:0|[1-9][0-9]*)(?:#|` + fmtPointer + `)`, "draft-bhutton-relative-json-pointer-00"},
}

// refusedFormats are formats of the standard that no regular expression decides.
var refusedFormats = []string{"idn-email", "idn-hostname", "regex"}

func fmtDuration() string {
	return `P(?:(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:` + fmtDurationTime() + `)?|` +
		fmtDurationTime() + `|[0-9]+W)`
}

func fmtDurationTime() string {
	return `T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)`
}

// fmtLocal is the local part of an email address. A quoted one has no escapes: validators differ on them.
const fmtLocal = `(?:` + fmtAtom + `(?:\.` + fmtAtom + `)*|"[ !#-\[\]-~]*")`

func fmtEmail() string {
	return `@(?:` + fmtHost + `|\[(?:` + fmtIPv4 + `|IPv6:` + fmtIPv6() + `)\])`
}

// fmtIPv6 returns the productions of IPv6address in RFC 3986.
func fmtIPv6() string {
	h := fmtHex + `{1,4}`
	last := `(?:` + h + `:` + h + `|` + fmtIPv4 + `)`
	alts := []string{`(?:` + h + `:){6}` + last, `::(?:` + h + `:){5}` + last}
	for n := 4; n >= 0; n-- { // n groups behind the gap and before the last 32 bits
		alts = append(alts, fmt.Sprintf(`(?:(?:%s:){0,%d}%s)?::(?:%s:){%d}%s`, h, 4-n, h, h, n, last))
	}
	alts = append(alts, `(?:(?:`+h+`:){0,5}`+h+`)?::`+h, `(?:(?:`+h+`:){0,6}`+h+`)?::`)
	return `(?:` + strings.Join(alts, "|") + `)`
}

func fmtAuthority(chars string) string {
	return `(?:(?:[:` + chars + `]|` + fmtPct + `)*@)?(?:\[(?:` + fmtIPv6() + `|v` + fmtHex + `+\.[:` + fmtUnused +
		`]+)\]|(?:[` + chars + `]|` + fmtPct + `)*)(?::[0-9]*)?`
}

// fmtTail returns the query and the fragment of a URI.
func fmtTail(chars string) string {
	part := `(?:[/?:@` + chars + `]|` + fmtPct + `)*`
	return `(?:\?` + part + `)?(?:#` + part + `)?`
}

func fmtPath(chars string) (pchar, rest string) {
	pchar = `(?:[:@` + chars + `]|` + fmtPct + `)`
	return pchar, `(?:/` + pchar + `*)*`
}

func fmtURI(chars string) string {
	pchar, rest := fmtPath(chars)
	return `[A-Za-z][A-Za-z0-9+.-]*:(?://` + fmtAuthority(chars) + rest + `|/(?:` + pchar + `+` + rest + `)?|` + pchar +
		`+` + rest + `|)` + fmtTail(chars)
}

func fmtReference(chars string) string {
	pchar, rest := fmtPath(chars)
	first := `(?:[@` + chars + `]|` + fmtPct + `)+`
	relative := `(?://` + fmtAuthority(chars) + rest + `|/(?:` + pchar + `+` + rest + `)?|` + first + rest + `|)` +
		fmtTail(chars)
	return `(?:` + fmtURI(chars) + `|` + relative + `)`
}

func fmtTemplate() string {
	literal := `[\x21\x23\x24\x26\x28-\x3B\x3D\x3F-\x5B\x5D\x5F\x61-\x7A\x7E` + fmtUCS + `\x{E000}-\x{F8FF}]`
	return `(?:` + literal + `|` + fmtPct + `|\{[+#./;?&=,!@|]?` + fmtVarSpec + `(?:,` + fmtVarSpec + `)*\})*`
}

// format returns the strings of the format called name; known is false for names that mean nothing here, which are
// annotations.
func (c *compiler) format(name string) (e regex.Expr, known bool, err error) {
	if slices.Contains(refusedFormats, name) {
		return 0, true, fmt.Errorf("%q cannot be enforced", name)
	}
	f, ok := formats[name]
	if !ok {
		return 0, false, nil
	}
	if e, ok := c.formats[name]; ok {
		return e, true, nil
	}
	if e, err = c.s.Parse(f.pattern, regex.Whole); err != nil {
		return 0, true, err
	}
	switch name {
	case "hostname":
		e = c.s.And(e, c.s.Repeat(c.s.AnyRune(), 1, 253))
	case "email":
		local, err := c.s.Parse(fmtLocal, regex.Whole)
		if err != nil {
			return 0, true, err
		}
		e = c.s.Concat(c.s.And(local, c.s.Repeat(c.s.AnyRune(), 1, 64)), e)
		e = c.s.And(e, c.s.Repeat(c.s.AnyRune(), 1, 254))
	case "time", "date-time":
		leap := c.leapSeconds()
		if name == "date-time" {
			day, err := c.s.Parse(fmtDay+`[Tt]`, regex.Whole)
			if err != nil {
				return 0, true, err
			}
			leap = c.s.Concat(day, leap)
		}
		e = c.s.Or(e, leap)
	}
	c.formats[name] = e
	return e, true, nil
}

// leapSeconds are times of second 60, which is 23:59:60 UTC. Local time is 23:59 plus the offset; minutes of an offset
// to the east carry into the hour. Hours and minutes are tied to those of the offset apart, by an alternative for each
// value, and both ties are intersected: an alternative for each pair would be 2,880.
func (c *compiler) leapSeconds() regex.Expr {
	s := c.s
	digit := s.Bytes(regex.ByteRange('0', '9'))
	two := s.Concat(digit, digit)
	second := s.Concat(s.Literal(":60"), s.Optional(s.Concat(s.Byte('.'), digit, s.Star(digit))))
	minutes := func(sign byte, m int) regex.Expr { // of the time, and of the offset
		local := 59 - m
		if sign == '+' {
			local = (59 + m) % 60
		}
		return s.Concat(two, s.Byte(':'), s.Literal(fmt.Sprintf("%02d", local)), second, s.Byte(sign), two,
			s.Literal(fmt.Sprintf(":%02d", m)))
	}
	hours := func(sign byte, carry int) regex.Expr {
		alts := make([]regex.Expr, 24)
		for h := range alts {
			local := 23 - h
			if sign == '+' {
				local = (23 + h + carry) % 24
			}
			alts[h] = s.Concat(s.Literal(fmt.Sprintf("%02d:", local)), two, second, s.Byte(sign),
				s.Literal(fmt.Sprintf("%02d:", h)), two)
		}
		return s.Or(alts...)
	}
	east, west := make([]regex.Expr, 59), make([]regex.Expr, 60)
	for m := range west {
		west[m] = minutes('-', m)
		if m > 0 {
			east[m-1] = minutes('+', m)
		}
	}
	return s.Or(s.Concat(s.Literal("23:59"), second, s.Bytes(regex.ByteOf("Zz"))),
		s.And(hours('+', 0), minutes('+', 0)), s.And(hours('+', 1), s.Or(east...)), s.And(hours('-', 0), s.Or(west...)))
}
