package gemini

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// request is the translated request, in the format of package wire.
type request struct {
	Model    string        `json:"model,omitempty"`
	Messages []api.Message `json:"messages"`
	Tools    []api.Tool    `json:"tools,omitempty"`
	Choice   any           `json:"tool_choice,omitempty"`
	Think    *api.Think    `json:"think,omitempty"`
	Effort   string        `json:"reasoning_effort,omitempty"`
	Format   any           `json:"response_format,omitempty"`
	Choices  []string      `json:"guided_choice,omitempty"`

	Temperature rawJSON `json:"temperature,omitempty"`
	TopP        rawJSON `json:"top_p,omitempty"`
	TopK        rawJSON `json:"top_k,omitempty"`
	MaxTokens   *int    `json:"max_tokens,omitempty"`
	Stop        rawJSON `json:"stop,omitempty"`
	Seed        rawJSON `json:"seed,omitempty"`
	Presence    rawJSON `json:"presence_penalty,omitempty"`
	Frequency   rawJSON `json:"frequency_penalty,omitempty"`
	Logprobs    *int    `json:"logprobs,omitempty"`

	left wire.Notes // parts and tools that were left out
}

// names are the names of a request's fields in a body.
var names = api.Names{"messages": "contents", "tools.function": "", "tools.function.parameters": ".parameters",
	"max_tokens": "generationConfig.maxOutputTokens", "temperature": "generationConfig.temperature",
	"top_p": "generationConfig.topP", "top_k": "generationConfig.topK", "stop": "generationConfig.stopSequences",
	"seed": "generationConfig.seed", "presence_penalty": "generationConfig.presencePenalty",
	"frequency_penalty": "generationConfig.frequencyPenalty", "logprobs": "generationConfig.logprobs",
	"think": "generationConfig.thinkingConfig", "reasoning_effort": "generationConfig.thinkingConfig.thinkingLevel",
	"response_format": "generationConfig.responseSchema", "guided_choice": "generationConfig.responseSchema.enum",
	"tool_choice": "toolConfig.functionCallingConfig"}

// asked is a translated body.
type asked struct {
	*wire.Request
	answers  int  // candidateCount
	thoughts bool // the answer has the thoughts
	top      int  // alternatives of each token; with logprobs
}

