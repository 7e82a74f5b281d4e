package pdf

import (
	"math"
	"strings"

	"github.com/ledongthuc/pdf"
)

// matrix is the affine map (x, y) → (ax + cy + e, bx + dy + f).
type matrix struct{ a, b, c, d, e, f float64 }

// times returns the map m, and then n.
func (m matrix) times(n matrix) matrix {
	return matrix{m.a*n.a + m.b*n.c, m.a*n.b + m.b*n.d, m.c*n.a + m.d*n.c, m.c*n.b + m.d*n.d,
		m.e*n.a + m.f*n.c + n.e, m.e*n.b + m.f*n.d + n.f}
}

func shift(x, y float64) matrix { return matrix{1, 0, 0, 1, x, y} }

// state is the graphics state that the operators of a page set.
type state struct {
	user       matrix // of the page
	text, line matrix // of the next character, of the line's beginning
	font       *font
	size       float64 // of the font
	chars      float64 // more space behind each character
	words      float64 // and behind each space
	scale      float64 // of widths
	leading    float64 // between lines
	rise       float64
}

func newState() state {
	one := shift(0, 0)
	return state{user: one, text: one, line: one, scale: 1}
}

// writer puts the text of a page together. Its units are the page's.
type writer struct {
	doc *document
	out strings.Builder

	any     bool    // something was written
	angle   float64 // of the last string's base line
	x, y    float64 // its end, along the line and across
	size    float64
	between bool // the text ends with space
}

const maxStates = 256 // that are saved at once

// run carries out the operators of a page, or of a form within it.
func (w *writer) run(b []byte, resources pdf.Value, s state, forms int) {
	l := &lexer{b: b}
	var args []token
	var saved []state
	num := func(i int) float64 {
		if i < len(args) {
			return args[i].num
		}
		return 0
	}
	str := func() string {
		if len(args) == 0 {
			return ""
		}
		return args[len(args)-1].str
	}
	for w.out.Len() <= MaxText {
		t := l.next(0)
		if t.kind == end {
			return
		}
		if t.kind != operator {
			if len(args) < 64 {
				args = append(args, t)
			}
			continue
		}
		switch t.str {
		case "q":
			if len(saved) < maxStates {
				saved = append(saved, s)
			}
		case "Q":
			if n := len(saved); n > 0 {
				s, saved = saved[n-1], saved[:n-1]
			}
		case "cm":
			s.user = matrix{num(0), num(1), num(2), num(3), num(4), num(5)}.times(s.user)
		case "BT":
			s.line = shift(0, 0)
			s.text = s.line
		case "Tf":
			if len(args) == 2 {
				s.font, s.size = w.doc.fontOf(resources, args[0].str), num(1)
			}
		case "Tc":
			s.chars = num(0)
		case "Tw":
			s.words = num(0)
		case "Tz":
			s.scale = num(0) / 100
		case "TL":
			s.leading = num(0)
		case "Ts":
			s.rise = num(0)
		case "Tm":
			s.line = matrix{num(0), num(1), num(2), num(3), num(4), num(5)}
			s.text = s.line
		case "Td", "TD":
			if t.str == "TD" {
				s.leading = -num(1)
			}
			s.newLine(num(0), num(1))
		case "T*":
			s.newLine(0, -s.leading)
		case "Tj":
			w.show(&s, str())
		case "'":
			s.newLine(0, -s.leading)
			w.show(&s, str())
		case "\"":
			s.words, s.chars = num(0), num(1)
			s.newLine(0, -s.leading)
			w.show(&s, str())
		case "TJ":
			if len(args) > 0 {
				w.showAll(&s, args[0].list)
			}
		case "ID":
			l.skipImage()
		case "Do":
			w.form(resources.Key("XObject").Key(str()), resources, s, forms)
		}
		args = args[:0]
	}
}

// form carries out the operators of a form.
func (w *writer) form(v, resources pdf.Value, s state, forms int) {
	if forms >= maxForms || v.Kind() != pdf.Stream || v.Key("Subtype").Name() != "Form" {
		return
	}
	if m := v.Key("Matrix"); m.Len() == 6 {
		n := func(i int) float64 { return m.Index(i).Float64() }
		s.user = matrix{n(0), n(1), n(2), n(3), n(4), n(5)}.times(s.user)
	}
	if own := v.Key("Resources"); own.Kind() == pdf.Dict {
		resources = own
	}
	w.run(w.doc.read(v), resources, s, forms+1)
}

func (s *state) newLine(x, y float64) {
	s.line = shift(x, y).times(s.line)
	s.text = s.line
}

// showAll writes strings with moves between them.
func (w *writer) showAll(s *state, list []token) {
	for _, t := range list {
		switch t.kind {
		case text:
			w.show(s, t.str)
		case number:
			s.text = shift(-t.num/1000*s.size*s.scale, 0).times(s.text)
		}
	}
}

// show writes a string.
func (w *writer) show(s *state, raw string) {
	if s.font == nil || raw == "" {
		return
	}
	w.place(s)
	for raw != "" {
		var g glyph
		g, raw = s.font.cut(raw)
		if g.text == "" {
			w.doc.unknown++
		}
		w.write(g.text)
		step := g.width/1000*s.size + s.chars
		if g.space {
			step += s.words
		}
		s.text = shift(step*s.scale, 0).times(s.text)
	}
	_, w.x, w.y, _ = where(s)
}

// where returns the angle of the base line, the position of the next character along and across it, and its size.
func where(s *state) (angle, x, y, size float64) {
	m := matrix{1, 0, 0, 1, 0, s.rise}.times(s.text).times(s.user)
	angle = math.Atan2(m.b, m.a)
	sin, cos := math.Sincos(angle)
	return angle, m.e*cos + m.f*sin, m.f*cos - m.e*sin, math.Abs(s.size) * math.Hypot(m.c, m.d)
}

// Shares of a character's size. A gap is a space between words from wordGap on; letters that a program moves apart have
// less. A base line that is further than sameLine is another line; one further than nextLine begins a paragraph.
const (
	wordGap  = 0.15
	backward = 0.5
	sameLine = 0.5
	nextLine = 1.9
)

// place writes the space or the line breaks between the last string and the one that begins here.
func (w *writer) place(s *state) {
	angle, x, y, size := where(s)
	if w.any {
		most := max(size, w.size)
		switch across := math.Abs(y - w.y); {
		case math.Abs(angle-w.angle) > 0.1 || across > nextLine*most:
			w.lines(2)
		case across > sameLine*most:
			w.lines(1)
		case !w.between && (x-w.x > wordGap*most || x-w.x < -backward*most):
			w.write(" ")
		}
	}
	w.any, w.angle, w.size = true, angle, size
}

// lines ends the line with n line breaks.
func (w *writer) lines(n int) {
	if w.out.Len() > 0 {
		w.out.WriteString("\n\n"[:n])
	}
	w.between = true
}

func (w *writer) write(s string) {
	for _, r := range ligatures.Replace(s) {
		gap := r <= ' '
		if gap && w.between {
			continue
		}
		if gap {
			r = ' '
		}
		w.between = gap
		w.out.WriteRune(r)
	}
}
