package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Parts of the formats below, in RE2's syntax.
const (
	fmtHex      = `[0-9A-Fa-f]`
	fmtPct      = `%[0-9A-Fa-f]{2}`
	fmtOctet    = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	fmtIPv4     = `(?:` + fmtOctet + `\.){3}` + fmtOctet
	fmtLabel    = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	fmtHost     = fmtLabel + `(?:\.` + fmtLabel + `)*`
	fmtDay      = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + fmtLeapYear + `-02-29)`
	fmtLeapYear = `(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	fmtZone     = `(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	fmtClock    = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?` + fmtZone
	fmtAtom     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	fmtUnused   = `A-Za-z0-9._~!$&'()*+,;=-` // unreserved and sub-delims of RFC 3986
	// fmtUCS is ucschar of RFC 3987.
	fmtUCS     = `\x{A0}-\x{D7FF}\x{F900}-\x{FDCF}\x{FDF0}-\x{FFEF}\x{10000}-\x{1FFFD}\x{20000}-\x{2FFFD}\x{30000}-\x{3FFFD}\x{40000}-\x{4FFFD}\x{50000}-\x{5FFFD}\x{60000}-\x{6FFFD}\x{70000}-\x{7FFFD}\x{80000}-\x{8FFFD}\x{90000}-\x{9FFFD}\x{A0000}-\x{AFFFD}\x{B0000}-\x{BFFFD}\x{C0000}-\x{CFFFD}\x{D0000}-\x{DFFFD}\x{E1000}-\x{EFFFD}`
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
	"email":                 {fmtEmail(), "RFC 5321, 4.1.2"},
	"hostname":              {fmtHost, "RFC 1123: labels of 63, 253 in all"},
	"ipv4":                  {fmtIPv4, "RFC 2673, 3.2"},
	"ipv6":                  {fmtIPv6(), "RFC 4291, 2.2"},
	"uri":                   {fmtURI(fmtUnused), "RFC 3986"},
	"uri-reference":         {fmtReference(fmtUnused), "RFC 3986"},
	"iri":                   {fmtURI(fmtUnused + fmtUCS), "RFC 3987"},
	"iri-reference":         {fmtReference(fmtUnused + fmtUCS), "RFC 3987"},
	"uri-template":          {fmtTemplate(), "RFC 6570"},
	"uuid":                  {fmtHex + `{8}(?:-` + fmtHex + `{4}){3}-` + fmtHex + `{12}`, "RFC 4122"},
	"json-pointer":          {fmtPointer, "RFC 6901"},
	"relative-json-pointer": {`(?:0|[1-9][0-9]*)(?:#|` + fmtPointer + `)`, "draft-bhutton-relative-json-pointer-00"},
}

// refusedFormats are formats of the standard that no regular expression decides.
var refusedFormats = []string{"idn-email", "idn-hostname", "regex"}

func fmtDuration() string {
	return `P(?:(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:` + fmtDurationTime() + `)?|` + fmtDurationTime() + `|[0-9]+W)`
}

func fmtDurationTime() string {
	return `T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)`
}

func fmtEmail() string {
	local := fmtAtom + `(?:\.` + fmtAtom + `)*|"(?:[ !#-\[\]-~]|\\[ -~])*"`
	return `(?:` + local + `)@(?:` + fmtHost + `|\[(?:` + fmtIPv4 + `|IPv6:` + fmtIPv6() + `)\])`
}

// fmtIPv6 is the productions of IPv6address in RFC 3986.
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
	return `(?:(?:[:` + chars + `]|` + fmtPct + `)*@)?(?:\[(?:` + fmtIPv6() + `|v` + fmtHex + `+\.[:` + fmtUnused + `]+)\]|(?:[` + chars + `]|` + fmtPct + `)*)(?::[0-9]*)?`
}

// fmtTail is the query and the fragment of a URI.
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
	return `[A-Za-z][A-Za-z0-9+.-]*:(?://` + fmtAuthority(chars) + rest + `|/(?:` + pchar + `+` + rest + `)?|` + pchar + `+` + rest + `|)` + fmtTail(chars)
}

func fmtReference(chars string) string {
	pchar, rest := fmtPath(chars)
	first := `(?:[@` + chars + `]|` + fmtPct + `)+`
	relative := `(?://` + fmtAuthority(chars) + rest + `|/(?:` + pchar + `+` + rest + `)?|` + first + rest + `|)` + fmtTail(chars)
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
	case "time", "date-time":
		leap, err := c.leapSeconds()
		if err != nil {
			return 0, true, err
		}
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

// leapSeconds are times of second 60, which is 23:59:60 UTC. Hours and minutes are tied to those of the offset, each
// by an alternative for each value, and both ties are intersected: an alternative for each pair would be 2,880.
func (c *compiler) leapSeconds() (regex.Expr, error) {
	var err error
	parse := func(format string, a ...any) regex.Expr {
		e, bad := c.s.Parse(fmt.Sprintf(format, a...), regex.Whole)
		if bad != nil {
			err = bad
		}
		return e
	}
	const second, any2 = `:60(?:\.[0-9]+)?`, `[0-9][0-9]`
	alts := []regex.Expr{parse(`23:59` + second + `[Zz]`)}
	for _, sign := range []int{1, -1} {
		mark := `\+`
		if sign < 0 {
			mark = `-`
		}
		// Local time is 23:59 plus the offset. Minutes of the offset carry into the hour, except none to the east and all to
		// the west.
		var exact, carried, minutes []regex.Expr
		for h := range 24 {
			local := (23 + sign*h + 24) % 24
			exact = append(exact, parse(`%02d:`+any2+second+mark+`%02d:`+any2, local, h))
			carried = append(carried, parse(`%02d:`+any2+second+mark+`%02d:`+any2, (local+1)%24, h))
		}
		whole := parse(`%s:59`+second+mark+any2+`:00`, any2)
		for m := 1; m < 60; m++ {
			minutes = append(minutes, parse(any2+`:%02d`+second+mark+any2+`:%02d`, (59+sign*m)%60, m))
		}
		alts = append(alts, c.s.And(c.s.Or(exact...), whole))
		if sign > 0 {
			alts = append(alts, c.s.And(c.s.Or(carried...), c.s.Or(minutes...)))
		} else {
			alts = append(alts, c.s.And(c.s.Or(exact...), c.s.Or(minutes...)))
		}
	}
	return c.s.Or(alts...), err
}