// camelBody puts a body whose names are in camelCase into a request. A body that is no JSON is left for its reader.
func camelBody(r *http.Request) error {
	raw, err := api.ReadBody(r)
	if err != nil {
		return err
	}
	if checked, err := wire.CheckJSON(raw); err == nil {
		raw = camelCase(checked)
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return nil
}

// readBody translates a body into a request.
func readBody(id, model string, r *http.Request, table api.Table) (*asked, error) {
	if err := camelBody(r); err != nil {
		return nil, err
	}
	fields, err := table.Body(r)
	if err != nil {
		return nil, err
	}
	var in body
	if err := fields.Into(&in); err != nil {
		return nil, err
	}
	if in.Counted != nil {
		if fields.Has("contents") {
			return nil, api.Refuse(`field "contents" is in "generateContentRequest" too; send one of the two`)
		}
		if fields, err = fields.Under("generateContentRequest", contentTable, in.Counted); err != nil {
			return nil, err
		}
		in = body{}
		if err := fields.Into(&in); err != nil {
			return nil, err
		}
	}
	if len(in.Contents) == 0 {
		return nil, api.Refuse(`field "contents" is missing; it must be an array of {"role":…,"parts":[…]}`)
	}
	want, out := &request{Model: model}, &asked{answers: 1}
	if err := want.conversation(&in); err != nil {
		return nil, err
	}
	if err := want.useTools(&in); err != nil {
		return nil, err
	}
	if in.Config != nil {
		inner, err := fields.Under("generationConfig", configTable, in.Config)
		if err != nil {
			return nil, err
		}
		var c config
		if err := inner.Into(&c); err != nil {
			return nil, err
		}
		if err := want.configure(&c, out); err != nil {
			return nil, err
		}
		if err := fields.Join(inner); err != nil {
			return nil, err
		}
	}
	req, err := fields.Request(id, want)
	if err != nil {
		return nil, names.Of(err)
	}
	req.Notes = append(req.Notes, want.left...)
	out.Request = req
	return out, nil
}

// maxAnswers is the largest candidateCount.
const maxAnswers = 128

// configure translates generationConfig.
func (want *request) configure(c *config, out *asked) error {
	want.Temperature, want.TopP, want.TopK, want.Stop = c.Temperature, c.TopP, c.TopK, c.Stop
	want.Seed, want.Presence, want.Frequency = c.Seed, c.Presence, c.Frequency
	if string(c.Seed) == "-1" { // a seed like any other in this API
		want.Seed = rawJSON("4294967295")
	}
	n, err := integer("maxOutputTokens", c.MaxTokens, 0, wire.MaxTokensLimit)
	if err != nil {
		return err
	}
	if n > 0 { // 0 is "not set" in Protocol Buffers
		want.MaxTokens = &n
	}
	answers, err := integer("candidateCount", c.Answers, 0, maxAnswers)
	if err != nil {
		return err
	}
	out.answers = max(answers, 1)
	if c.Logprobs != nil && *c.Logprobs != 0 && !c.WithLogprobs {
		return api.Refuse(`field "generationConfig.logprobs" needs "responseLogprobs": true`)
	}
	if c.WithLogprobs {
		n := 1
		if c.Logprobs != nil {
			out.top, n = *c.Logprobs, max(*c.Logprobs, 1)
		}
		want.Logprobs = &n
	}
	for _, m := range c.Modalities {
		if m != "TEXT" && m != "MODALITY_UNSPECIFIED" {
			return api.Refusef(`field "generationConfig.responseModalities" has %.40q; answers are "TEXT"`, m)
		}
	}
	if err := want.form(c); err != nil {
		return err
	}
	return want.think(c.Thinking, out)
}

// integer returns the value of a field of generationConfig, 0 if it is absent. JSON may have it as 7.0.
func integer(name string, v *float64, least, most int) (int, error) {
	if v == nil {
		return 0, nil
	}
	if *v != math.Trunc(*v) || *v < float64(least) || *v > float64(most) {
		return 0, api.Refusef(`field "generationConfig.%s" is %v; it must be an integer of %d…%d`, name, *v, least,
			most)
	}
	return int(*v), nil
}

// form translates the form of the answer.
func (want *request) form(c *config) error {
	mime, schema, field := c.MimeType, c.JSONSchema, "responseJsonSchema"
	if c.Schema != nil {
		if schema != nil {
			return api.Refuse(`fields "generationConfig.responseSchema" and "responseJsonSchema" exclude each other`)
		}
		schema, field = jsonSchema(c.Schema), "responseSchema"
	}
	if f := c.ResponseFormat; f != nil && f.Text != nil {
		if schema != nil && f.Text.Schema != nil {
			return api.Refuse(`field "generationConfig.responseFormat" has a schema, and so has "` + field + `"`)
		}
		if f.Text.MimeType != "" {
			mime = f.Text.MimeType
		}
		if f.Text.Schema != nil {
			schema, field = f.Text.Schema, "responseFormat"
		}
	}
	switch mime {
	case "application/json", "APPLICATION_JSON":
		want.Format = map[string]string{"type": "json_object"}
		if schema != nil {
			want.Format = map[string]any{"type": "json_schema", "json_schema": map[string]any{"schema": schema}}
		}
	case "text/x.enum":
		var of struct {
			Enum []string `json:"enum"`
		}
		if json.Unmarshal(schema, &of) != nil || len(of.Enum) == 0 {
			return api.Refuse(`field "generationConfig.responseMimeType" is "text/x.enum": it needs a ` +
				`"responseSchema" with "enum", an array of strings`)
		}
		want.Choices = of.Enum
	case "", "text/plain", "TEXT_PLAIN", "MIME_TYPE_UNSPECIFIED":
		if schema != nil {
			return api.Refuse(`field "generationConfig.` + field + `" needs "responseMimeType": "application/json"`)
		}
	default:
		return api.Refusef(`field "generationConfig.responseMimeType" is %.60q; it must be "text/plain", `+
			`"application/json" or "text/x.enum"`, mime)
	}
	return nil
}

// levels are the values of thinkingLevel, with the effort of a request.
var levels = map[string]string{"THINKING_LEVEL_UNSPECIFIED": "", "MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium",
	"HIGH": "high"}

// think translates the thinking configuration.
func (want *request) think(t *thinkingConfig, out *asked) error {
	if t == nil {
		return nil
	}
	out.thoughts = t.Include
	if t.Level != "" {
		effort, ok := levels[upper(t.Level)]
		if !ok {
			return api.Refusef(`field "generationConfig.thinkingConfig.thinkingLevel" is %.40q; it must be `+
				`"MINIMAL", "LOW", "MEDIUM" or "HIGH"`, t.Level)
		}
		want.Effort = effort
	}
	if t.Budget == nil {
		return nil
	}
	n, err := integer("thinkingConfig.thinkingBudget", t.Budget, -1, wire.MaxTokensLimit)
	switch {
	case err != nil:
		return err
	case n < 0:
		want.Think = &api.Think{Mode: "auto"}
	case n == 0:
		want.Think, want.Effort = &api.Think{Mode: "off"}, ""
	default:
		want.Think, want.Effort = &api.Think{Mode: "auto", Budget: &n}, "" // a budget overrides the level
	}
	return nil
}

func upper(s string) string { return string(bytes.ToUpper([]byte(s))) }

// hostedTools are the tools that Google's servers run.
var hostedTools = map[string]bool{"retrieval": true, "computerUse": true, "fileSearch": true, "googleSearch": true,
	"googleMaps": true, "codeExecution": true, "enterpriseWebSearch": true, "googleSearchRetrieval": true,
	"parallelAiSearch": true, "urlContext": true, "mcpServers": true, "exaAiSearch": true}

// UnmarshalJSON also notes the members that are tools of Google's servers.
func (t *tool) UnmarshalJSON(b []byte) error {
	type plain tool
	if err := json.Unmarshal(b, (*plain)(t)); err != nil {
		return err
	}
	list, _ := membersOf(b)
	for _, m := range list {
		if hostedTools[m.name] {
			t.hosted = append(t.hosted, m.name)
		}
	}
	return nil
}

// useTools translates tools and toolConfig.
func (want *request) useTools(in *body) error {
	for _, t := range in.Tools {
		for _, name := range t.hosted {
			want.left.Add(wire.ToolLeftOut(name))
		}
		for _, f := range t.Functions {
			schema := f.JSONSchema
			if schema == nil && f.Parameters != nil {
				schema = jsonSchema(f.Parameters)
			}
			want.Tools = append(want.Tools,
				api.NewTool(api.Function{Name: f.Name, Description: f.Description, Parameters: schema}))
		}
	}
	if in.Choice == nil || in.Choice.Calling == nil {
		return nil
	}
	c := in.Choice.Calling
	mode := map[string]string{"": "auto", "MODE_UNSPECIFIED": "auto", "AUTO": "auto", "VALIDATED": "auto",
		"ANY": "required", "NONE": "none"}[upper(c.Mode)]
	switch {
	case mode == "":
		return api.Refusef(`field "toolConfig.functionCallingConfig.mode" is %.40q; it must be "AUTO", "ANY", `+
			`"VALIDATED" or "NONE"`, c.Mode)
	case len(want.Tools) == 0: // without tools none can be called
		return nil
	case len(c.Allowed) == 0 || mode == "none":
		want.Choice = mode
		return nil
	}
	var allowed []api.Tool
	for _, name := range c.Allowed {
		if !slices.ContainsFunc(want.Tools, func(t api.Tool) bool { return t.Function.Name == name }) {
			return api.Refusef(`field "toolConfig.functionCallingConfig.allowedFunctionNames" has %.100q, which is `+
				`not declared in "tools"`, name)
		}
		allowed = append(allowed, api.NewTool(api.Function{Name: name}))
	}
	want.Choice = api.NewAllowed(mode, allowed)
	return nil
}
