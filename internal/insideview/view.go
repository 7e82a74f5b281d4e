// Package insideview shows people what the daemon answers to a why or a kv question: the decisions behind a request,
// and what the KV cache holds.
package insideview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Why is the life of each request, a paragraph for each.
func Why(out *ui.Terminal, r *wire.WhyReport) string {
	if len(r.Requests) == 0 {
		return "Nothing is remembered of such a request. The daemon remembers those that run and the " +
			fmt.Sprint(wire.MaxLast) + " that ended last, and shows a user its own.\n"
	}
	var b strings.Builder
	for i := range r.Requests {
		if i > 0 {
			b.WriteByte('\n')
		}
		why(&b, out, &r.Requests[i])
	}
	return b.String()
}

func why(b *strings.Builder, out *ui.Terminal, q *wire.WhyRequest) {
	name := ui.Sanitize(q.Request)
	if name == "" {
		name = "(a line)"
	}
	state := ui.Sanitize(q.State)
	if q.Ended != "" {
		state = "ended: " + ui.Sanitize(q.Ended)
	}
	fmt.Fprintf(b, "%s  %s\n", out.Bold(name), out.Dim(fmt.Sprintf("#%d · uid %d · %s · %s", q.Number, q.UID, ui.Sanitize(q.Class), state)))
	times := "arrived " + ms(q.AgeMs) + " ago"
	if q.TTFTMs > 0 {
		times += ", first token after " + ms(q.TTFTMs)
	}
	if q.TookMs > 0 {
		times += ", took " + ms(q.TookMs)
	}
	u := &q.Usage
	tokens := "prompt " + ui.Count(u.PromptTokens)
	if u.CachedTokens > 0 {
		tokens += fmt.Sprintf(" (%s cached, %s)", ui.Count(u.CachedTokens), ui.Sanitize(u.CacheTier))
	}
	tokens += ", answer " + ui.Count(u.CompletionTokens)
	if u.ThinkTokens > 0 {
		tokens += fmt.Sprintf(" (%s thinking)", ui.Count(u.ThinkTokens))
	}
	fmt.Fprintf(b, "  %s\n  %s\n", times, tokens)
	if u.CacheMiss != "" {
		fmt.Fprintf(b, "  not cached: %s\n", ui.Sanitize(u.CacheMiss))
	}
	if q.Dropped > 0 {
		fmt.Fprintf(b, "  %s\n", out.Dim(fmt.Sprintf("(%s before these are no longer remembered)", ui.Count(q.Dropped))))
	}
	for _, d := range q.Decisions {
		what := ui.Sanitize(d.Text)
		if d.Tokens > 0 {
			what += " " + amount(&d)
		}
		if d.Times > 1 {
			what += out.Dim(fmt.Sprintf(" (%s ×, until %s)", ui.Count(d.Times), ms(d.LastMs)))
		}
		fmt.Fprintf(b, "  %10s  %s\n", ms(d.AtMs), what)
	}
}

// amount is how many tokens the decisions computed, and the newest of them.
func amount(d *wire.Decision) string {
	if d.Times > 1 && d.Latest > 0 {
		return fmt.Sprintf("[%s tokens, %s the last time]", ui.Count(d.Tokens), ui.Count(d.Latest))
	}
	if d.Tokens == 1 {
		return "[1 token]"
	}
	return fmt.Sprintf("[%s tokens]", ui.Count(d.Tokens))
}

