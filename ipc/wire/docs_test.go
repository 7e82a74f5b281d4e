package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// section returns the part of docs/protocol.md under a heading, up to the next of the same or a higher level.
func section(t *testing.T, heading string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut("\n"+string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/protocol.md has no %q", heading)
	}
	level := strings.Count(strings.Fields(heading)[0], "#")
	end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, level)).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// rows maps the first, back-quoted column of a section's tables to the other columns.
func rows(t *testing.T, heading string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, line := range strings.Split(section(t, heading), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cols := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cols {
			cols[i] = strings.TrimSpace(cols[i])
		}
		name := strings.Trim(cols[0], "`")
		if out[name] != nil {
			t.Errorf("%s: %s has two rows", heading, name)
		}
		out[name] = cols[1:]
	}
	return out
}

func sameNames(t *testing.T, what string, documented, real []string) {
	t.Helper()
	slices.Sort(documented)
	slices.Sort(real)
	for _, n := range documented {
		if !slices.Contains(real, n) {
			t.Errorf("%s: docs/protocol.md has %q, the code has not", what, n)
		}
	}
	for _, n := range real {
		if !slices.Contains(documented, n) {
			t.Errorf("%s: the code has %q, docs/protocol.md has not", what, n)
		}
	}
}

var (
	ticked  = regexp.MustCompile("`([^`]+)`")
	literal = regexp.MustCompile("^`([^`]+)`$")
)

// TestDocumentedFields holds the request table against the parser: names, other names, defaults.
func TestDocumentedFields(t *testing.T) {
	documented := rows(t, "## Requests")
	for name := range rows(t, "### Refused fields") {
		delete(documented, name)
	}
	names := []string{"event", "type", "slo.strict", "messages[].role",
		"messages[].content", "messages[].reasoning_content", "messages[].name", "messages[].tool_calls",
		"messages[].tool_call_id", "think.mode", "think.budget_tokens", "think.soft_budget_tokens", "think.early_exit",
		"think.answer_cue", "think.preserve"}
	for _, target := range slo.Times {
		names = append(names, "slo."+target.Name)
	}
	for name, aliases := range FieldNames() {
		if use, _ := FieldOf(name); use.Ignored || use.Refused {
			continue
		}
		names = append(names, name)
		if row := documented[name]; row != nil {
			var also []string
			for _, m := range ticked.FindAllStringSubmatch(row[0], -1) {
				also = append(also, m[1])
			}
			sameNames(t, "other names of "+name, also, slices.Clone(aliases))
		}
	}
	sameNames(t, "request fields", slices.Collect(maps.Keys(documented)), names)

	def := DefaultRequest()
	def.ID, def.Prompt = "a", "x"
	var written map[string]any
	if err := json.Unmarshal(frames.AppendRequest(nil, &def, nil)[HeaderBytes:], &written); err != nil {
		t.Fatal(err)
	}
	for _, target := range slo.Times {
		written["slo."+target.Name] = 0.0
	}
	maps.Copy(written, map[string]any{"slo.strict": false,
		// written only when they say more
		"suffix": "", "traceparent": "", "tools": []any{}, "tool_choice": "auto", "grammar": "",
		"guided_json_object": false,
		"parse_special":      false, "n_indent": 0.0, "t_max_predict_ms": 0.0})
	written["dry_sequence_breakers"] = []any{}
	for _, b := range DefaultDryBreaks {
		written["dry_sequence_breakers"] = append(written["dry_sequence_breakers"].([]any), b)
	}
	if def.Think == (Think{}) { // nothing is named, for which the number on the wire is -1
		maps.Copy(written, map[string]any{"think.budget_tokens": -1.0, "think.soft_budget_tokens": -1.0,
			"think.answer_cue": ""})
	}
	checked := 0
	for name, row := range documented {
		if lit := literal.FindStringSubmatch(row[2]); lit != nil {
			var v any
			if err := json.Unmarshal([]byte(lit[1]), &v); err != nil || !reflect.DeepEqual(v, written[name]) {
				t.Errorf("default of %s: docs/protocol.md has %s, the code %v", name, lit[1], written[name])
			}
			checked++
		}
	}
	if checked < 18 {
		t.Errorf("only %d defaults are documented", checked)
	}
}

