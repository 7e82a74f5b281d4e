package report

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>uma-bench: {{.Title}}</title>
<style>
:root{color-scheme:light}
body{font:15px/1.55 system-ui,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;margin:0;color:#1b1f24;background:#f6f7f9}
main{max-width:1240px;margin:0 auto;padding:1.5rem 1.25rem 3rem}
h1{font-size:1.55rem;margin:.2rem 0 .1rem}h2{font-size:1.1rem;margin:2rem 0 .6rem}
.badge{display:inline-block;padding:.15rem .65rem;border-radius:1rem;font-weight:600;
font-size:.8rem;letter-spacing:.05em}
.measured{background:#d7f2df;color:#0b5a2a}.synthetic{background:#ffe3b8;color:#7a4500}
body.s{background:repeating-linear-gradient(135deg,#f6f7f9 0 28px,#fbf3e6 28px 56px)}
table.wide{font-size:.84rem}.wide th,.wide td{padding:.3rem .4rem}
.note{color:#57606a;margin:.2rem 0}
.said{margin:.6rem 0;padding:.45rem .8rem;border-left:3px solid #d29922;background:#fff8e6}
.card{background:#fff;border:1px solid #dfe3e8;border-radius:10px;padding:1rem 1.1rem;overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.34rem .7rem;text-align:right;border-bottom:1px solid #eceff2;white-space:nowrap}
th{font-size:.83rem;color:#424a53;border-bottom:2px solid #d5dae0;vertical-align:bottom}
th:first-child,td:first-child{text-align:left}tbody tr:last-child td{border-bottom:0}
th small,td small{display:block;color:#6e7781;font-size:.76rem;font-weight:400}
.under{background:#eef5ff}
.WIN,.win{color:#0a7a2f}.LOSS,.loss{color:#b3261e}.WIN,.LOSS{font-weight:600}.FLAT,.na{color:#6e7781}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,540px),1fr));gap:1rem}
figure{margin:0}figure h3{margin:0 0 .4rem;font-size:.98rem}figure svg{width:100%;height:auto}
figcaption{color:#57606a;font-size:.85rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.2rem;margin:0}dt{color:#57606a}
dd{margin:0;overflow-wrap:anywhere}
.ran{margin-bottom:.8rem}details{margin-bottom:.8rem}summary{cursor:pointer;font-weight:600;padding:.25rem 0}
code{font:.86em ui-monospace,SFMono-Regular,Menlo,monospace}
</style></head><body{{if .Synthetic}} class="s"{{end}}><main>
<span class="badge {{if .Synthetic}}synthetic{{else}}measured{{end}}">
{{if .Synthetic}}SYNTHETIC{{else}}MEASURED{{end}}</span>
<h1>{{.Title}}</h1>
<p class="note">{{if .Synthetic}}Computed in virtual time by the replay mode: real scheduling and phase routing over
a decoder that only takes time. No server and no model ran; do not put these numbers beside measured
ones.{{else}}Seen by a client process over real sockets; times are the client's.{{end}}</p>
<p class="note">{{.Line}}</p>
{{range .Notes}}<p class="said">{{.}}</p>
{{end}}<h2>Numbers</h2>
<div class="card"><table{{if .Wide}} class="wide"{{end}}><thead><tr><th>metric</th>{{range .Heads}}
<th{{if .Under}} class="under"{{end}}>{{.Name}}{{if .Under}}<small>under test</small>{{end}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr><td>{{.Title}}</td>{{range .Cells}}<td{{if .Under}} class="under"{{end}}>{{.Text}}{{if .CI}}<small>
{{.CI}}</small>{{end}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
<p class="note">Small: 95 % intervals over the repeats (Student's). TTFT: sent to first token. TTOT: last token of
thought to first visible text. ITL: between two tokens of an answer. Percentiles are over all requests of all
repeats.</p>
{{if .Baselines}}<h2>{{.Under}} against the others</h2>
<div class="card"><table{{if .Wide}} class="wide"{{end}}><thead><tr><th>difference in %</th>{{range .Baselines}}
<th>to {{.}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}{{if .Verdicts}}<tr><td>{{.Title}}</td>{{range .Verdicts}}<td class="{{.Class}}">{{.Text}}{{if .CI}}
<small>{{.CI}}</small>{{end}}</td>{{end}}</tr>
{{end}}{{end}}</tbody></table></div>
<p class="note">WIN and LOSS from 5 %, FLAT below 1 %. Small: Welch's 95 % interval over the repeats; noise: the
interval contains 0.</p>{{end}}
{{if .Storm}}<h2>Chats in a storm of prompts</h2><div class="card"><table><thead><tr>{{range .StormHead}}<th>{{.}}
</th>{{end}}</tr></thead><tbody>
{{range .Storm}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>{{end}}</tbody></table></div>
<p class="note">Times between two tokens of the chats, before the long prompts come and since. Prompt tokens by the
server's count; "of the first" relates them to the first row. 5th token: how long a client with a short question
waits for it (medians).</p>{{end}}
{{if .Figures}}<h2>Plots</h2><div class="plots">{{range .Figures}}<figure class="card"><h3>{{.Title}}</h3>{{.SVG}}
<figcaption>{{.Caption}}</figcaption></figure>{{end}}</div>{{end}}
{{if .Groups}}<h2>Requests by group</h2>{{end}}{{$open := .Open}}{{range .Groups}}<details{{if $open}} open{{end}}>
<summary>{{.Name}}</summary><div class="card"><table><thead><tr><th>group</th><th>answered</th><th>errors</th>
<th>TTFT p50 ms</th><th>TTFT p95 ms</th><th>ITL p50 ms</th><th>ITL p95 ms</th><th>answered after, p50 ms</th>
<th>prompt tokens/s</th>{{if .Graded}}<th>accuracy %</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>{{end}}</tbody></table></div></details>{{end}}
<h2>What ran</h2>{{range .Ran}}<div class="card ran"><dl>{{range .}}<dt>{{.K}}</dt><dd>{{.V}}</dd>{{end}}</dl></div>
{{end}}
</main></body></html>
`))

type pageCell struct {
	Text, CI, Class string
	Under           bool
}

type pair struct{ K, V string }

type pageHead struct {
	Name  string
	Under bool
}

type pageRow struct {
	Title           string
	Cells, Verdicts []pageCell
}

// pageGroups is the table of a report's groups of requests.
type pageGroups struct {
	Name   string
	Rows   [][]string
	Graded bool // some group has known answers
}

// HTML writes one page without scripts and external files.
func (d *Document) HTML(w io.Writer) error {
	u := d.Reports[d.UnderTest]
	data := struct {
		Title, Line string
		Notes       []string // without duplicates
		Synthetic   bool
		Open, Wide  bool
		Under       string
		Heads       []pageHead
		Baselines   []string
		Rows        []pageRow
		StormHead   []string
		Storm       [][]string
		Figures     []Figure
		Groups      []pageGroups
		Ran         [][]pair
	}{Title: fmt.Sprintf("%s on %s", u.Workload, u.Target), Line: u.Environment.line(),
		Synthetic: d.Provenance == Synthetic, Under: d.label(d.UnderTest), Rows: d.pageRows()}
	names := d.names()
	for _, n := range names {
		data.Heads = append(data.Heads, pageHead{d.label(n), n == d.UnderTest && len(names) > 1})
	}
	for _, n := range d.baselines() {
		data.Baselines = append(data.Baselines, d.label(n))
	}
	data.StormHead, data.Storm = stormHead, stormRows(d.Storms())
	var err error
	if data.Figures, err = d.figures(); err != nil {
		return err
	}
	for _, n := range names {
		rep := d.Reports[n]
		data.Ran = append(data.Ran, rep.ran())
		for _, note := range rep.Notes {
			if !slices.Contains(data.Notes, note) {
				data.Notes = append(data.Notes, note)
			}
		}
		if len(rep.Groups) >= 2 {
			data.Groups = append(data.Groups, rep.pageGroups(d.label(n)))
		}
	}
	data.Ran = common(data.Ran)
	data.Open, data.Wide = len(data.Groups) <= 3, len(names) > 5
	return page.Execute(w, data)
}

// pageRows returns a row for each metric that some report has.
func (d *Document) pageRows() (rows []pageRow) {
	names := d.names()
	for _, m := range Metrics {
		if !d.any(m.Key) {
			continue
		}
		r := pageRow{Title: m.Title}
		for _, n := range names {
			rep := d.Reports[n]
			c := pageCell{Text: m.text(rep.Value(m.Key)), Under: n == d.UnderTest && len(names) > 1}
			if ci, ok := rep.CI95[m.Key]; ok && ci.Low.known() {
				c.CI = m.interval(ci, " … ")
			}
			r.Cells = append(r.Cells, c)
		}
		if m.Compared {
			for _, n := range d.baselines() {
				r.Verdicts = append(r.Verdicts, d.verdictCell(n, m))
			}
		}
		if !slices.ContainsFunc(r.Verdicts, func(c pageCell) bool { return c.Text != "n/a" }) {
			r.Verdicts = nil
		}
		rows = append(rows, r)
	}
	return rows
}

// verdictCell compares a metric of the configuration under test with a baseline.
func (d *Document) verdictCell(baseline string, m Metric) pageCell {
	v := d.verdict(baseline, m)
	c := pageCell{Text: v.Flag, Class: strings.ReplaceAll(v.Flag, "/", "")}
	if v.Flag == "n/a" {
		return c
	}
	c.Text = fmt.Sprintf("%+.2f %s", v.Delta, v.Flag)
	if v.Noise {
		c.Class = "na"
	}
	if v.Welch != nil {
		c.CI = fmt.Sprintf("%+.1f … %+.1f", float64(v.Welch[0]), float64(v.Welch[1]))
		if v.Noise {
			c.CI += ", noise"
		}
	}
	return c
}

// pageGroups returns the table of r's groups of requests.
func (r *Report) pageGroups(name string) pageGroups {
	t := pageGroups{Name: name, Graded: slices.ContainsFunc(r.Groups, func(g Group) bool { return g.Accuracy.known() })}
	f := func(v Num) string { return Metric{Digits: 2}.text(float64(v)) }
	for _, g := range r.Groups {
		name := g.Name
		if !g.Measured {
			name += " (load)"
		}
		if g.Skipped != "" {
			name += ": " + g.Skipped
		}
		cells := []string{name, fmt.Sprint(g.Requests), fmt.Sprint(g.Errors), f(g.TTFTp50), f(g.TTFTp95),
			f(g.ITLp50), f(g.ITLp95), f(g.Ends), Metric{}.text(float64(g.PromptSec))}
		if t.Graded {
			cells = append(cells, Metric{Digits: 1}.text(float64(g.Accuracy)))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// common separates what all lists share from what each adds.
func common(lists [][]pair) [][]pair {
	if len(lists) < 2 {
		return lists
	}
	var shared []pair
	for _, p := range lists[0] {
		if !slices.ContainsFunc(lists[1:], func(l []pair) bool { return !slices.Contains(l, p) }) {
			shared = append(shared, p)
		}
	}
	out := [][]pair{shared}
	for _, l := range lists {
		out = append(out, slices.DeleteFunc(l, func(p pair) bool { return slices.Contains(shared, p) }))
	}
	return out
}

// ran describes a report's settings.
func (r *Report) ran() []pair {
	e := &r.Environment
	var flags []string
	for k, v := range e.Flags {
		flags = append(flags, "--"+k+" "+v)
	}
	slices.Sort(flags)
	out := []pair{{"configuration", r.ConfigName}, {"provenance", string(r.Provenance) + ", mode " + r.Mode},
		{"requests", fmt.Sprintf("%d answered: %d chat, %d reasoning; %d errors; %d repeats", r.NRequests, r.NChat,
			r.NReasoning, r.NErrors, r.NRepeats)}}
	if r.ArrivalRate > 0 {
		out = append(out, pair{"arrivals", fmt.Sprintf("Poisson, %g a second, open loop", float64(r.ArrivalRate))})
	} else if r.Streams > 0 {
		out = append(out, pair{"streams", fmt.Sprint(r.Streams, " at once")})
	}
	if len(r.ForcedByReason) > 0 {
		out = append(out, pair{"thoughts ended by force", counts(r.ForcedByReason)})
	}
	if len(r.EvictedByTier) > 0 {
		out = append(out, pair{"KV blocks evicted, by tier", counts(r.EvictedByTier)})
	}
	if r.Accuracy != nil {
		out = append(out, pair{"right answers",
			fmt.Sprintf("%d of %d (95 %%: %.1f … %.1f %%)", r.Accuracy.Right, r.Accuracy.Asked,
				float64(r.Accuracy.CI95[0]), float64(r.Accuracy.CI95[1]))})
	}
	if len(r.Errors) > 0 {
		out = append(out, pair{"errors", counts(r.Errors)})
	}
	mem := ""
	if e.MemByte > 0 {
		mem = fmt.Sprintf(", %.1f GiB", float64(e.MemByte)/(1<<30))
	}
	for _, p := range []pair{{"model", e.Model}, {"engine", e.Engine}, {"server options", strings.Join(e.Server, " ")},
		{"machine", fmt.Sprintf("%s, %d cores%s, %s", e.CPU, e.Cores, mem, e.OS)},
		{"build", strings.Join(slices.DeleteFunc([]string{e.Version, e.Commit, e.Go},
			func(s string) bool { return s == "" }), ", ")},
		{"command", "uma-bench run " + strings.Join(flags, " ")}} {
		if p.V != "" {
			out = append(out, p)
		}
	}
	return out
}
