package explore

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/uma-serve/uma-serve/sim"
)

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1180px;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}
.STABLE{color:#0a7a2f}.BACKLOGGED{color:#a36a00}.OVERLOADED{color:#b3261e}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:1rem;margin-top:1.5rem}
.plots svg{width:100%;height:auto}.note{color:#555}.scroll{overflow-x:auto}
</style></head><body>
<h1>{{.Title}}</h1>
<p class="note">Times in milliseconds. TTFT: time to first token. ITL: time between tokens. E2E: arrival to last
token.</p>
<div class="scroll"><table><thead><tr><th>policy</th>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr><td>{{.Label}}</td>{{$v := .Verdict}}{{range .Cells}}<td{{if eq . $v}} class="{{.}}"{{end}}>{{.}}
</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{range .Errors}}<p class="OVERLOADED">{{.}}</p>{{end}}
<div class="plots">{{range .Plots}}<figure>{{.}}</figure>{{end}}</div>
</body></html>
`))

// WriteHTML writes one page with the table and plots inside: no script, nothing to fetch.
func (c *Comparison) WriteHTML(w io.Writer) error {
	type row struct {
		Label, Verdict string
		Cells          []string
	}
	data := struct {
		Title  string
		Head   []string
		Rows   []row
		Errors []string
		Plots  []template.HTML
	}{Title: c.Title}
	for _, col := range columns {
		data.Head = append(data.Head, col.title)
	}
	for i := range c.Rows {
		r := row{Label: c.Rows[i].Label, Verdict: string(c.Rows[i].Verdict)}
		for _, col := range columns {
			r.Cells = append(r.Cells, col.text(&c.Rows[i]))
		}
		data.Rows = append(data.Rows, r)
		if c.Rows[i].Error != "" {
			data.Errors = append(data.Errors, c.Rows[i].Label+": "+c.Rows[i].Error)
		}
	}
	var plots []*plot.Plot
	for _, p := range []struct {
		title string
		of    func(*sim.Report) *sim.Dist
	}{
		{"Time to first token", func(r *sim.Report) *sim.Dist { return &r.Metrics.TTFT }},
		{"Time between tokens", func(r *sim.Report) *sim.Dist { return &r.Metrics.ITL }},
		{"End to end", func(r *sim.Report) *sim.Dist { return &r.Metrics.E2E }},
	} {
		q, err := c.quantiles(p.title, p.of)
		if err != nil {
			return err
		}
		plots = append(plots, q)
	}
	b, err := c.backlog()
	if err != nil {
		return err
	}
	for _, p := range append(plots, b) {
		svg, err := draw(p)
		if err != nil {
			return err
		}
		data.Plots = append(data.Plots, svg)
	}
	return page.Execute(w, data)
}

// quantiles plots how long the fastest share of the requests took.
func (c *Comparison) quantiles(title string, of func(*sim.Report) *sim.Dist) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "percentile", "ms"
	p.X.Min, p.X.Max, p.Y.Min = 0, 100, 0
	p.Add(plotter.NewGrid())
	for i, rep := range c.Reports {
		d := of(rep)
		if d.Count() == 0 {
			continue
		}
		var xy plotter.XYs
		for q := 0.0; q <= 100; q++ {
			xy = append(xy, plotter.XY{X: q, Y: d.PercentileMs(math.Min(q, 99.9))})
		}
		if err := c.line(p, i, xy); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// backlog plots the requests that are in the server over time.
func (c *Comparison) backlog() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Requests in the server", "seconds", "requests"
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	for i, rep := range c.Reports {
		type change struct {
			at int64
			by int
		}
		var changes []change
		for _, r := range rep.Requests {
			if r.DelayUs == nil && r.State != "queued" {
				continue
			}
			changes = append(changes, change{r.ArrivalUs, 1})
			if r.LeftUs != nil {
				changes = append(changes, change{*r.LeftUs, -1})
			}
		}
		slices.SortFunc(changes, func(a, b change) int {
			if a.at != b.at {
				if a.at < b.at {
					return -1
				}
				return 1
			}
			return a.by - b.by
		})
		if len(changes) == 0 {
			continue
		}
		// At most some hundred points: the largest of each stretch of time.
		const points = 400
		from, to := changes[0].at, changes[len(changes)-1].at
		width := max(1, (to-from)/points+1)
		peaks := make([]int, points+1)
		level, slot := 0, 0
		for _, ch := range changes {
			for to := int((ch.at - from) / width); slot < to; {
				slot++
				peaks[slot] = level
			}
			level += ch.by
			peaks[slot] = max(peaks[slot], level)
		}
		var xy plotter.XYs
		for k := range int((to-from)/width) + 1 {
			xy = append(xy, plotter.XY{X: float64(from+int64(k)*width) / 1e6, Y: float64(peaks[k])})
		}
		if err := c.line(p, i, xy); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c *Comparison) line(p *plot.Plot, i int, xy plotter.XYs) error {
	l, err := plotter.NewLine(xy)
	if err != nil {
		return err
	}
	l.Color, l.Dashes, l.Width = plotutil.Color(i), plotutil.Dashes(i/7), vg.Points(1.5)
	p.Add(l)
	p.Legend.Add(c.Rows[i].Label, l)
	p.Legend.Top, p.Legend.Left = true, true
	return nil
}

// draw renders a plot as an inline SVG element.
func draw(p *plot.Plot) (template.HTML, error) {
	to, err := p.WriterTo(16*vg.Centimeter, 10*vg.Centimeter, "svg")
	if err != nil {
		return "", fmt.Errorf("plot: %w", err)
	}
	var b bytes.Buffer
	if _, err := to.WriteTo(&b); err != nil {
		return "", fmt.Errorf("plot: %w", err)
	}
	s := b.String()
	if i := strings.Index(s, "<svg"); i > 0 {
		s = s[i:]
	}
	return template.HTML(s), nil
}
