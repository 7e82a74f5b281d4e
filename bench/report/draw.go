package report

import (
	"bytes"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette is Okabe and Ito's: its colours are distinct for readers who cannot distinguish red and green.
var palette = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {70, 70, 70, 255}}

func hue(i int) color.RGBA { return palette[i%len(palette)] }

// errorBars are points with an upper and a lower error.
type errorBars struct {
	plotter.XYs
	plotter.YErrors
}

func (e *errorBars) add(x, y, low, high float64) {
	e.XYs = append(e.XYs, plotter.XY{X: x, Y: y})
	e.YErrors = append(e.YErrors, struct{ Low, High float64 }{max(0, y-low), max(0, high-y)})
}

func render(p *plot.Plot) (template.HTML, error) {
	to, err := p.WriterTo(18*vg.Centimeter, 10*vg.Centimeter, "svg")
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := to.WriteTo(&b); err != nil {
		return "", err
	}
	s := strings.ReplaceAll(b.String(), "font-family:Liberation Sans",
		"font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	return template.HTML(s[max(strings.Index(s, "<svg"), 0):]), nil // inside HTML there is no XML declaration
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{232}, color.Gray{232}
	p.Add(grid)
	p.Legend.TextStyle.Font = sans(11)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Marker = plot.TickerFunc(ticks)
		for _, style := range []*text.Style{&a.Label.TextStyle, &a.Tick.Label} {
			style.Font, style.Color = sans(11), color.Gray{70}
		}
		a.LineStyle.Color, a.Tick.LineStyle.Color, a.Padding = color.Gray{120}, color.Gray{120}, 0
	}
	return p
}

// sans returns the plots' font; a browser without it uses its default sans-serif.
func sans(points float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(points)}
}

// ticks are at 1, 2 or 5 times a power of ten, about six of them.
func ticks(least, most float64) (out []plot.Tick) {
	span := most - least
	if !(span > 0) || math.IsInf(span, 0) || span < 1e-9*math.Abs(most) {
		return []plot.Tick{{Value: least, Label: strconv.FormatFloat(least, 'g', 4, 64)}}
	}
	step := math.Pow(10, math.Floor(math.Log10(span/6)))
	for _, f := range []float64{1, 2, 5, 10} {
		if span/(step*f) <= 7 {
			step *= f
			break
		}
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	first := math.Ceil(least/step - 1e-9)
	for i := range 12 { // counting, as adding 1 to a large first would change nothing
		v := (first + float64(i)) * step
		if v > most+step*1e-9 {
			break
		}
		if v == 0 {
			v = 0 // not minus zero
		}
		out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', digits, 64)})
	}
	return out
}

// headroom leaves the legend a place above the curves.
func headroom(p *plot.Plot, rows int) {
	// curves that far apart are seen together on a logarithmic scale only
	if p.Y.Min > 0 && p.Y.Max > 50*p.Y.Min && p.Y.Max < 1e12 {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
		p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, .05+.07*float64(rows))
		return
	}
	p.Y.Min = 0
	p.Y.Max *= 1.08 + .07*float64(rows)
	if p.Y.Max <= 0 {
		p.Y.Max = 1
	}
}

// decades returns the ticks of a logarithmic scale: powers of ten, and 2 and 5 times those where there are few.
func decades(least, most float64) (out []plot.Tick) {
	steps := []float64{1}
	if most/least < 1e4 {
		steps = []float64{1, 2, 5}
	}
	for e := math.Floor(math.Log10(least)); e < math.Log10(most); e++ {
		for _, f := range steps {
			if v := f * math.Pow(10, e); v >= least && v <= most {
				out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', -1, 64)})
			}
		}
	}
	return out
}

// line adds a curve; the points that are not known are left out.
func line(p *plot.Plot, name string, c color.Color, dashed, dots bool, xy plotter.XYs) {
	xy = slices.DeleteFunc(xy, func(q plotter.XY) bool { return math.IsNaN(q.Y) || math.IsInf(q.Y, 0) })
	if len(xy) == 0 {
		return
	}
	l, err := plotter.NewLine(xy)
	if err != nil {
		return // only for points that are not finite
	}
	l.Color, l.Width = c, vg.Points(1.6)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	if !dots {
		p.Add(l)
		if name != "" {
			p.Legend.Add(name, l)
		}
		return
	}
	s, err := plotter.NewScatter(xy)
	if err != nil {
		return
	}
	s.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}
	p.Add(l, s)
	p.Legend.Add(name, l, s)
}

// band shades between two curves.
func band(p *plot.Plot, c color.RGBA, ps []Point) {
	xy := points(ps, func(q Point) Num { return q.High })
	low := points(ps, func(q Point) Num { return q.Low })
	slices.Reverse(low)
	xy = append(xy, low...)
	if poly, err := plotter.NewPolygon(xy); err == nil && len(ps) > 1 {
		poly.Color, poly.LineStyle.Width = color.NRGBA{c.R, c.G, c.B, 34}, 0
		p.Add(poly)
	}
}

func points(ps []Point, of func(Point) Num) plotter.XYs {
	var xy plotter.XYs
	for _, q := range ps {
		xy = append(xy, plotter.XY{X: q.X, Y: max(float64(of(q)), leastMs)})
	}
	return xy
}
