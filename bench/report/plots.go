package report

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Figure is one plot of the page.
type Figure struct {
	Title, Caption string
	SVG            template.HTML
}

// figures returns the plots for which there is something to draw.
func (d *Document) figures() ([]Figure, error) {
	var out []Figure
	for _, f := range []func() (*plot.Plot, string){d.plotITL, d.plotTTFT, d.plotThroughput, d.plotAccuracy,
		d.plotITLQuantiles, d.plotTTFTQuantiles} {
		p, caption := f()
		if p == nil {
			continue
		}
		title := p.Title.Text
		p.Title.Text = ""
		svg, err := render(p)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", title, err)
		}
		out = append(out, Figure{title, caption, svg})
	}
	for _, key := range []string{"ttft_p95_ms", "ttot_p95_ms", "output_itl_p95_ms", "think_tokens_avg"} {
		p := d.plotBars(key)
		if p == nil {
			continue
		}
		svg, err := render(p)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", key, err)
		}
		i := slices.IndexFunc(Metrics, func(m Metric) bool { return m.Key == key })
		out = append(out, Figure{Metrics[i].Title,
			"Bars: over all repeats. Whiskers: the 95 % interval over the repeats, where there are several.", svg})
	}
	return out, nil
}

// ITLPicture draws the longest gap between two tokens of a chat, in ms, over time, as an SVG file; an error if no
// report has it.
func (d *Document) ITLPicture() ([]byte, error) {
	p := newPlot("", "seconds since the start", "longest gap between tokens, ms")
	if !d.overTime(p, func(name string, r *Report, hue color.RGBA) {
		line(p, d.label(name), hue, false, false, points(r.ITLOverTime, func(q Point) Num { return q.High }))
	}) {
		return nil, errors.New("no report has inter-token times of three stretches or more")
	}
	p.BackgroundColor = color.White // a reader's page may be dark
	svg, err := render(p)
	return []byte(svg + "\n"), err
}

