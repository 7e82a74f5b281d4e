package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ollama/ollama/api"
)

// ollamaFeatures returns those of ollama's package api.
func ollamaFeatures(address string) ([]feature, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	client := api.NewClient(base, http.DefaultClient)
	options := func(more ...any) map[string]any {
		o := map[string]any{"temperature": 0, "num_predict": 400}
		for i := 0; i < len(more); i += 2 {
			o[more[i].(string)] = more[i+1]
		}
		return o
	}
	user := func(text string) []api.Message { return []api.Message{{Role: "user", Content: text}} }
	// chat joins the parts of an answer, which is one part unless stream.
	chat := func(ctx context.Context, stream bool, r api.ChatRequest) (got api.ChatResponse, err error) {
		r.Model, r.Stream = model, &stream
		if r.Options == nil {
			r.Options = options()
		}
		var m api.Message
		var probs []api.Logprob
		parts := 0
		err = client.Chat(ctx, &r, func(p api.ChatResponse) error {
			parts++
			m.Content += p.Message.Content
			m.Thinking += p.Message.Thinking
			m.ToolCalls = append(m.ToolCalls, p.Message.ToolCalls...)
			probs = append(probs, p.Logprobs...)
			got = p
			return nil
		})
		m.Role, got.Message, got.Logprobs = "assistant", m, probs
		return got, all(err, check(got.Done, "the answer does not end"),
			check(stream == (parts > 1), "the answer has %d parts", parts))
	}
	generate := func(ctx context.Context, stream bool, r api.GenerateRequest) (text string, err error) {
		r.Model, r.Stream, r.Options = model, &stream, options()
		err = client.Generate(ctx, &r, func(p api.GenerateResponse) error {
			text += p.Response
			return nil
		})
		return text, err
	}
	// both runs a request whole and streamed.
	both := func(ctx context.Context, r api.ChatRequest, test func(api.ChatResponse) error) error {
		for _, stream := range []bool{false, true} {
			got, err := chat(ctx, stream, r)
			if err != nil {
				return err
			}
			if err := test(got); err != nil {
				return err
			}
		}
		return nil
	}
	// The library's type of a schema has neither bounds nor additionalProperties.
	properties := api.NewToolPropertiesMap()
	properties.Set("city", api.ToolProperty{Type: api.PropertyType{"string"}, Enum: []any{"Paris", "Oslo"}})
	properties.Set("days", api.ToolProperty{Type: api.PropertyType{"integer"}, Enum: []any{1, 2, 3, 4, 5, 6, 7}})
	tools := api.Tools{{Type: "function", Function: api.ToolFunction{
		Name: toolName, Description: "The weather of a city.",
		Parameters: api.ToolFunctionParameters{Type: "object", Required: []string{"city", "days"},
			Properties: properties},
	}}}
	// called checks a turn that may call the tool: ollama has no way to require that.
	called := func(m api.Message) error {
		for _, c := range m.ToolCalls {
			if err := all(check(c.Function.Name == toolName, "the tool %q", c.Function.Name),
				validWeather(c.Function.Arguments.String())); err != nil {
				return err
			}
		}
		return check(m.Content != "" || len(m.ToolCalls) > 0, "neither a call nor content")
	}
	think := func(on bool) *api.ThinkValue { return &api.ThinkValue{Value: on} }
	schema, err := json.Marshal(sum)
	if err != nil {
		return nil, err
	}
	return []feature{
		{"list models", func(ctx context.Context) error {
			got, err := client.List(ctx)
			if err != nil {
				return err
			}
			return check(len(got.Models) == 1 && strings.HasPrefix(got.Models[0].Name, model), "models: %+v",
				got.Models)
		}},
		{"show", func(ctx context.Context) error {
			got, err := client.Show(ctx, &api.ShowRequest{Model: model})
			if err != nil {
				return err
			}
			return check(slices.Contains(got.Capabilities, "completion") && got.Template != "" &&
				got.Details.Family != "", "%+v", got.Details)
		}},
		{"ps", func(ctx context.Context) error {
			got, err := client.ListRunning(ctx)
			if err != nil {
				return err
			}
			return check(len(got.Models) == 1 && strings.HasPrefix(got.Models[0].Name, model), "models: %+v",
				got.Models)
		}},
		{"version, heartbeat", func(ctx context.Context) error {
			v, err := client.Version(ctx)
			return all(err, check(strings.Contains(v, "."), "version %q", v), client.Heartbeat(ctx))
		}},
		{"chat", func(ctx context.Context) error {
			got, err := chat(ctx, false, api.ChatRequest{Messages: user(question)})
			return all(err, holds(got.Message.Content, result),
				check(got.DoneReason == "stop", "done_reason %q", got.DoneReason))
		}},
		{"streaming", func(ctx context.Context) error {
			got, err := chat(ctx, true, api.ChatRequest{Messages: user(question)})
			return all(err, holds(got.Message.Content, result),
				check(got.DoneReason == "stop", "done_reason %q", got.DoneReason))
		}},
		{"system", func(ctx context.Context) error {
			bare, err := chat(ctx, false, api.ChatRequest{Messages: user(question)})
			if err != nil {
				return err
			}
			got, err := chat(ctx, false, api.ChatRequest{
				Messages: append([]api.Message{{Role: "system", Content: system}}, user(question)...)})
			return all(err, holds(got.Message.Content, result),
				check(got.PromptEvalCount > bare.PromptEvalCount, "the system message adds no tokens"))
		}},
		{"thinking", func(ctx context.Context) error {
			err := both(ctx, api.ChatRequest{Messages: user(question), Think: think(true)},
				func(got api.ChatResponse) error {
					return all(holds(got.Message.Thinking, "So "), holds(got.Message.Content, result))
				})
			if err != nil {
				return err
			}
			got, err := chat(ctx, false, api.ChatRequest{Messages: user(question), Think: think(false)})
			return all(err, check(got.Message.Thinking == "", "it thinks although that is disabled"))
		}},
		{"usage", func(ctx context.Context) error {
			return both(ctx, api.ChatRequest{Messages: user(question)}, func(got api.ChatResponse) error {
				u := got.Metrics
				return check(u.PromptEvalCount > 0 && u.EvalCount > 0 && u.TotalDuration > 0, "%+v", u)
			})
		}},
		{"stop", func(ctx context.Context) error {
			got, err := chat(ctx, false,
				api.ChatRequest{Messages: user(question), Options: options("stop", []string{"7"})})
			return all(err, check(strings.TrimSpace(got.Message.Content) == "5", "content %q", got.Message.Content))
		}},
		{"logprobs", func(ctx context.Context) error {
			return both(ctx, api.ChatRequest{Messages: user(question), Logprobs: true, TopLogprobs: 2},
				func(got api.ChatResponse) error {
					wrong := func(p api.Logprob) bool { return p.Logprob > 0 || len(p.TopLogprobs) != 2 }
					return check(len(got.Logprobs) > 0 && !slices.ContainsFunc(got.Logprobs, wrong), "%+v",
						got.Logprobs)
				})
		}},
		{"generate", func(ctx context.Context) error {
			raw := "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n"
			for _, c := range []struct {
				stream bool
				api.GenerateRequest
			}{
				{false, api.GenerateRequest{Prompt: question, System: system}},
				{true, api.GenerateRequest{Prompt: question}},
				{false, api.GenerateRequest{Prompt: raw, Raw: true}},
			} {
				text, err := generate(ctx, c.stream, c.GenerateRequest)
				if err := all(err, holds(text, result)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"tools, whole", func(ctx context.Context) error {
			got, err := chat(ctx, false, api.ChatRequest{Messages: user(ask), Tools: tools})
			if err := all(err, called(got.Message)); err != nil {
				return err
			}
			arguments := api.NewToolCallFunctionArguments()
			arguments.Set("city", "Paris")
			arguments.Set("days", 1)
			turn, err := chat(ctx, false, api.ChatRequest{Tools: tools, Messages: append(user(ask),
				api.Message{Role: "assistant", ToolCalls: []api.ToolCall{{
					Function: api.ToolCallFunction{Name: toolName, Arguments: arguments}}}},
				api.Message{Role: "tool", ToolName: toolName, Content: "clear"})})
			return all(err, called(turn.Message))
		}},
		{"tools, streamed", func(ctx context.Context) error {
			got, err := chat(ctx, true, api.ChatRequest{Messages: user(ask), Tools: tools})
			return all(err, called(got.Message))
		}},
		{"format: schema", func(ctx context.Context) error {
			err := both(ctx, api.ChatRequest{Messages: user(question), Format: schema},
				func(got api.ChatResponse) error { return validSum(got.Message.Content) })
			if err != nil {
				return err
			}
			text, err := generate(ctx, false, api.GenerateRequest{Prompt: question, Format: schema})
			return all(err, validSum(text))
		}},
		{"format: json", func(ctx context.Context) error {
			got, err := chat(ctx, false, api.ChatRequest{Messages: user(question), Format: json.RawMessage(`"json"`)})
			return all(err, validObject(got.Message.Content, got.DoneReason))
		}},
		{"embed", func(ctx context.Context) error {
			got, err := client.Embed(ctx,
				&api.EmbedRequest{Model: model, Input: []string{question, system, question}})
			if err != nil {
				return err
			}
			one, err := client.Embeddings(ctx, &api.EmbeddingRequest{Model: model, Prompt: question})
			if err != nil {
				return err
			}
			return all(vectors(got.Embeddings), check(got.PromptEvalCount > 0, "no prompt_eval_count"),
				check(len(one.Embedding) == len(got.Embeddings[0]), "embeddings of %d and %d values",
					len(one.Embedding), len(got.Embeddings[0])))
		}},
		{"errors", func(ctx context.Context) error {
			hot := options("temperature", "hot")
			_, err := chat(ctx, false, api.ChatRequest{Messages: user(question), Options: hot})
			var e api.StatusError
			return check(errors.As(err, &e) && e.StatusCode == http.StatusBadRequest &&
				strings.Contains(e.ErrorMessage, "temperature"), "error %v", err)
		}},
	}, nil
}
