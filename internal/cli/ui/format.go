package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"
)

// Bytes is n in binary units with three significant digits: "7.45 GiB".
func Bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for units := "KMGTPE"; ; unit++ {
		if v < 1023.5 || unit == len(units)-1 {
			return significant(v) + " " + units[unit:unit+1] + "iB"
		}
		v /= 1024
	}
}

// Count is n with thousands separated: "131,072".
func Count[T ~int | ~int32 | ~int64 | ~uint64](n T) string {
	s := fmt.Sprint(n)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Large is n as people say model sizes: "135 M", "7.62 B".
func Large(n uint64) string {
	v := float64(n)
	for _, u := range []string{"", " k", " M", " B"} {
		if v < 999.5 || u == " B" {
			if u == "" {
				return strconv.FormatUint(n, 10)
			}
			return significant(v) + u
		}
		v /= 1000
	}
	return strconv.FormatUint(n, 10)
}

// significant prints v ≥ 0 with three significant digits and no exponent.
func significant(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Duration is d to three significant digits: "840 µs", "12.3 ms", "4.21 s", "3 m 05 s".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 9995*time.Millisecond/10: // 999.5 ms
		return significant(float64(d)/1e6) + " ms"
	case d < time.Minute:
		return significant(d.Seconds()) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %02d h", int(d.Hours())/24, int(d.Hours())%24)
}

// Rate returns a speed to three significant digits.
func Rate(v float64) string {
	if v < 0 {
		return "-" + significant(-v)
	}
	return significant(v)
}

// Bar returns a bar of width columns filled to fraction (0 … 1).
func Bar(fraction float64, width int) string {
	n := int(fraction*float64(width) + 0.5)
	n = min(max(n, 0), width)
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

// Spark draws values as a row of bars, one column each, scaled to the largest. Zero is a blank; whatever is above
// zero is seen.
func Spark[T ~int | ~int64 | ~uint64 | ~float64](values []T) string {
	const levels = "▁▂▃▄▅▆▇█"
	runes := []rune(levels)
	var top T
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		if v <= 0 {
			b.WriteByte(' ')
			continue
		}
		i := int(float64(v) / float64(top) * float64(len(runes)))
		b.WriteRune(runes[min(i, len(runes)-1)])
	}
	return b.String()
}

// Table aligns rows of two columns, a label and its value.
//
// text/tabwriter cannot: it counts a rune as one column, so CJK and emoji displace what follows, and the escapes of a
// colour as text. Columns also leaves columns out of a narrow window.
type Table struct {
	rows [][2]string
}

// Row adds a row; an empty value leaves the row out.
func (t *Table) Row(label, format string, a ...any) {
	if v := fmt.Sprintf(format, a...); v != "" {
		t.rows = append(t.rows, [2]string{label, v})
	}
}

// Gap adds an empty line.
func (t *Table) Gap() { t.rows = append(t.rows, [2]string{}) }

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// String returns the aligned rows, each ended by a newline, every label passed through style (nil = as it is).
func (t *Table) String(style func(string) string) string {
	width := 0
	for _, r := range t.rows {
		width = max(width, Width(r[0]))
	}
	var b strings.Builder
	for _, r := range t.rows {
		if r == [2]string{} {
			b.WriteByte('\n')
			continue
		}
		label := r[0] + strings.Repeat(" ", width-Width(r[0]))
		if style != nil {
			label = style(label)
		}
		b.WriteString(label + "  " + r[1] + "\n")
	}
	return b.String()
}

// Width returns the number of terminal columns that s takes.
func Width(s string) int { return uniseg.StringWidth(s) }

// Fit returns s, cut to width columns, the last of them "…", if it is wider. Escapes of colours are not counted.
func Fit(s string, width int) string {
	if plainWidth(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	var b strings.Builder
	used, cut := 0, false
	for s != "" {
		if strings.HasPrefix(s, "\x1b[") {
			n := strings.IndexByte(s, 'm') + 1
			if n == 0 {
				break
			}
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		c, rest, w, _ := uniseg.FirstGraphemeClusterInString(s, -1)
		s = rest
		if cut {
			continue
		}
		if cut = used+w > width-1; cut {
			b.WriteString("…")
			continue
		}
		b.WriteString(c)
		used += w
	}
	return b.String()
}

// plainWidth returns the width of s without the escapes of its colours.
func plainWidth(s string) int {
	if !strings.Contains(s, "\x1b[") {
		return Width(s)
	}
	width := 0
	for i, part := range strings.Split(s, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		width += Width(part)
	}
	return width
}

// FitLines returns every line of text cut to width columns; 0 = as long as they are.
func FitLines(text string, width int) string {
	if width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = Fit(l, width)
	}
	return strings.Join(lines, "\n")
}

// Column is one of a Columns.
type Column struct {
	Head string
	Keep int // of columns that do not fit into the window, those with the least Keep are left out
}

// lastColumn is the least width, in columns of the window, of the last column of Columns: others are left out to keep
// it.
const lastColumn = 16

// Columns sets rows in columns under their heads, the heads in dim, within width columns of the window (0 = any width).
// A row with fewer cells than there are columns is a note behind them; it and the last column are cut to fit.
func Columns(cols []Column, rows [][]string, width int, dim func(string) string) string {
	show := make([]bool, len(cols))
	widths := make([]int, len(cols))
	total := -2
	for i, c := range cols {
		show[i], widths[i] = true, Width(c.Head)
		for _, row := range rows {
			switch {
			case len(row) == len(cols) && i == len(cols)-1:
				widths[i] = max(widths[i], min(Width(row[i]), lastColumn))
			case len(row) == len(cols) || i == 0:
				widths[i] = max(widths[i], Width(row[i]))
			}
		}
		total += widths[i] + 2
	}
	for width > 0 && total > width {
		least := -1
		for i, c := range cols {
			if show[i] && i > 0 && (least < 0 || c.Keep < cols[least].Keep) {
				least = i
			}
		}
		if least < 0 {
			break
		}
		show[least] = false
		total -= widths[least] + 2
	}
	var b strings.Builder
	line := func(cells []string, full bool) string {
		var parts []string
		for i, c := range cells {
			if !full && i > 0 {
				parts = append(parts, c)
			} else if show[i] {
				parts = append(parts, c+strings.Repeat(" ", max(widths[i]-Width(c), 0)))
			}
		}
		text := strings.TrimRight(strings.Join(parts, "  "), " ")
		if width > 0 {
			text = Fit(text, width)
		}
		return text
	}
	heads := make([]string, len(cols))
	for i, c := range cols {
		heads[i] = c.Head
	}
	b.WriteString(dim(line(heads, true)) + "\n")
	for _, row := range rows {
		b.WriteString(line(row, len(row) == len(cols)) + "\n")
	}
	return b.String()
}