// plotBars is one metric, side by side; nil when fewer than two reports know it, or too many for their names.
func (d *Document) plotBars(key string) *plot.Plot {
	var values plotter.Values
	var labels []string
	var whiskers errorBars
	for _, name := range d.names() {
		r := d.Reports[name]
		v := r.Value(key)
		if !Num(v).known() {
			continue
		}
		if ci := r.CI95[key]; ci.Low.known() {
			whiskers.add(float64(len(values)), float64(ci.Mean), max(0, float64(ci.Low)), float64(ci.High))
		}
		values, labels = append(values, v), append(labels, d.label(name))
	}
	if len(values) < 2 || len(values) > 6 {
		return nil
	}
	p := newPlot("", "", "")
	bars, err := plotter.NewBarChart(values, vg.Centimeter)
	if err != nil {
		return nil
	}
	bars.Color, bars.LineStyle.Width = hue(0), 0
	p.Add(bars)
	if len(whiskers.XYs) > 0 {
		e, err := plotter.NewYErrorBars(&whiskers)
		if err != nil {
			return nil
		}
		p.Add(e)
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -.6, float64(len(values))-.4
	p.X.Tick.Label.Font = sans(11)
	headroom(p, 0)
	return p
}

// leastMs is the smallest time of a plot: tokens from one read are 0 ms apart, which a logarithmic scale cannot show.
const leastMs = .05

func (d *Document) plotITL() (*plot.Plot, string) {
	p := newPlot("Output inter-token latency over time", "seconds since the start", "ms")
	if !d.overTime(p, func(name string, r *Report, hue color.RGBA) {
		band(p, hue, r.ITLOverTime)
		line(p, d.label(name), hue, false, false, points(r.ITLOverTime, func(q Point) Num { return q.P50 }))
	}) {
		return nil, ""
	}
	return p, "Line: median of each stretch of time. Band: 5th percentile to the longest. A gap counts in every " +
		"stretch it lasted."
}

// overTime adds what draw draws of each report, and the begin of the storm; false if no report has times.
func (d *Document) overTime(p *plot.Plot, draw func(name string, r *Report, hue color.RGBA)) bool {
	rows, mark := 0, math.NaN()
	for i, name := range d.names() {
		r := d.Reports[name]
		if len(r.ITLOverTime) < 3 {
			continue
		}
		if r.MarkS.known() {
			mark = float64(r.MarkS)
		}
		draw(name, r, hue(i))
		rows++
	}
	if rows == 0 {
		return false
	}
	if !math.IsNaN(mark) {
		rows++
	}
	headroom(p, rows)
	if !math.IsNaN(mark) {
		line(p, "the storm begins", color.Gray{90}, true, false,
			plotter.XYs{{X: mark, Y: p.Y.Min}, {X: mark, Y: p.Y.Max}})
	}
	return true
}

func (d *Document) plotTTFT() (*plot.Plot, string) {
	p := newPlot("Time to first token by length", "tokens of prefix or prompt", "ms")
	n := 0
	for i, name := range d.names() {
		for _, c := range d.Reports[name].TTFTByX {
			if len(c.Points) < 2 {
				continue
			}
			label := d.label(name) + ", " + c.Name
			line(p, label, hue(i), c.Name == "first", true, points(c.Points, func(q Point) Num { return q.P50 }))
			n++
		}
	}
	if n == 0 {
		return nil, ""
	}
	headroom(p, n)
	return p, "Medians. Dashed: the first question about a document; solid: the later ones, which can use what was " +
		"computed for it."
}

// bySide collects the reports that differ only in one number.
func (d *Document) bySide(of func(*Report) (x, y float64, ok bool)) (names []string, curves map[string]plotter.XYs) {
	curves = map[string]plotter.XYs{}
	for _, name := range d.names() {
		r := d.Reports[name]
		x, y, ok := of(r)
		if !ok || math.IsNaN(x) || math.IsNaN(y) {
			continue
		}
		if curves[r.Side] == nil {
			names = append(names, r.Side)
		}
		curves[r.Side] = append(curves[r.Side], plotter.XY{X: x, Y: y})
	}
	for _, xy := range curves {
		slices.SortFunc(xy, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	}
	return names, curves
}

func (d *Document) plotThroughput() (*plot.Plot, string) {
	names, curves := d.bySide(func(r *Report) (float64, float64, bool) {
		return float64(r.Streams), r.Value("output_tokens_per_s"), r.Streams > 0
	})
	p := newPlot("Generated tokens by streams", "streams at once", "tokens/s")
	n := 0
	for i, name := range names {
		if len(curves[name]) > 1 {
			line(p, name, hue(i), false, true, curves[name])
			n++
		}
	}
	if n == 0 {
		return nil, ""
	}
	headroom(p, n)
	p.X.Min = 0
	return p, "All streams together, thoughts included."
}

// family returns the curve of a side's points in the plot of accuracy: "eat=0.01" and "eat=0.1" are one curve. Options
// are named where another curve of the same word has others.
func (d *Document) family(side string) string {
	head, options, _ := strings.Cut(side, ":")
	word, _, _ := strings.Cut(head, "=")
	for _, r := range d.Reports {
		h, o, _ := strings.Cut(r.Side, ":")
		if w, _, _ := strings.Cut(h, "="); w == word && o != options {
			return word + " " + cmp.Or(strings.ReplaceAll(options, ":", " "), "plain")
		}
	}
	return word
}

func (d *Document) plotAccuracy() (*plot.Plot, string) {
	curves, whiskers := map[string]plotter.XYs{}, map[string]*errorBars{}
	var names []string
	total := 0
	for _, name := range d.names() {
		r := d.Reports[name]
		x, y := r.Value("think_tokens_avg"), r.Value("accuracy_pct")
		if math.IsNaN(x) || math.IsNaN(y) {
			continue
		}
		f := d.family(r.Side)
		if curves[f] == nil {
			names, whiskers[f] = append(names, f), new(errorBars)
		}
		curves[f] = append(curves[f], plotter.XY{X: x, Y: y})
		if a := r.Accuracy; a != nil && a.CI95[0].known() && a.CI95[1].known() {
			whiskers[f].add(x, y, float64(a.CI95[0]), float64(a.CI95[1]))
		}
		total++
	}
	if total < 2 {
		return nil, ""
	}
	p := newPlot("Accuracy by thinking", "tokens of thought, mean", "% right")
	for i, name := range names {
		xy := curves[name]
		slices.SortFunc(xy, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line(p, name, hue(i), false, true, xy)
		if bars, err := plotter.NewYErrorBars(whiskers[name]); err == nil {
			bars.Color = hue(i)
			p.Add(bars)
		}
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 100
	p.X.Max *= 1.25 // the legend's place
	p.Legend.Top, p.Legend.Left = false, false
	return p, "One point for each setting, with its 95 % interval. Up and to the left is better: as many right " +
		"answers for less thinking."
}

func (d *Document) plotQuantiles(title string, of func(*Report) []Num) (*plot.Plot, string) {
	p := newPlot(title, "share of all, %", "ms")
	n := 0
	for i, name := range d.names() {
		q := of(d.Reports[name])
		if len(q) == 0 {
			continue
		}
		var xy plotter.XYs
		for x, y := range q {
			xy = append(xy, plotter.XY{X: float64(x), Y: max(float64(y), leastMs)})
		}
		if n < 8 {
			line(p, d.label(name), hue(i), i >= len(palette), false, xy)
		}
		n++
	}
	if n == 0 {
		return nil, ""
	}
	headroom(p, min(n, 8))
	return p, "How long the fastest so many percent took at most."
}

func (d *Document) plotITLQuantiles() (*plot.Plot, string) {
	return d.plotQuantiles("Output inter-token latency, all of it", func(r *Report) []Num { return r.ITLQuantile })
}

func (d *Document) plotTTFTQuantiles() (*plot.Plot, string) {
	return d.plotQuantiles("Time to first token, all of it", func(r *Report) []Num { return r.TTFTQuant })
}