// KV is what the cache holds, as tables; tree adds the prefix tree.
func KV(out *ui.Terminal, r *wire.KVReport) string {
	var b strings.Builder
	var t ui.Table
	c := &r.Cells
	if c.Total > 0 {
		used := c.Total - c.Free
		t.Row("cells", "%s %3.0f %%  %s of %s: %s own, %s shared, %s cached, %s pinned", ui.Bar(float64(used)/float64(c.Total), 20), 100*float64(used)/float64(c.Total),
			ui.Count(used), ui.Count(c.Total), ui.Count(c.Own), ui.Count(c.Shared), ui.Count(c.Cached), ui.Count(c.Pinned))
		t.Row("", "%s a token, blocks of %s, %d of %d sequences", size(r.BytesPerToken), ui.Count(r.BlockTokens), r.SeqsUsed, r.SeqsMax)
	}
	t.Row("look-ups", "%s, %s found something (%.0f %%), %s tokens not computed again, %s snapshots taken",
		ui.Count(r.Lookups), ui.Count(r.Hits), 100*r.HitRatio, ui.Count(r.CachedTokens), ui.Count(r.Snapshots))
	b.WriteString(t.String(out.Dim))

	rows := [][]string{{"TIER", "ENTRIES", "TOKENS", "BYTES", "LIMIT", "HITS", "EVICTED", "IN", "OUT", "RESTORE", "ERRORS"}}
	for i := range r.Tiers {
		x := &r.Tiers[i]
		if x.Off != "" {
			rows = append(rows, []string{x.Tier.String(), "off: " + ui.Sanitize(x.Off)})
			continue
		}
		limit, restore := "–", "–"
		if x.CapBytes > 0 {
			limit = size(x.CapBytes)
		}
		if x.RestoreMs > 0 {
			restore = ms(x.RestoreMs)
		}
		rows = append(rows, []string{ui.Sanitize(x.Tier.String()), ui.Count(x.Entries), ui.Count(x.Tokens), size(x.Bytes), limit, ui.Count(x.Hits), ui.Count(x.Evictions),
			ui.Count(x.PagesIn), ui.Count(x.PagesOut), restore, ui.Count(x.Errors)})
	}
	b.WriteByte('\n')
	table(&b, out, rows)

	rows = [][]string{{"NAME", "KIND", "TIER", "CLASS", "UID", "TOKENS", "OWN", "BYTES", "AGE", "IDLE", "HITS", "WHY"}}
	for i := range r.Entries {
		e := &r.Entries[i]
		kind := ui.Sanitize(e.Kind)
		if e.Request != "" {
			kind += " " + ui.Sanitize(e.Request)
		}
		tokens := ui.Count(e.Tokens)
		if e.From > 0 {
			tokens = "+" + tokens
		}
		rows = append(rows, []string{ui.Sanitize(e.Name), kind, ui.Sanitize(e.Tier.String()), ui.Sanitize(e.Class), fmt.Sprint(e.UID), tokens, ui.Count(e.OwnTok),
			size(e.Bytes), ms(e.AgeMs), ms(e.IdleMs), ui.Count(e.Hits), ui.Sanitize(e.Why)})
	}
	b.WriteByte('\n')
	if len(r.Entries) == 0 {
		b.WriteString("Nothing is cached and nothing runs.\n")
	} else {
		table(&b, out, rows)
	}
	if r.Tree != "" {
		b.WriteByte('\n')
		for line := range strings.SplitSeq(strings.TrimRight(r.Tree, "\n"), "\n") {
			b.WriteString(ui.Sanitize(line))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// table sets rows in columns, the first row dim. The last column is as long as it is.
func table(b *strings.Builder, out *ui.Terminal, rows [][]string) {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			if i < len(row)-1 || len(row) == len(rows[0]) { // a row that ends early may be long
				width[i] = max(width[i], len([]rune(cell)))
			}
		}
	}
	for n, row := range rows {
		cells := slices.Clone(row)
		for i := range cells[:len(cells)-1] {
			cells[i] += strings.Repeat(" ", max(width[i]-len([]rune(cells[i])), 0))
		}
		line := strings.Join(cells, "  ")
		if n == 0 {
			line = out.Dim(line)
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
}

func ms(v float64) string { return ui.Duration(time.Duration(v * float64(time.Millisecond))) }

func size(n int64) string { return ui.Bytes(uint64(max(n, 0))) }
