// Package inspect formats the daemon's answers to `why` and `kv`: the decisions about a request, and the contents of
// the KV cache.
package inspect

import (
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Why formats the history of each request, one paragraph per request.
func Why(out *ui.Terminal, r *reports.WhyReport) string {
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

func why(b *strings.Builder, out *ui.Terminal, q *reports.WhyRequest) {
	name := ui.Sanitize(q.Request)
	if name == "" {
		name = "(a line)"
	}
	state := ui.Sanitize(q.State)
	if q.Ended != "" {
		state = "ended: " + ui.Sanitize(q.Ended)
	}
	number := ""
	if q.Number > 0 { // it has none before it is queued
		number = fmt.Sprintf("#%d · ", q.Number)
	}
	fmt.Fprintf(b, "%s  %s\n", out.Bold(name),
		out.Dim(fmt.Sprintf("%s%s · %s · %s", number, whose("uid ", q.UID, q.Owner),
			ui.Sanitize(q.Class), state)))
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
	if s := q.Signals; s != nil {
		fmt.Fprintf(b, "  %s\n", signals(s))
	}
	if g := q.Drafts; g != nil {
		guesses(b, g)
	}
	if q.Dropped > 0 {
		fmt.Fprintf(b, "  %s\n", out.Dim(fmt.Sprintf("(%s before these are no longer remembered)",
			ui.Count(q.Dropped))))
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

// signals formats what the early-exit signals measured, and when each of them asked for the end of the thinking.
func signals(s *reports.WhySignals) string {
	text := fmt.Sprintf("signals: %s probes", ui.Count(s.Probes))
	if s.Probes > 0 {
		text += fmt.Sprintf(", entropy %.3f nats, mean %.3f, variance %.2g nats²", s.Entropy, s.Mean, s.Variance)
	}
	if s.Index > 0 {
		text += fmt.Sprintf(", RPDI %.2f", s.Index)
	}
	for _, f := range []struct {
		name string
		at   int
	}{{"converged", s.Converged}, {"stalled", s.Stalled}, {"overthinking", s.Overthinking}} {
		if f.at > 0 {
			text += fmt.Sprintf("; %s at %s tokens", f.name, ui.Count(f.at))
		}
	}
	return text
}

// guesses formats what became of the tokens that were guessed for a request.
func guesses(b *strings.Builder, g *reports.WhyDrafts) {
	for _, c := range g.Counts {
		source := "from its own text"
		switch c.Source {
		case "other":
			source = "from another text of its user"
		case "draft-model":
			source = "by the draft model"
		}
		fmt.Fprintf(b, "  drafted while in %s, %s: %s tokens, %s accepted\n", ui.Sanitize(c.Phase), source,
			ui.Count(c.Drafted), ui.Count(c.Accepted))
	}
	if g.Text != "" {
		fmt.Fprintf(b, "  drafts since %s: %s (chance of the next one %.0f %%)\n", ms(g.SinceMs), ui.Sanitize(g.Text),
			100*g.Chance)
	}
}

// amount formats the number of tokens that the decisions computed in total and the last time.
func amount(d *reports.Decision) string {
	if d.Times > 1 && d.Latest > 0 {
		return fmt.Sprintf("[%s tokens, %s the last time]", ui.Count(d.Tokens), ui.Count(d.Latest))
	}
	if d.Tokens == 1 {
		return "[1 token]"
	}
	return fmt.Sprintf("[%s tokens]", ui.Count(d.Tokens))
}

// KV formats the cache's contents: a summary, then tables; with r.Tree the prefix tree. In a terminal it is cut to the
// window's rows and columns, unless all is set.
func KV(out *ui.Terminal, r *reports.KVReport, all bool) string {
	width, height := out.Size()
	if all {
		width, height = 0, 0
	}
	summary := kvSummary(out, r)
	if r.Tree != "" && height > 0 {
		// With the tree, the tables are left out.
		return ui.FitLines(summary+"\n"+atMost(kvTree(r, width), height-1-rows(summary)-1, "kv --tree"), width)
	}
	tiers, entries := kvTiers(out, r, width), kvEntries(out, r, width)
	tiers += "\n"
	left := 0
	if height > 0 {
		if left = height - 1 - rows(summary) - 1 - rows(tiers); left < fewRows {
			left += rows(tiers) // prefer the entries to the tiers
			tiers = ""
		}
		left = max(left, fewRows)
	}
	text := summary + "\n" + tiers + atMost(entries, left, "kv")
	if r.Tree != "" {
		text += "\n" + kvTree(r, width)
	}
	return ui.FitLines(text, width)
}

// fewRows is the smallest number of rows for which a table's header is shown.
const fewRows = 3

func rows(text string) int { return strings.Count(text, "\n") }

// atMost returns the first limit lines of text, with a note about the others; 0 = all.
func atMost(text string, limit int, command string) string {
	n := rows(text)
	if limit <= 0 || n <= limit {
		return text
	}
	lines := strings.SplitAfterN(text, "\n", limit)
	return strings.Join(lines[:limit-1], "") + fmt.Sprintf("… %s more: uma-cli %s --all\n", ui.Count(n-limit+1),
		command)
}

func kvSummary(out *ui.Terminal, r *reports.KVReport) string {
	var t ui.Table
	c := &r.Cells
	if c.Total > 0 {
		used := c.Total - c.Free
		t.Row("cells", "%s %3.0f %%  %s of %s used", ui.Bar(float64(used)/float64(c.Total), 20),
			100*float64(used)/float64(c.Total), ui.Count(used), ui.Count(c.Total))
		t.Row("", "%s own, %s shared, %s cached, %s pinned", ui.Count(c.Own), ui.Count(c.Shared), ui.Count(c.Cached),
			ui.Count(c.Pinned))
		t.Row("", "%s a token, blocks of %s, %d of %d sequences", size(r.BytesPerToken), ui.Count(r.BlockTokens),
			r.SeqsUsed, r.SeqsMax)
	}
	t.Row("look-ups", "%s, %.0f %% hits: %s tokens not recomputed", ui.Count(r.Lookups), 100*r.HitRatio,
		ui.Count(r.CachedTokens))
	t.Row("snapshots", "%s taken", ui.Count(r.Snapshots))
	return t.String(out.Dim)
}

func kvTiers(out *ui.Terminal, r *reports.KVReport, width int) string {
	cols := []ui.Column{{Head: "TIER"}, {Head: "ENTRIES", Keep: 5}, {Head: "TOKENS", Keep: 8}, {Head: "BYTES", Keep: 9},
		{Head: "LIMIT", Keep: 7}, {Head: "HITS", Keep: 6},
		{Head: "EVICTED", Keep: 3}, {Head: "IN", Keep: 2}, {Head: "OUT", Keep: 1}, {Head: "RESTORE", Keep: 0},
		{Head: "ERRORS", Keep: 4}}
	var rows [][]string
	for i := range r.Tiers {
		x := &r.Tiers[i]
		if x.Errors > 0 {
			cols[len(cols)-1].Keep = 10
		}
		if x.Off != "" {
			rows = append(rows, []string{ui.Sanitize(x.Tier.String()), "off: " + ui.Sanitize(x.Off)})
			continue
		}
		limit, restore := "–", "–"
		if x.CapBytes > 0 {
			limit = size(x.CapBytes)
		}
		if x.RestoreMs > 0 {
			restore = ms(x.RestoreMs)
		}
		rows = append(rows, []string{ui.Sanitize(x.Tier.String()), ui.Count(x.Entries), ui.Count(x.Tokens),
			size(x.Bytes), limit, ui.Count(x.Hits), ui.Count(x.Evictions),
			ui.Count(x.PagesIn), ui.Count(x.PagesOut), restore, ui.Count(x.Errors)})
	}
	return ui.Columns(cols, rows, width, out.Dim) + troubles(out, r.Tiers)
}

// troubles says what went wrong in the tiers, a line for each that has something to say.
func troubles(out *ui.Terminal, tiers []reports.KVTier) string {
	var b strings.Builder
	for i := range tiers {
		x := &tiers[i]
		if x.Damaged == 0 && x.LastError == "" && !x.Paused {
			continue
		}
		line := fmt.Sprintf("%s: %s errors, %s damaged", ui.Sanitize(x.Tier.String()), ui.Count(x.Errors),
			ui.Count(x.Damaged))
		if x.Paused {
			line += ", not used for a while"
		}
		b.WriteString(out.Yellow(line))
		if x.LastError != "" {
			b.WriteString("; the newest: " + ui.Sanitize(x.LastError))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// shortName is the number of digits of a hash shown in a terminal. Commands accept 4 or more.
const shortName = 8

func kvEntries(out *ui.Terminal, r *reports.KVReport, width int) string {
	if len(r.Entries) == 0 {
		return "Nothing is cached and nothing runs.\n"
	}
	cols := []ui.Column{{Head: "NAME"}, {Head: "KIND", Keep: 7}, {Head: "TIER", Keep: 6}, {Head: "CLASS", Keep: 1},
		{Head: "UID", Keep: 2}, {Head: "TOKENS", Keep: 9}, {Head: "OWN", Keep: 3},
		{Head: "BYTES", Keep: 8}, {Head: "AGE", Keep: 5}, {Head: "IDLE", Keep: 0}, {Head: "HITS", Keep: 4},
		{Head: "WHY", Keep: 10}}
	var rows [][]string
	for i := range r.Entries {
		e := &r.Entries[i]
		name, kind := ui.Sanitize(e.Name), ui.Sanitize(e.Kind)
		if e.Request != "" {
			kind += " " + ui.Sanitize(e.Request)
		}
		if width > 0 {
			if isHash(name) && !ambiguous(r.Entries, i) {
				name = name[:shortName]
			}
			name, kind = ui.Fit(name, 16), ui.Fit(kind, max(width/5, 8))
		}
		tokens := ui.Count(e.Tokens)
		if e.From > 0 {
			tokens = "+" + tokens
		}
		rows = append(rows, []string{name, kind, ui.Sanitize(e.Tier.String()), ui.Sanitize(e.Class),
			whose("", e.UID, e.Owner), tokens, ui.Count(e.OwnTok),
			size(e.Bytes), ms(e.AgeMs), ms(e.IdleMs), ui.Count(e.Hits), ui.Sanitize(e.Why)})
	}
	return ui.Columns(cols, rows, width, out.Dim)
}

// whose names an owner: a user by number, the owner of an API key by name.
func whose[N uint32 | uint64](prefix string, uid N, owner string) string {
	if owner != "" {
		return ui.Sanitize(owner)
	}
	return prefix + fmt.Sprint(uid)
}

// isHash reports whether a name is a hash, not a number.
func isHash(s string) bool { return len(s) >= 2*shortName && strings.Trim(s, "0123456789abcdef") == "" }

// ambiguous reports whether another entry's name has the short name of entry i as its beginning.
func ambiguous(entries []reports.KVEntry, i int) bool {
	for j := range entries {
		if j != i && entries[j].Name != entries[i].Name && strings.HasPrefix(entries[j].Name,
			entries[i].Name[:shortName]) {
			return true
		}
	}
	return false
}

// kvTree formats the prefix tree. In a terminal it writes deep indentation as a number.
func kvTree(r *reports.KVReport, width int) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(r.Tree, "\n"), "\n") {
		line = ui.Sanitize(line)
		run := strings.TrimLeft(line, " ")
		if indent, limit := len(line)-len(run), width/3; width > 0 && indent > limit {
			line = fmt.Sprintf("%*s %s", max(limit-1, 0), fmt.Sprintf("%d›", indent/2), run)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func ms(v float64) string { return ui.Duration(time.Duration(v * float64(time.Millisecond))) }

func size(n int64) string { return ui.Bytes(uint64(max(n, 0))) }
