package pdf

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"
)

const (
	maxCodes  = 1 << 17 // of a font's table
	maxWidths = 1 << 16
	// wide is the width of a character whose font does not say it, in thousandths of its size: that of most of the
	// fonts that every reader has.
	wide = 550
)

// font says what the codes of strings mean.
type font struct {
	table  [256]string     // of fonts with codes of a byte
	long   map[code]string // by a table of the file
	sizes  [5]bool         // the lengths of codes that the table has
	double bool            // codes of two bytes, unless sizes has others
	widths map[uint32]float64
	usual  float64 // width of the others
}

// code is a code of n bytes.
type code struct {
	n     uint8
	value uint32
}

// fontOf returns a font of a page, nil for one that is missing.
func (d *document) fontOf(resources pdf.Value, name string) *font {
	v := resources.Key("Font").Key(name)
	if v.Kind() != pdf.Dict {
		return nil
	}
	key := v.String()
	if len(key) > 64<<10 {
		key = ""
	}
	if f := d.fonts[key]; f != nil && key != "" {
		return f
	}
	f := d.newFont(v)
	if len(d.fonts) < 1000 {
		d.fonts[key] = f
	}
	return f
}

func (d *document) newFont(v pdf.Value) *font {
	f := &font{widths: map[uint32]float64{}, usual: wide, double: v.Key("Subtype").Name() == "Type0"}
	if table := v.Key("ToUnicode"); table.Kind() == pdf.Stream {
		f.readTable(d.read(table))
	}
	if f.double {
		f.compositeWidths(v.Key("DescendantFonts").Index(0))
		return f
	}
	first := v.Key("FirstChar").Int64()
	widths := v.Key("Widths")
	scale := 1.0
	if m := v.Key("FontMatrix"); m.Len() == 6 && m.Index(0).Float64() > 0 { // of glyphs that the file draws
		scale = m.Index(0).Float64() * 1000
	}
	for i := range min(widths.Len(), 256) {
		f.widths[uint32(first)+uint32(i)] = widths.Index(i).Float64() * scale
	}
	of := pdf.Font{V: v}
	encoder := of.Encoder()
	for c := range f.table {
		f.table[c] = simple(encoder, byte(c))
	}
	return f
}

// simple returns the meaning of a byte.
func simple(e pdf.TextEncoding, c byte) string {
	s := e.Decode(string([]byte{c}))
	if !utf8.ValidString(s) { // a code that the library leaves as it is
		return string(rune(c))
	}
	return s
}

// compositeWidths reads the widths of a font with codes of several bytes, which are nearly always numbers of glyphs.
func (f *font) compositeWidths(v pdf.Value) {
	f.usual = 1000
	if w := v.Key("DW"); w.Kind() == pdf.Integer || w.Kind() == pdf.Real {
		f.usual = w.Float64()
	}
	list := v.Key("W")
	for i := 0; i+1 < list.Len() && len(f.widths) < maxWidths; {
		from, next := uint32(list.Index(i).Int64()), list.Index(i+1)
		if next.Kind() == pdf.Array {
			for k := range min(next.Len(), maxWidths) {
				f.widths[from+uint32(k)] = next.Index(k).Float64()
			}
			i += 2
			continue
		}
		to, width := uint32(next.Int64()), list.Index(i+2).Float64()
		for c := from; c <= to && c-from < maxWidths; c++ {
			f.widths[c] = width
		}
		i += 3
	}
}

// readTable reads a table of characters (ToUnicode).
func (f *font) readTable(b []byte) {
	f.long = map[code]string{}
	l := &lexer{b: b}
	var args []token
	for {
		t := l.next(0)
		if t.kind == end {
			return
		}
		if t.kind != operator {
			args = append(args, t)
			continue
		}
		switch t.str {
		case "endcodespacerange":
			for _, a := range args {
				if n := len(a.str); a.kind == text && n >= 1 && n <= 4 {
					f.sizes[n] = true
				}
			}
		case "endbfchar":
			for i := 0; i+1 < len(args); i += 2 {
				f.add(codeOf(args[i].str), unicode(args[i+1].str))
			}
		case "endbfrange":
			for i := 0; i+2 < len(args); i += 3 {
				f.addRange(codeOf(args[i].str), codeOf(args[i+1].str), args[i+2])
			}
		}
		args = args[:0]
	}
}

func (f *font) add(c code, s string) {
	if c.n > 0 && len(f.long) < maxCodes {
		f.long[c] = s
	}
}

// addRange adds the codes from lo to hi, whose meanings are listed in to, or count up from it.
func (f *font) addRange(lo, hi code, to token) {
	if lo.n != hi.n || hi.value < lo.value {
		return
	}
	for i := uint32(0); i <= hi.value-lo.value && len(f.long) < maxCodes; i++ {
		c := code{lo.n, lo.value + i}
		switch {
		case to.kind == list && int(i) < len(to.list):
			f.add(c, unicode(to.list[i].str))
		case to.kind == text && to.str != "":
			b := []byte(to.str)
			last := len(b) - 1
			n := uint32(b[last]) + i
			if b[last] = byte(n); last > 0 {
				b[last-1] += byte(n >> 8)
			}
			f.add(c, unicode(string(b)))
		default:
			return
		}
	}
}

func codeOf(s string) (c code) {
	if len(s) > 4 {
		return code{}
	}
	c.n = uint8(len(s))
	for i := range len(s) {
		c.value = c.value<<8 | uint32(s[i])
	}
	return c
}

// unicode decodes UTF-16, high bytes first; a single byte is a character.
func unicode(s string) string {
	if len(s) == 1 {
		return string(rune(s[0]))
	}
	units := make([]uint16, len(s)/2)
	for i := range units {
		units[i] = uint16(s[2*i])<<8 | uint16(s[2*i+1])
	}
	return string(utf16.Decode(units))
}

// glyph is the first character of a string: its meaning, "" if it is not known, its width in thousandths of the font's
// size, and whether spacing between words applies behind it.
type glyph struct {
	text  string
	width float64
	space bool
}

// cut returns the first character of s, which is not empty, and the rest.
func (f *font) cut(s string) (g glyph, rest string) {
	n := f.length(s)
	c := codeOf(s[:n])
	if w, ok := f.widths[c.value]; ok {
		g.width = w
	} else {
		g.width = f.usual
	}
	g.text = f.long[c]
	if g.text == "" && !f.double {
		g.text = f.table[s[0]]
	}
	g.space = n == 1 && s[0] == ' '
	return g, s[n:]
}

// length returns the number of bytes of the first code of s.
func (f *font) length(s string) int {
	if !f.double {
		return 1
	}
	for n := 1; n <= min(4, len(s)); n++ {
		if _, ok := f.long[codeOf(s[:n])]; ok && f.sizes[n] {
			return n
		}
	}
	for n := 2; n <= 4; n++ {
		if f.sizes[n] {
			return min(n, len(s))
		}
	}
	if f.sizes[1] {
		return 1
	}
	return min(2, len(s))
}

// ligatures are characters that stand for several.
var ligatures = strings.NewReplacer("\ufb00", "ff", "\ufb01", "fi", "\ufb02", "fl", "\ufb03", "ffi", "\ufb04", "ffl",
	"\u00ad", "", "\u00a0", " ", "\x00", "")
