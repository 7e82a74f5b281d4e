package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tmc/langchaingo/embeddings"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/openai"
)

// langchainFeatures returns those of langchaingo's llms/openai.
func langchainFeatures(url string) []feature {
	connect := func(more ...openai.Option) (*openai.LLM, error) {
		return openai.New(append([]openai.Option{
			openai.WithBaseURL(url), openai.WithToken("none"), openai.WithModel(model)}, more...)...)
	}
	human := func(text string) []llms.MessageContent {
		return []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, text)}
	}
	generate := func(ctx context.Context, messages []llms.MessageContent, more ...llms.CallOption) (*llms.ContentChoice,
		error) {
		llm, err := connect()
		if err != nil {
			return nil, err
		}
		got, err := llm.GenerateContent(ctx, messages,
			append([]llms.CallOption{llms.WithTemperature(0), llms.WithMaxTokens(400)}, more...)...)
		if err != nil {
			return nil, err
		}
		if len(got.Choices) == 0 {
			return nil, errors.New("the answer has no choices")
		}
		return got.Choices[0], nil
	}
	tools := llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{
		Name: toolName, Description: "The weather of a city.", Parameters: weather,
	}}})
	answered := func(ctx context.Context, c *llms.ContentChoice) error {
		if len(c.ToolCalls) == 0 {
			return errors.New("no tool call")
		}
		call := c.ToolCalls[0]
		if err := validWeather(call.FunctionCall.Arguments); err != nil {
			return err
		}
		turn, err := generate(ctx, append(human(ask),
			llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{call}},
			llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{
				ToolCallID: call.ID, Name: toolName, Content: "clear"}}}),
			tools, llms.WithToolChoice("none"), llms.WithMaxTokens(100))
		if err != nil {
			return err
		}
		return check(turn.Content != "", "the second turn has no content")
	}
	return []feature{
		{"chat", func(ctx context.Context) error {
			c, err := generate(ctx, human(question))
			if err != nil {
				return err
			}
			return holds(c.Content, result)
		}},
		{"streaming", func(ctx context.Context) error {
			var streamed string
			_, err := generate(ctx, human(question), llms.WithStreamingFunc(func(_ context.Context, b []byte) error {
				streamed += string(b)
				return nil
			}))
			return all(err, holds(streamed, result))
		}},
		{"system message", func(ctx context.Context) error {
			c, err := generate(ctx, append([]llms.MessageContent{llms.TextParts(llms.ChatMessageTypeSystem, system)},
				human(question)...))
			if err != nil {
				return err
			}
			return holds(c.Content, result)
		}},
		{"reasoning", func(ctx context.Context) error {
			c, err := generate(ctx, human(question))
			if err != nil {
				return err
			}
			var streamed string
			_, err = generate(ctx, human(question),
				llms.WithStreamingReasoningFunc(func(_ context.Context, thought, _ []byte) error {
					streamed += string(thought)
					return nil
				}))
			return all(err, holds(c.ReasoningContent, "So "), holds(streamed, "So "))
		}},
		{"usage", func(ctx context.Context) error {
			c, err := generate(ctx, human(question))
			if err != nil {
				return err
			}
			prompt, _ := c.GenerationInfo["PromptTokens"].(int)
			completion, _ := c.GenerationInfo["CompletionTokens"].(int)
			return check(prompt > 0 && completion > 0, "generation info %v", c.GenerationInfo)
		}},
		{"stop", func(ctx context.Context) error {
			c, err := generate(ctx, human(question), llms.WithStopWords([]string{"7"}))
			if err != nil {
				return err
			}
			return check(c.Content == "5", "content %q", c.Content)
		}},
		{"n", func(ctx context.Context) error {
			llm, err := connect()
			if err != nil {
				return err
			}
			got, err := llm.GenerateContent(ctx, human(question), llms.WithTemperature(0), llms.WithMaxTokens(400),
				llms.WithN(3))
			if err != nil {
				return err
			}
			return check(len(got.Choices) == 3, "%d choices", len(got.Choices))
		}},
		{"tools, auto", func(ctx context.Context) error {
			c, err := generate(ctx, human(ask), tools, llms.WithToolChoice("auto"))
			if err != nil {
				return err
			}
			if len(c.ToolCalls) > 0 {
				return answered(ctx, c)
			}
			return check(c.Content != "", "neither a call nor content")
		}},
		{"tools, required", func(ctx context.Context) error {
			c, err := generate(ctx, human(ask), tools, llms.WithToolChoice("required"))
			if err != nil {
				return err
			}
			return answered(ctx, c)
		}},
		{"tools, streamed", func(ctx context.Context) error {
			c, err := generate(ctx, human(ask), tools, llms.WithToolChoice("required"),
				llms.WithStreamingFunc(func(context.Context, []byte) error { return nil }))
			if err != nil {
				return err
			}
			return answered(ctx, c)
		}},
		{"json_schema", func(ctx context.Context) error {
			llm, err := connect(openai.WithResponseFormat(&openai.ResponseFormat{
				Type: "json_schema", JSONSchema: &openai.ResponseFormatJSONSchema{Name: "sum", Strict: true,
					Schema: &openai.ResponseFormatJSONSchemaProperty{
						Type: "object", Required: []string{"sum"},
						Properties: map[string]*openai.ResponseFormatJSONSchemaProperty{"sum": {Type: "integer"}},
					}},
			}))
			if err != nil {
				return err
			}
			got, err := llm.GenerateContent(ctx, human(question), llms.WithTemperature(0), llms.WithMaxTokens(400))
			if err != nil {
				return err
			}
			return validSum(got.Choices[0].Content)
		}},
		{"json_object", func(ctx context.Context) error {
			c, err := generate(ctx, human(question), llms.WithJSONMode())
			if err != nil {
				return err
			}
			return validObject(c.Content, c.StopReason)
		}},
		{"embeddings", func(ctx context.Context) error {
			llm, err := connect(openai.WithEmbeddingModel(model))
			if err != nil {
				return err
			}
			embedder, err := embeddings.NewEmbedder(llm)
			if err != nil {
				return err
			}
			list, err := embedder.EmbedDocuments(ctx, []string{question, system, question})
			if err != nil {
				return err
			}
			one, err := embedder.EmbedQuery(ctx, question)
			return all(err, vectors(list), check(slices.Equal(one, list[0]), "EmbedQuery gives another embedding"))
		}},
		{"errors", func(ctx context.Context) error {
			_, err := generate(ctx, human(question), llms.WithFrequencyPenalty(99))
			return check(err != nil && strings.Contains(err.Error(), "frequency_penalty"), "error %v", err)
		}},
	}
}
