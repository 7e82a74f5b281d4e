package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// anthropicFeatures returns those of anthropic-sdk-go: models, messages and count_tokens.
func anthropicFeatures(url string) []feature {
	client := anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey("none"), option.WithMaxRetries(0))
	user := func(text string) anthropic.MessageParam {
		return anthropic.NewUserMessage(anthropic.NewTextBlock(text))
	}
	params := func(text string, change ...func(*anthropic.MessageNewParams)) anthropic.MessageNewParams {
		p := anthropic.MessageNewParams{
			Model: model, Messages: []anthropic.MessageParam{user(text)},
			Temperature: anthropic.Float(0), MaxTokens: 400,
		}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	create := func(ctx context.Context, p anthropic.MessageNewParams) (*anthropic.Message, error) {
		return client.Messages.New(ctx, p)
	}
	// stream joins a stream's events, and counts the pieces of a call's arguments.
	stream := func(ctx context.Context, p anthropic.MessageNewParams) (*anthropic.Message, int, error) {
		var m anthropic.Message
		pieces := 0
		s := client.Messages.NewStreaming(ctx, p)
		for s.Next() {
			e := s.Current()
			if err := m.Accumulate(e); err != nil {
				return nil, 0, err
			}
			if e.Type == "content_block_delta" && e.Delta.Type == "input_json_delta" && e.Delta.PartialJSON != "" {
				pieces++
			}
		}
		return &m, pieces, s.Err()
	}
	tool := anthropic.ToolParam{Name: toolName, Description: anthropic.String("The weather of a city."),
		InputSchema: anthropic.ToolInputSchemaParam{
			Properties: weather["properties"], Required: []string{"city", "days"},
			ExtraFields: map[string]any{"additionalProperties": false},
		}}
	// choose offers the tool. A single call is asked for: the model does not stop by itself after one.
	choose := func(choice anthropic.ToolChoiceUnionParam) func(*anthropic.MessageNewParams) {
		return func(p *anthropic.MessageNewParams) {
			p.Tools, p.ToolChoice = []anthropic.ToolUnionParam{{OfTool: &tool}}, choice
		}
	}
	anyTool := anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{
		DisableParallelToolUse: anthropic.Bool(true)}}
	named := anthropic.ToolChoiceUnionParam{OfTool: &anthropic.ToolChoiceToolParam{Name: toolName,
		DisableParallelToolUse: anthropic.Bool(true)}}
	// answered sends the result of a call in a second turn.
	answered := func(ctx context.Context, m *anthropic.Message) error {
		call, err := block(m, "tool_use")
		if err != nil {
			return err
		}
		if err := validWeather(string(call.Input)); err != nil {
			return err
		}
		p := params(ask, choose(anthropic.ToolChoiceUnionParam{OfNone: &anthropic.ToolChoiceNoneParam{}}))
		p.MaxTokens = 100
		p.Messages = append(p.Messages, m.ToParam(),
			anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "clear", false)))
		turn, err := create(ctx, p)
		if err != nil {
			return err
		}
		return check(messageText(turn) != "", "the second turn has no text")
	}
	thinking := func(p *anthropic.MessageNewParams) {
		p.Thinking, p.MaxTokens = anthropic.ThinkingConfigParamOfEnabled(1024), 2048
	}
	// unthinking has no thought: one of this small model may end without an answer.
	unthinking := func(p *anthropic.MessageNewParams) {
		p.Thinking.OfDisabled = &anthropic.ThinkingConfigDisabledParam{}
	}
	return []feature{
		{"list models", func(ctx context.Context) error {
			var ids []string
			page := client.Models.ListAutoPaging(ctx, anthropic.ModelListParams{})
			for page.Next() {
				ids = append(ids, page.Current().ID)
			}
			return all(page.Err(), check(len(ids) == 1 && ids[0] == model, "models: %q", ids))
		}},
		{"messages", func(ctx context.Context) error {
			m, err := create(ctx, params(question))
			if err != nil {
				return err
			}
			return all(holds(messageText(m), result),
				check(m.StopReason == anthropic.StopReasonEndTurn, "stop_reason %q", m.StopReason))
		}},
		{"streaming", func(ctx context.Context) error {
			m, _, err := stream(ctx, params(question))
			if err != nil {
				return err
			}
			return all(holds(messageText(m), result),
				check(m.StopReason == anthropic.StopReasonEndTurn, "stop_reason %q", m.StopReason))
		}},
		{"system", func(ctx context.Context) error {
			bare, err := create(ctx, params(question))
			if err != nil {
				return err
			}
			m, err := create(ctx, params(question, func(p *anthropic.MessageNewParams) {
				p.System = []anthropic.TextBlockParam{{Text: system,
					CacheControl: anthropic.NewCacheControlEphemeralParam()}}
			}))
			if err != nil {
				return err
			}
			return all(holds(messageText(m), result),
				check(prompt(m.Usage) > prompt(bare.Usage), "the system message adds no tokens"))
		}},
		{"thinking", func(ctx context.Context) error {
			m, err := create(ctx, params(question, thinking))
			if err != nil {
				return err
			}
			streamed, _, err := stream(ctx, params(question, thinking))
			if err != nil {
				return err
			}
			for _, m := range []*anthropic.Message{m, streamed} {
				b, err := block(m, "thinking")
				if err != nil {
					return err
				}
				if err := all(holds(b.Thinking, "So "), holds(messageText(m), result)); err != nil {
					return err
				}
			}
			p := params(question, thinking)
			p.Messages = append(p.Messages, streamed.ToParam(), user("Subtract 45 from 1234."))
			next, err := create(ctx, p)
			if err != nil {
				return err
			}
			off, err := create(ctx, params(question, unthinking))
			if err != nil {
				return err
			}
			_, thought := block(off, "thinking")
			return all(holds(messageText(next), "1189"), check(thought != nil, "it thinks although that is disabled"))
		}},
		{"usage", func(ctx context.Context) error {
			m, err := create(ctx, params(question))
			if err != nil {
				return err
			}
			streamed, _, err := stream(ctx, params(question))
			if err != nil {
				return err
			}
			for _, u := range []anthropic.Usage{m.Usage, streamed.Usage} {
				if prompt(u) <= 0 || u.OutputTokens <= 0 {
					return errors.New("usage " + u.RawJSON())
				}
			}
			return nil
		}},
		{"count_tokens", func(ctx context.Context) error {
			got, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{
				Model: model, Messages: []anthropic.MessageParam{user(question)},
				System: anthropic.MessageCountTokensParamsSystemUnion{OfString: anthropic.String(system)},
				Tools:  []anthropic.MessageCountTokensToolUnionParam{{OfTool: &tool}},
			})
			if err != nil {
				return err
			}
			p := params(question, choose(anthropic.ToolChoiceUnionParam{}))
			p.System, p.MaxTokens = []anthropic.TextBlockParam{{Text: system}}, 1
			m, err := create(ctx, p)
			if err != nil {
				return err
			}
			return check(got.InputTokens == prompt(m.Usage), "%d tokens are counted, the prompt has %d",
				got.InputTokens, prompt(m.Usage))
		}},
		{"stop", func(ctx context.Context) error {
			m, err := create(ctx, params(question, func(p *anthropic.MessageNewParams) {
				p.StopSequences = []string{"7"}
			}))
			if err != nil {
				return err
			}
			return check(strings.TrimSpace(messageText(m)) == "5" && m.StopSequence == "7" &&
				m.StopReason == anthropic.StopReasonStopSequence, "%s", m.RawJSON())
		}},
		{"tools, auto", func(ctx context.Context) error {
			auto := choose(anthropic.ToolChoiceUnionParam{OfAuto: &anthropic.ToolChoiceAutoParam{}})
			m, err := create(ctx, params(ask, auto, unthinking))
			if err != nil {
				return err
			}
			if m.StopReason == anthropic.StopReasonToolUse {
				return answered(ctx, m)
			}
			return check(messageText(m) != "", "neither a call nor text")
		}},
		{"tools, required", func(ctx context.Context) error {
			for _, choice := range []anthropic.ToolChoiceUnionParam{anyTool, named} {
				m, err := create(ctx, params(ask, choose(choice)))
				if err != nil {
					return err
				}
				if err := all(check(m.StopReason == anthropic.StopReasonToolUse, "stop_reason %q", m.StopReason),
					answered(ctx, m)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"tools, streamed", func(ctx context.Context) error {
			m, pieces, err := stream(ctx, params(ask, choose(anyTool)))
			if err != nil {
				return err
			}
			return all(check(pieces > 1, "the arguments came in one piece"), answered(ctx, m))
		}},
		{"json_schema", func(ctx context.Context) error {
			m, err := create(ctx, params(question, func(p *anthropic.MessageNewParams) {
				p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: sum}
			}))
			if err != nil {
				return err
			}
			return validSum(messageText(m))
		}},
		{"errors", func(ctx context.Context) error {
			_, err := create(ctx, params(question, func(p *anthropic.MessageNewParams) {
				p.TopP = anthropic.Float(7)
			}))
			var e *anthropic.Error
			return check(errors.As(err, &e) && e.StatusCode == http.StatusBadRequest &&
				e.Type() == anthropic.ErrorTypeInvalidRequestError && strings.Contains(e.RawJSON(), "top_p"),
				"error %v", err)
		}},
	}
}

// prompt returns the number of tokens of a prompt, cached ones included.
func prompt(u anthropic.Usage) int64 {
	return u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
}

// block returns the first block of a type.
func block(m *anthropic.Message, kind string) (*anthropic.ContentBlockUnion, error) {
	for i := range m.Content {
		if m.Content[i].Type == kind {
			return &m.Content[i], nil
		}
	}
	return nil, errors.New("no block of type " + kind)
}

// messageText joins the blocks of text.
func messageText(m *anthropic.Message) string {
	var text string
	for i := range m.Content {
		text += m.Content[i].Text
	}
	return text
}
