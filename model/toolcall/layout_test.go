package toolcall

import "testing"

// open counts the white space of p that is free.
func (p *Expr) open() (n int) {
	if p.Gap != noGap {
		n++
	}
	for _, list := range [][]Expr{p.Seq, p.Any} {
		for i := range list {
			n += list[i].open()
		}
	}
	if p.Repeat != nil {
		n += p.Repeat.Expr.open() + p.Repeat.Separator.open()
	}
	if p.Args != nil {
		n += p.Args.Open.open() + p.Args.Close.open()
	}
	return n
}

// TestRequiredCallsLeaveNothingOpen: where a call is required, no syntax leaves a choice of white space; where the
// model begins the call itself, it does.
func TestRequiredCallsLeaveNothingOpen(t *testing.T) {
	list := testTools(t).list[:3]
	for i := range Syntaxes {
		f := &Syntaxes[i]
		if f.Name == "harmony" || f.Name == "kimi-k3" { // a header; attributes that only a template can show
			continue
		}
		spec := f.Resolve(nil)
		if p := spec.Text(list, Choice{Mode: Required}, true); p.open() > 0 {
			t.Errorf("%s: %d places of white space are free in a required call", f.Name, p.open())
		}
		if p := spec.Text(list, Choice{}, true); p.open() == 0 && f.Notation != Braces {
			t.Errorf("%s: white space is not free in a call that the model begins", f.Name)
		}
	}
}

// TestLayouts: a required call is written as the model's template writes calls.
func TestLayouts(t *testing.T) {
	tool := Tool{Name: "zz", Parameters: []byte(`{"type":"object","properties":{"a":{"type":"string"},` +
		`"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}`)}
	calls := []Call{{ID: "1", Name: "zz", Arguments: `{"a":"x","b":1}`},
		{ID: "2", Name: "zz", Arguments: `{"a":"y","b":2}`}}
	for _, c := range []struct{ syntax, answer string }{
		{"hermes", "<tool_call>\n{\"name\": \"zz\", \"arguments\": {\"a\":\"x\",\"b\":1}}\n</tool_call>\n" +
			"<tool_call>\n{\"name\": \"zz\", \"arguments\": {\"a\":\"y\",\"b\":2}}\n</tool_call>"},
		{"hermes", "\n<tool_call>{\"name\":\"zz\",\"arguments\":{\"a\":\"x\",\"b\":1}}</tool_call><tool_call>" +
			"{\"name\":\"zz\",\"arguments\":{\"a\":\"y\",\"b\":2}}</tool_call>"},
		{"qwen3-coder", "<tool_call>\n<function=zz>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\n1\n</parameter>\n" +
			"</function>\n</tool_call>"},
		{"mistral", `[TOOL_CALLS] [{"name": "zz", "arguments": {"a":"x","b":1}}, {"name": "zz", "arguments": ` +
			`{"a":"y","b":2}}]`},
		{"llama-3", `{"name": "zz", "parameters": {"a":"x","b":1}}`},
		{"deepseek-r1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>zz\n```json\n" +
			"{\"a\":\"x\",\"b\":1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
		{"gemma-4", `<|tool_call>call:zz{a:<|"|>x<|"|>,b:1}<tool_call|>`},
		{"kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.zz:0<|tool_call_argument_begin|>" +
			`{"a":"x","b":1}<|tool_call_end|><|tool_calls_section_end|>`},
		{"command-r", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"zz\", \"parameters\": " +
			"{\"a\":\"x\",\"b\":1}}\n]<|END_ACTION|>"},
		{"lfm2", `<|tool_call_start|>[zz(a='x', b=1)]<|tool_call_end|>`},
	} {
		f := ByName(c.syntax)
		of := calls
		if !layoutHas(c.answer, 2) {
			of = calls[:1]
		}
		g := f.Laid(of, tool, c.answer)
		if g == f {
			t.Errorf("%s: the layout of %q is not found", c.syntax, c.answer)
			continue
		}
		spec := g.Resolve(nil)
		text := spec.Text([]Tool{tool}, Choice{Mode: Required}, len(of) > 1)
		r := layoutReader{text: c.answer}
		found := false
		for at := range c.answer {
			found = found || r.match(&text, at, func(end int) bool { return end >= len(c.answer) })
		}
		if !found || text.open() > 0 {
			t.Errorf("%s: %q is not what a required call is, %+v, %d places are free", c.syntax, c.answer, g.layout,
				text.open())
		}
	}
	if f := ByName("hermes"); f.Laid(calls, tool, "no call at all") != f {
		t.Error("a layout was found in a text without calls")
	}
}

// layoutHas reports whether answer has n calls of zz.
func layoutHas(answer string, n int) bool {
	got := 0
	for i := range len(answer) - 5 {
		if answer[i:i+5] == `"zz",` {
			got++
		}
	}
	return got >= n
}
