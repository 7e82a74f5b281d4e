package toolcall

// Syntaxes are the known syntaxes, the more specific first. Detect takes the first that reads back what the model's
// template renders. docs/tools.md lists them; a test compares the two.
var Syntaxes = []Syntax{
	{
		Name:   "harmony",
		Before: []string{"<|start|>"}, Middle: []string{"<|message|>"}, After: []string{"<|end|>"},
		Notation: Object, NameTag: "to=", Prefix: "functions.", Single: true,
		Heads: []string{"<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
			" to=functions.NAME<|channel|>commentary json<|message|>"},
		Channels: []string{"<|channel|>commentary", "<|channel|>analysis"}, Typed: "<|constrain|>",
		Signs: [][]string{{"<|channel|>", "<|message|>", "to=functions."}},
	},
	{
		Name: "kimi-k3",
		// the model leaves the section's markers out
		Open: []string{"<|open|>tools<|sep|>"}, Close: []string{"<|close|>tools<|sep|>"}, Bare: true,
		Before: []string{`<|open|>call tool="`}, ID: []string{`" index="`}, Middle: []string{`"<|sep|>`},
		After:    []string{"<|close|>call<|sep|>"},
		Notation: Tagged, Escaped: true,
		Params: Params{
			Open: []string{`<|open|>argument key="`}, Attr: []string{`" type="`}, Middle: []string{`"<|sep|>`},
			Close: []string{"<|close|>argument<|sep|>"},
		},
	},
	{
		Name: "kimi-k2",
		// the model leaves the section's markers out
		Open: []string{"<|tool_calls_section_begin|>"}, Close: []string{"<|tool_calls_section_end|>"}, Bare: true,
		Before: []string{"<|tool_call_begin|>"}, Middle: []string{"<|tool_call_argument_begin|>"},
		After:    []string{"<|tool_call_end|>"},
		Notation: Object, Prefix: "functions.", Suffixed: true,
		// some of its templates change lists, which the sandbox forbids
		Signs: [][]string{{"<|tool_calls_section_begin|>"}},
	},
	{
		Name: "deepseek-v3.1",
		Open: []string{"<｜tool▁calls▁begin｜>"}, Close: []string{"<｜tool▁calls▁end｜>"},
		Before: []string{"<｜tool▁call▁begin｜>"}, Middle: []string{"<｜tool▁sep｜>"}, After: []string{"<｜tool▁call▁end｜>"},
		Notation: Object,
	},
	{
		Name: "deepseek-r1",
		Open: []string{"<｜tool▁calls▁begin｜>"}, Close: []string{"<｜tool▁calls▁end｜>"},
		Before:   []string{"<｜tool▁call▁begin｜>function<｜tool▁sep｜>"},
		Middle:   []string{"\n```json\n"},
		After:    []string{"\n```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>", "```"},
		Notation: Object,
	},
	{
		Name: "deepseek-v3.2",
		Open: []string{"<｜DSML｜function_calls>"}, Close: []string{"</｜DSML｜function_calls>"},
		Before: []string{`<｜DSML｜invoke name="`}, Middle: []string{`">`}, After: []string{"</｜DSML｜invoke>"},
		Notation: Tagged, Params: dsml,
	},
	{
		Name: "deepseek-v4",
		Open: []string{"<｜DSML｜tool_calls>"}, Close: []string{"</｜DSML｜tool_calls>"},
		Before: []string{`<｜DSML｜invoke name="`}, Middle: []string{`">`}, After: []string{"</｜DSML｜invoke>"},
		Notation: Tagged, Params: dsml,
	},
	{
		Name: "minimax-m2",
		Open: []string{"<minimax:tool_call>"}, Close: []string{"</minimax:tool_call>"},
		Before: []string{`<invoke name="`}, Middle: []string{`">`}, After: []string{"</invoke>"},
		Notation: Tagged, Params: element(`<parameter name="`, `">`, "</parameter>"),
	},
	{
		Name: "minimax-m3",
		Open: []string{"]<]minimax[>[<tool_call>"}, Close: []string{"]<]minimax[>[</tool_call>"},
		Before: []string{`]<]minimax[>[<invoke name="`}, Middle: []string{`">`},
		After:    []string{"]<]minimax[>[</invoke>"},
		Notation: Tagged,
		Params: Params{
			Open: []string{"]<]minimax[>[<"}, Middle: []string{">"}, Close: []string{"]<]minimax[>[</"}, Nested: true,
		},
	},
	{
		Name: "atem",
		Open: []string{"<atem:function_calls>"}, Close: []string{"</atem:function_calls>"},
		Before: []string{`<atem:invoke name="`}, Middle: []string{`">`}, After: []string{"</atem:invoke>"},
		Notation: Tagged, Params: element(`<atem:parameter name="`, `">`, "</atem:parameter>"),
		Heads: []string{" to=NAME<|message|>"},
	},
	{
		Name: "seed-oss",
		Open: []string{"<seed:tool_call>"}, Close: []string{"</seed:tool_call>"},
		Before: []string{"<function="}, Middle: []string{">"}, After: []string{"</function>"},
		Notation: Tagged, Params: element("<parameter=", ">", "</parameter>"),
	},
	{
		Name: "qwen3-coder",
		// the model forgets the element around
		Open: []string{"<tool_call>"}, Close: []string{"</tool_call>"}, Bare: true,
		Before: []string{"<function="}, Middle: []string{">"}, After: []string{"</function>"},
		Notation: Tagged,
		Params: Params{
			Open: []string{"<parameter="}, Middle: []string{">"}, Close: []string{"</parameter>"}, Pad: "\n",
		},
	},
	{
		Name:     "hy3",
		Open:     []string{"<tool_calls:opensource>", "<tool_calls>"},
		Close:    []string{"</tool_calls:opensource>", "</tool_calls>"},
		Before:   []string{"<tool_call:opensource>", "<tool_call>"},
		Middle:   []string{"<tool_sep:opensource>", "<tool_sep>"},
		After:    []string{"</tool_call:opensource>", "</tool_call>"},
		Notation: Tagged,
		Params: Params{
			Open:   []string{"<arg_key:opensource>", "<arg_key>"},
			Middle: []string{"</arg_key:opensource>\n<arg_value:opensource>", "</arg_key>\n<arg_value>"},
			Close:  []string{"</arg_value:opensource>", "</arg_value>"},
		},
	},
	{
		Name: "glm-4.5",
		Open: []string{"<tool_call>"}, Close: []string{"</tool_call>"},
		Notation: Tagged,
		Params:   element("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
	},
	{
		Name:   "minicpm-5",
		Before: []string{`<function name="`}, Middle: []string{`">`}, After: []string{"</function>"},
		Notation: Tagged,
		Params: Params{
			Open: []string{`<param name="`}, Middle: []string{`">`}, Close: []string{"</param>"},
			Raw: [2]string{"<![CDATA[", "]]>"},
		},
	},
	{
		Name: "gemma-4",
		Open: []string{"<|tool_call>"}, Close: []string{"<tool_call|>"},
		Before: []string{"call:"}, Middle: []string{"{"},
		Notation: Braces, Quote: `<|"|>`, Stop: []string{"<|tool_response>"},
	},
	{
		Name: "functiongemma",
		Open: []string{"<start_function_call>"}, Close: []string{"<end_function_call>"},
		Before: []string{"call:"}, Middle: []string{"{"},
		Notation: Braces, Quote: "<escape>", Stop: []string{"<start_function_response>"},
	},
	{
		Name: "lfm2",
		Open: []string{"<|tool_call_start|>"}, Close: []string{"<|tool_call_end|>"},
		Middle:   []string{"("},
		Notation: Keywords,
		Signs:    [][]string{{"<|tool_list_start|>"}, {"<|tool_call_start|>"}},
		Vocab:    []string{"<|tool_call_start|>", "<|tool_call_end|>"},
	},
	{
		Name:   "mistral-args",
		Before: []string{"[TOOL_CALLS]"}, ID: []string{"[CALL_ID]"}, Middle: []string{"[ARGS]"},
		Notation: Object,
	},
	{
		Name:  "mistral",
		Open:  []string{"[TOOL_CALLS]"},
		Signs: [][]string{{"[TOOL_CALLS]"}, {"[AVAILABLE_TOOLS]"}},
	},
	{
		Name: "command-r",
		Open: []string{"<|START_ACTION|>"}, Close: []string{"<|END_ACTION|>"},
		Keys:  Keys{Name: []string{"tool_name"}, Arguments: []string{"parameters"}, ID: []string{"tool_call_id"}},
		Signs: [][]string{{"<|START_ACTION|>"}},
		Vocab: []string{"<|START_ACTION|>", "<|END_ACTION|>"},
	},
	{
		Name: "command-r-plus",
		Open: []string{"Action:\n```json"}, Close: []string{"```"},
		Keys: Keys{Name: []string{"tool_name"}, Arguments: []string{"parameters"}},
	},
	{
		Name: "nemotron",
		Open: []string{"<TOOLCALL>"}, Close: []string{"</TOOLCALL>"},
		Signs: [][]string{{"<TOOLCALL>"}},
		Vocab: []string{"<TOOLCALL>", "</TOOLCALL>"},
	},
	{
		Name: "apertus",
		Open: []string{"<|tools_prefix|>"}, Close: []string{"<|tools_suffix|>"},
		Notation: Keyed,
		Vocab:    []string{"<|tools_prefix|>", "<|tools_suffix|>"},
	},
	{
		Name: "hermes",
		Open: []string{"<tool_call>"}, Close: []string{"</tool_call>"},
		Signs: [][]string{{"<tool_call>"}}, Guess: true,
	},
	{
		Name: "phi-4",
		Open: []string{"<|tool_call|>"}, Close: []string{"<|/tool_call|>"},
		Signs: [][]string{{"<|tool_call|>", "<|/tool_call|>"}, {"<|tool|>", "<|/tool|>"}},
	},
	{
		Name: "granite-3",
		Open: []string{"<|tool_call|>", "<tool_call>"}, Close: []string{"</tool_call>"},
		Signs: [][]string{{"<|tool_call|>"}},
	},
	{
		Name: "gigachat-3",
		Open: []string{"<|message_sep|>\n\nfunction call<|role_sep|>"}, Single: true,
	},
	{
		Name: "gigachat",
		Open: []string{"<|function_call|>"}, Single: true,
	},
	{
		Name: "hunyuan",
		Open: []string{"<tool_calls>"}, Close: []string{"</tool_calls>"},
		Signs: [][]string{{"<tool_calls>", "</tool_calls>"}},
	},
	{
		Name: "functools",
		Open: []string{"functools"},
	},
	{
		Name:   "functionary-3.1",
		Before: []string{"<function="}, Middle: []string{">"}, After: []string{"</function>"},
		Notation: Object,
		Signs:    [][]string{{"<function=example_function_name>"}},
	},
	{
		Name:   "functionary-3.2",
		Before: []string{">>>"}, Content: []string{">>>all\n"},
		Notation: Object,
	},
	{
		Name: "llama-3",
		Open: []string{"<|python_tag|>"}, Bare: true,
		Middle: []string{".call("}, // of tools that the model knows from its training
		Keys:   Keys{Name: []string{"name"}, Arguments: []string{"parameters"}},
		Signs:  [][]string{{"<|python_tag|>"}, {"<|start_header_id|>", `{"name": function name, "parameters":`}},
	},
	JSON,
}

// JSON is the syntax of models whose template says nothing of tools: Instructions describe it to them.
var JSON = Syntax{
	Name: "json",
	Open: []string{"<tool_call>"}, Weak: []string{"```json"}, Close: []string{"</tool_call>", "```"}, Bare: true,
	Keys: Keys{Name: []string{"name"}, Arguments: []string{"arguments"}},
}

var dsml = Params{
	Open: []string{`<｜DSML｜parameter name="`}, Attr: []string{`" string="`}, Middle: []string{`">`},
	Close: []string{"</｜DSML｜parameter>"},
}

func element(open, middle, shut string) Params {
	return Params{Open: []string{open}, Middle: []string{middle}, Close: []string{shut}}
}
