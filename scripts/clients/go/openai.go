package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// openaiFeatures returns those of openai-go: models, chat completions and responses.
func openaiFeatures(url string) []feature {
	client := openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("none"), option.WithMaxRetries(0))
	params := func(text string, change ...func(*openai.ChatCompletionNewParams)) openai.ChatCompletionNewParams {
		p := openai.ChatCompletionNewParams{
			Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
			Temperature: openai.Float(0), MaxTokens: openai.Int(400),
		}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	chat := func(ctx context.Context, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
		got, err := client.Chat.Completions.New(ctx, p)
		if err == nil && len(got.Choices) == 0 {
			err = errors.New("the answer has no choices")
		}
		return got, err
	}
	// stream joins a stream's chunks, and the reasoning, which is an extra field.
	stream := func(ctx context.Context, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, string, error) {
		var acc openai.ChatCompletionAccumulator
		var thought string
		s := client.Chat.Completions.NewStreaming(ctx, p)
		for s.Next() {
			chunk := s.Current()
			if !acc.AddChunk(chunk) {
				return nil, "", errors.New("the accumulator refuses a chunk: " + chunk.RawJSON())
			}
			if len(chunk.Choices) > 0 {
				thought += reasoning(chunk.Choices[0].Delta.RawJSON())
			}
		}
		if err := s.Err(); err != nil {
			return nil, "", err
		}
		return &acc.ChatCompletion, thought, check(len(acc.Choices) > 0, "the stream has no choices")
	}
	tool := func(p *openai.ChatCompletionNewParams) {
		p.Tools = []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
				Name: toolName, Description: openai.String("The weather of a city."), Parameters: weather,
			})}
	}
	choose := func(mode string) func(*openai.ChatCompletionNewParams) {
		return func(p *openai.ChatCompletionNewParams) {
			p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String(mode)}
		}
	}
	// answered sends the result of a call in a second turn.
	answered := func(ctx context.Context, m openai.ChatCompletionMessage) error {
		if len(m.ToolCalls) == 0 {
			return errors.New("no tool call")
		}
		if err := validWeather(m.ToolCalls[0].Function.Arguments); err != nil {
			return err
		}
		p := params(ask, tool, choose("none"))
		p.MaxTokens = openai.Int(100)
		p.Messages = append(p.Messages, m.ToParam())
		for _, c := range m.ToolCalls {
			p.Messages = append(p.Messages, openai.ToolMessage("clear", c.ID))
		}
		turn, err := chat(ctx, p)
		if err != nil {
			return err
		}
		return check(turn.Choices[0].Message.Content != "", "the second turn has no content")
	}
	return append([]feature{
		{"list models", func(ctx context.Context) error {
			page, err := client.Models.List(ctx)
			if err != nil {
				return err
			}
			return check(len(page.Data) == 1 && page.Data[0].ID == model, "models: %s", page.RawJSON())
		}},
		{"chat", func(ctx context.Context) error {
			got, err := chat(ctx, params(question))
			if err != nil {
				return err
			}
			return holds(got.Choices[0].Message.Content, result)
		}},
		{"streaming", func(ctx context.Context) error {
			got, _, err := stream(ctx, params(question))
			if err != nil {
				return err
			}
			return all(holds(got.Choices[0].Message.Content, result),
				check(got.Choices[0].FinishReason == "stop", "finish_reason %q", got.Choices[0].FinishReason))
		}},
		{"system and developer messages", func(ctx context.Context) error {
			for _, m := range []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(system),
				openai.DeveloperMessage(system)} {
				p := params(question)
				p.Messages = append([]openai.ChatCompletionMessageParamUnion{m}, p.Messages...)
				got, err := chat(ctx, p)
				if err != nil {
					return err
				}
				if err := holds(got.Choices[0].Message.Content, result); err != nil {
					return err
				}
			}
			return nil
		}},
		{"reasoning", func(ctx context.Context) error {
			got, err := chat(ctx, params(question))
			if err != nil {
				return err
			}
			_, streamed, err := stream(ctx, params(question))
			return all(err, holds(reasoning(got.Choices[0].Message.RawJSON()), "So "), holds(streamed, "So "))
		}},
		{"usage", func(ctx context.Context) error {
			got, err := chat(ctx, params(question))
			if err != nil {
				return err
			}
			streamed, _, err := stream(ctx, params(question, func(p *openai.ChatCompletionNewParams) {
				p.StreamOptions.IncludeUsage = openai.Bool(true)
			}))
			if err != nil {
				return err
			}
			for _, u := range []openai.CompletionUsage{got.Usage, streamed.Usage} {
				if u.PromptTokens <= 0 || u.CompletionTokensDetails.ReasoningTokens <= 0 ||
					u.TotalTokens != u.PromptTokens+u.CompletionTokens {
					return errors.New("usage " + u.RawJSON())
				}
			}
			return nil
		}},
		{"stop", func(ctx context.Context) error {
			got, err := chat(ctx, params(question, func(p *openai.ChatCompletionNewParams) {
				p.Stop.OfStringArray = []string{"7"}
			}))
			if err != nil {
				return err
			}
			return check(got.Choices[0].Message.Content == "5", "content %q", got.Choices[0].Message.Content)
		}},
		{"logprobs", func(ctx context.Context) error {
			p := params(question, func(p *openai.ChatCompletionNewParams) {
				p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
			})
			got, err := chat(ctx, p)
			if err != nil {
				return err
			}
			streamed, _, err := stream(ctx, p)
			if err != nil {
				return err
			}
			for _, c := range []openai.ChatCompletionChoice{got.Choices[0], streamed.Choices[0]} {
				if len(c.Logprobs.Content) == 0 || len(c.Logprobs.Content[0].TopLogprobs) != 2 {
					return errors.New("logprobs " + c.Logprobs.RawJSON())
				}
			}
			return nil
		}},
		{"n", func(ctx context.Context) error {
			got, err := chat(ctx, params(question, func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(3) }))
			if err != nil {
				return err
			}
			return all(check(len(got.Choices) == 3, "%d choices", len(got.Choices)),
				holds(got.Choices[len(got.Choices)-1].Message.Content, result))
		}},
		{"tools, auto", func(ctx context.Context) error {
			got, err := chat(ctx, params(ask, tool, choose("auto")))
			if err != nil {
				return err
			}
			if m := got.Choices[0].Message; len(m.ToolCalls) > 0 {
				return answered(ctx, m)
			}
			return check(got.Choices[0].Message.Content != "", "neither a call nor content")
		}},
		{"tools, required", func(ctx context.Context) error {
			got, err := chat(ctx, params(ask, tool, choose("required")))
			if err != nil {
				return err
			}
			return answered(ctx, got.Choices[0].Message)
		}},
		{"tools, streamed", func(ctx context.Context) error {
			got, _, err := stream(ctx, params(ask, tool, choose("required")))
			if err != nil {
				return err
			}
			return answered(ctx, got.Choices[0].Message)
		}},
		{"json_schema", func(ctx context.Context) error {
			got, err := chat(ctx, params(question, func(p *openai.ChatCompletionNewParams) {
				p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
					JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "sum", Strict: openai.Bool(true),
						Schema: sum},
				}
			}))
			if err != nil {
				return err
			}
			return validSum(got.Choices[0].Message.Content)
		}},
		{"json_object", func(ctx context.Context) error {
			got, err := chat(ctx, params(question, func(p *openai.ChatCompletionNewParams) {
				p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
			}))
			if err != nil {
				return err
			}
			return validObject(got.Choices[0].Message.Content, got.Choices[0].FinishReason)
		}},
		{"completions", func(ctx context.Context) error {
			p := openai.CompletionNewParams{
				Model: model, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(question)},
				MaxTokens: openai.Int(8), Temperature: openai.Float(0),
			}
			got, err := client.Completions.New(ctx, p)
			if err != nil {
				return err
			}
			var text string
			s := client.Completions.NewStreaming(ctx, p)
			for s.Next() {
				for _, c := range s.Current().Choices {
					text += c.Text
				}
			}
			return all(s.Err(), check(len(got.Choices) == 1 && got.Usage.CompletionTokens > 0, "%s", got.RawJSON()),
				check(text == got.Choices[0].Text, "streamed %q, whole %q", text, got.Choices[0].Text))
		}},
		{"errors", func(ctx context.Context) error {
			_, err := chat(ctx,
				params(question, func(p *openai.ChatCompletionNewParams) { p.TopLogprobs = openai.Int(500) }))
			var e *openai.Error
			return check(errors.As(err, &e) && e.StatusCode == http.StatusBadRequest && e.Message != "", "error %v",
				err)
		}},
	}, responsesFeatures(client)...)
}