// TestFieldsThatChangeAnAnswerAreKeptOrRefused holds the tables of refused and ignored fields against the code: their
// names; the values that ask for nothing, which pass; that anything else is refused by name; that what is ignored has
// no effect.
func TestFieldsThatChangeAnAnswerAreKeptOrRefused(t *testing.T) {
	documented := rows(t, "### Refused fields")
	var names, without []string
	plain, err := parse(t, `{"id":"a","prompt":"x"}`)
	if err != nil {
		t.Fatal(err)
	}
	for name := range FieldNames() {
		switch use, _ := FieldOf(name); {
		case use.Refused:
			names = append(names, name)
			row := documented[name]
			if row == nil {
				continue
			}
			var but []string
			for _, m := range ticked.FindAllStringSubmatch(row[0], -1) {
				but = append(but, m[1])
			}
			sameNames(t, "harmless values of "+name, but, slices.Clone(use.But))
			if row[1] != use.Why {
				t.Errorf("%s: documented %q, the code says %q", name, row[1], use.Why)
			}
			for _, v := range append([]string{"null"}, use.But...) {
				if got, err := parse(t, `{"id":"a","prompt":"x","`+name+`":`+v+`}`); err != nil ||
					!reflect.DeepEqual(got, plain) {
					t.Errorf("%s of %s: %+v, %v", name, v, got.Request, err)
				}
			}
			for _, v := range []string{`"required"`, `{"type":"json_object"}`, `[{}]`, `7`} {
				if _, err := parse(t, `{"id":"a","prompt":"x","`+name+`":`+v+`}`); err == nil ||
					!strings.Contains(err.Error(), `"`+name+`" is not supported`) {
					t.Errorf("%s of %s: %v", name, v, err)
				}
			}
		case use.Ignored:
			without = append(without, name)
			for _, v := range []string{`"x"`, `{"a":[1]}`, `7`, `true`} {
				if got, err := parse(t, `{"id":"a","prompt":"x","`+name+`":`+v+`}`); err != nil ||
					!reflect.DeepEqual(got, plain) {
					t.Errorf("%s of %s: %+v, %v", name, v, got.Request, err)
				}
			}
		}
	}
	sameNames(t, "refused fields", slices.Collect(maps.Keys(documented)), names)
	var listed []string
	for _, m := range ticked.FindAllStringSubmatch(section(t, "### Ignored fields"), -1) {
		listed = append(listed, m[1])
	}
	sameNames(t, "ignored fields", listed, without)

	// What no table has could be a wish, or a misspelt one.
	for body, want := range map[string]string{
		`"temprature":0`:     `did you mean "temperature"?`,
		`"max_token":0`:      `did you mean "max_tokens"?`,
		`"unheard_of":false`: `field "unheard_of" is not known`,
	} {
		if _, err := parse(t, `{"id":"a","prompt":"x",`+body+`}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestDocumentedRanges: the numbers of the request table are those of the code.
func TestDocumentedRanges(t *testing.T) {
	documented := rows(t, "## Requests")
	ranges := map[string]string{
		"id":                fmt.Sprintf("1…%d bytes", MaxIDBytes),
		"max_tokens":        fmt.Sprintf("0…%d", MaxTokensLimit),
		"n_indent":          fmt.Sprintf("0…%d", MaxIndent),
		"sse_ping_interval": fmt.Sprintf("-1…%d", MaxPingSeconds),
		"t_max_predict_ms":  fmt.Sprintf("0…%d, or -1", MaxPredictMs),
		"temperature":       fmt.Sprintf("%d…%d", -sampler.MaxTemperature, sampler.MaxTemperature),
		"repeat_penalty":    fmt.Sprintf("%v…%d", sampler.MinRepeatPenalty, sampler.MaxRepeatPenalty),
		"frequency_penalty": fmt.Sprintf("%d…%d", -sampler.MaxPenalty, sampler.MaxPenalty),

		"presence_penalty": fmt.Sprintf("%d…%d", -sampler.MaxPenalty, sampler.MaxPenalty),

		"repeat_last_n": fmt.Sprintf("-1…%d", sampler.MaxPenaltyLastN),
		"stop":          fmt.Sprintf("up to %d; each 1…%d bytes", MaxStops, MaxStopBytes),
		"logit_bias":    fmt.Sprintf("up to %d; bias %d…%d", sampler.MaxLogitBias, -sampler.MaxBias, sampler.MaxBias),
		"logprobs":      fmt.Sprintf("0…%d", sampler.MaxLogprobs),
		"top_logprobs":  fmt.Sprintf("0…%d", sampler.MaxLogprobs),

		"top_n_sigma":        fmt.Sprintf("-1…%d", sampler.MaxTopNSigma),
		"dynatemp_range":     fmt.Sprintf("0…%d", sampler.MaxTemperature),
		"dynatemp_exponent":  fmt.Sprintf("0…%d", sampler.MaxDynatempExponent),
		"mirostat_tau":       fmt.Sprintf("0…%d", sampler.MaxMirostatTau),
		"mirostat_eta":       fmt.Sprintf("0…%d", sampler.MaxMirostatEta),
		"dry_multiplier":     fmt.Sprintf("0…%d", sampler.MaxDryMultiplier),
		"dry_base":           fmt.Sprintf("0…%d", sampler.MaxDryBase),
		"dry_allowed_length": fmt.Sprintf("0…%d", sampler.MaxPenaltyLastN),
		"dry_penalty_last_n": fmt.Sprintf("-1…%d", sampler.MaxPenaltyLastN),

		"dry_sequence_breakers": fmt.Sprintf("up to %d; each 1…%d bytes", MaxDryBreaks, MaxDryBreakBytes),

		"bad_words":            fmt.Sprintf("up to %d; each 1…%d bytes", sampler.MaxBadWords, sampler.MaxBadWordTokens),
		"allowed_token_ids":    fmt.Sprintf("1…%d token ids", sampler.MaxAllowedTokens),
		"stop_token_ids":       fmt.Sprintf("up to %d token ids", sampler.MaxStopTokens),
		"min_tokens":           fmt.Sprintf("0…%d", sampler.MaxMinTokens),
		"chat_template_kwargs": fmt.Sprintf("up to %d bytes", MaxTemplateArgsBytes),
		"tools":                fmt.Sprintf("up to %d tools", MaxTools),
		"guided_choice":        fmt.Sprintf("1…%d strings", MaxFormatChoices),
		"metadata":             fmt.Sprintf("up to %d bytes", MaxMetadataBytes),

		"think.budget_tokens":      fmt.Sprintf("0…%d, or -1", MaxTokensLimit),
		"think.soft_budget_tokens": fmt.Sprintf("0…%d, or -1", MaxTokensLimit),
		"think.answer_cue":         fmt.Sprintf("up to %d bytes", MaxAnswerCueBytes),
	}
	for _, target := range slo.Times {
		ranges["slo."+target.Name] = fmt.Sprintf("0…%d", MaxSLOMs)
	}
	for name, want := range ranges {
		if row := documented[name]; row == nil || !strings.Contains(row[1], want) {
			t.Errorf("%s: %q is not in its row", name, want)
		}
	}
	if text := section(t, "## Frames"); !strings.Contains(text, fmt.Sprintf("%d levels deep and %d values",
		jsontext.MaxDepth, jsontext.MaxValues)) {
		t.Error("## Frames has other limits than the scanner")
	}
	nesting := fmt.Sprintf("%d; %d", jsontext.MaxDepth, jsontext.MaxValues)
	if text := section(t, "## Limits"); !strings.Contains(text, nesting) ||
		!strings.Contains(text, fmt.Sprintf("%d bytes", MaxFrameBytes)) ||
		!strings.Contains(text, fmt.Sprintf("%d ms after", split.SniffGraceMs)) {
		t.Error("## Limits has other limits than the code")
	}
	for _, m := range split.HTTPStarts {
		if !strings.Contains(section(t, "## Three protocols, one socket"), "`"+m+"`") {
			t.Errorf("the method %q is not documented", m)
		}
	}
}

// keys lists the paths of an object's fields: a.b for objects, a[].b for arrays of objects.
func keys(prefix string, v any, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			path := prefix + k
			if _, ok := e.(map[string]any); !ok || path == "metadata" ||
				slices.Contains([]string{"metrics", "health", "info"}, path) {
				out[path] = true
			}
			if path != "metadata" && path != "health" && path != "info" && path != "metrics" {
				keys(path+".", e, out)
			}
		}
	case []any:
		for _, e := range v {
			keys(strings.TrimSuffix(prefix, ".")+"[].", e, out)
		}
	}
}

// TestDocumentedEvents holds the event tables against what the golden messages of each event contain.
func TestDocumentedEvents(t *testing.T) {
	seen := map[string]map[string]bool{}
	all := goldens()
	for k := KindMetrics; k <= KindInfo; k++ {
		all = append(all, golden{frame: AppendReport(nil, k, "x", []byte("{}"))})
	}
	for _, g := range all {
		var v map[string]any
		if err := json.Unmarshal(payload(t, g.frame), &v); err != nil {
			t.Fatal(err)
		}
		event, _ := v["event"].(string)
		switch event {
		case "", "cancel", "end_think", "embed":
			continue
		case "why", "kv":
			if v[event] == nil { // the question
				continue
			}
		case "metrics", "health", "info":
			event = "report"
		}
		if seen[event] == nil {
			seen[event] = map[string]bool{}
		}
		keys("", v, seen[event])
	}
	for event, heading := range map[string]string{"token": "### token", "eos": "### eos", "error": "### error",
		"progress": "### progress", "tool_call": "### tool_call",
		"embedding": "### embedding", "report": "## Admin questions", "why": "### why", "kv": "### kv"} {
		documented := slices.Collect(maps.Keys(rows(t, heading)))
		if event == "eos" { // its section has the table of reasons too
			for _, r := range Reasons {
				seen[event][fmt.Sprintf("%q", r)] = true
			}
			for _, e := range ThinkEnds {
				seen[event][e] = true
			}
		}
		sameNames(t, event+" event", documented, slices.Collect(maps.Keys(seen[event])))
	}
	if len(seen) != 9 {
		t.Errorf("events %v", slices.Collect(maps.Keys(seen)))
	}
}

// TestDocumentedEfforts: the shares are those of Think.Budget.
func TestDocumentedEfforts(t *testing.T) {
	documented := rows(t, "## Thinking")
	for e := EffortMinimal; int(e) < len(Efforts); e++ {
		share := fmt.Sprintf("%d %%", (&Think{Effort: e}).Budget(100))
		if row := documented[e.String()]; len(row) == 0 || row[0] != share {
			t.Errorf("effort %s: docs/protocol.md has %v, the code %s", e, row, share)
		}
	}
	if len(documented) != len(Efforts) { // "none" has a row, EffortDefault none
		t.Errorf("%d Efforts are documented", len(documented))
	}
	if text := section(t, "### why"); !strings.Contains(text, fmt.Sprintf("1…%d", MaxLast)) {
		t.Error("### why has another limit than the code")
	}
}

// TestDocumentedCodes: each code has a row, and each code named anywhere exists.
func TestDocumentedCodes(t *testing.T) {
	var codes []string
	for _, c := range Codes {
		codes = append(codes, string(c))
	}
	sameNames(t, "error codes", slices.Collect(maps.Keys(rows(t, "## Error codes"))), codes)
	whole := section(t, "# The protocol of uma-serve's socket")
	for _, c := range regexp.MustCompile(`\bE_[A-Z_]+\b`).FindAllString(whole, -1) {
		if !slices.Contains(codes, c) {
			t.Errorf("docs/protocol.md names %s, which no code has", c)
		}
	}
}