// reasoning returns the extra field of a message or a delta.
func reasoning(raw string) string {
	var m struct {
		Reasoning string `json:"reasoning_content"`
	}
	_ = json.Unmarshal([]byte(raw), &m) // what the library has read is JSON
	return m.Reasoning
}

func responsesFeatures(client openai.Client) []feature {
	params := func(text string) responses.ResponseNewParams {
		return responses.ResponseNewParams{
			Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
			Temperature: openai.Float(0), MaxOutputTokens: openai.Int(400),
		}
	}
	weatherTool := []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
		Name: toolName, Parameters: weather, Strict: openai.Bool(true),
	}}}
	mode := func(m responses.ToolChoiceOptions) responses.ResponseNewParamsToolChoiceUnion {
		return responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(m)}
	}
	return []feature{
		{"responses", func(ctx context.Context) error {
			p := params(question)
			p.Instructions = openai.String(system)
			got, err := client.Responses.New(ctx, p)
			if err != nil {
				return err
			}
			return all(holds(got.OutputText(), result),
				check(got.Usage.OutputTokens > 0, "usage %s", got.Usage.RawJSON()))
		}},
		{"responses, streaming", func(ctx context.Context) error {
			var text, thought string
			done := false
			s := client.Responses.NewStreaming(ctx, params(question))
			for s.Next() {
				switch e := s.Current(); e.Type {
				case "response.output_text.delta":
					text += e.Delta
				case "response.reasoning_text.delta":
					thought += e.Delta
				case "response.completed":
					done = true
				}
			}
			return all(s.Err(), holds(text, result), holds(thought, "So "), check(done, "no response.completed"))
		}},
		{"responses, tools", func(ctx context.Context) error {
			p := params(ask)
			p.Tools, p.ToolChoice = weatherTool, mode(responses.ToolChoiceOptionsRequired)
			got, err := client.Responses.New(ctx, p)
			if err != nil {
				return err
			}
			for _, item := range got.Output {
				if item.Type != "function_call" {
					continue
				}
				call := item.AsFunctionCall()
				if err := validWeather(call.Arguments); err != nil {
					return err
				}
				next := params(ask)
				next.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
					{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
						CallID: openai.String(call.CallID),
						Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{
							OfString: openai.String("clear")},
					}},
				}}
				next.PreviousResponseID = openai.String(got.ID)
				next.Tools, next.ToolChoice = weatherTool, mode(responses.ToolChoiceOptionsNone)
				last, err := client.Responses.New(ctx, next)
				if err != nil {
					return err
				}
				return check(last.OutputText() != "", "the second turn has no text")
			}
			return errors.New("no function_call in " + got.RawJSON())
		}},
		{"responses, previous_response_id", func(ctx context.Context) error {
			first, err := client.Responses.New(ctx, params(question))
			if err != nil {
				return err
			}
			p := params("Subtract 45 from 1234.")
			p.PreviousResponseID = openai.String(first.ID)
			second, err := client.Responses.New(ctx, p)
			if err != nil {
				return err
			}
			kept, err := client.Responses.Get(ctx, first.ID, responses.ResponseGetParams{})
			if err != nil {
				return err
			}
			return all(holds(second.OutputText(), "1189"), check(kept.ID == first.ID, "it returns %q", kept.ID),
				check(second.Usage.InputTokens > first.Usage.InputTokens, "the first turn is not in the prompt"))
		}},
		{"embeddings", func(ctx context.Context) error {
			texts := openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{question, "another text", question}}
			got, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: model, Input: texts})
			if err != nil {
				return err
			}
			if len(got.Data) != 3 || got.Usage.PromptTokens == 0 {
				return errors.New("not three embeddings: " + got.RawJSON())
			}
			return vectors([][]float64{got.Data[0].Embedding, got.Data[1].Embedding, got.Data[2].Embedding})
		}},
		{"responses, json_schema", func(ctx context.Context) error {
			p := params(question)
			p.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("sum", sum)
			got, err := client.Responses.New(ctx, p)
			if err != nil {
				return err
			}
			return validSum(got.OutputText())
		}},
	}
}
