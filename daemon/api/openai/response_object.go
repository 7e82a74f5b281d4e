package openai

import "github.com/uma-serve/uma-serve/daemon/api"

// responseObject is the answer of /v1/responses, and the "response" of its events.
type responseObject struct {
	ID           string           `json:"id"`
	Object       string           `json:"object"` // "response"
	CreatedAt    int64            `json:"created_at"`
	CompletedAt  *int64           `json:"completed_at"`
	Status       string           `json:"status"` // in_progress, completed, incomplete, failed, cancelled
	Background   bool             `json:"background"`
	Error        *responseError   `json:"error"`
	Incomplete   *incomplete      `json:"incomplete_details"`
	Instructions *string          `json:"instructions"`
	MaxTokens    *int             `json:"max_output_tokens"`
	Model        string           `json:"model"`
	Output       []*outputItem    `json:"output"`
	Parallel     bool             `json:"parallel_tool_calls"`
	Previous     *string          `json:"previous_response_id"`
	Reasoning    reasoningOptions `json:"reasoning"`
	ServiceTier  string           `json:"service_tier"`
	Store        bool             `json:"store"`
	Temperature  float32          `json:"temperature"`
	Text         textOptions      `json:"text"`
	ToolChoice   rawJSON          `json:"tool_choice"`
	Tools        rawJSON          `json:"tools"`
	TopLogprobs  int              `json:"top_logprobs"`
	TopP         float32          `json:"top_p"`
	Truncation   string           `json:"truncation"`
	Usage        *responseUsage   `json:"usage"`
	User         *string          `json:"user"` // always null: see safety_identifier
	Metadata     rawJSON          `json:"metadata"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	Input     int `json:"input_tokens"`
	InputWith struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output     int `json:"output_tokens"`
	OutputWith struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// outputItem is an item of type message, reasoning, function_call, custom_tool_call or tool_search_call.
type outputItem struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Status    string        `json:"status,omitempty"`
	Role      string        `json:"role,omitempty"`
	Content   *[]outputPart `json:"content,omitempty"` // of messages, and of reasoning that is not a summary
	Summary   *[]outputPart `json:"summary,omitempty"` // of reasoning
	Encrypted *string       `json:"encrypted_content,omitempty"`

	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Arguments any     `json:"arguments,omitempty"` // of a function: a *string; of a search for tools: the object
	Input     *string `json:"input,omitempty"`     // of a custom tool
	Execution string  `json:"execution,omitempty"` // of a search for tools: "client"
}

type outputPart struct {
	Type        string         `json:"type"` // output_text, reasoning_text, summary_text
	Text        string         `json:"text"`
	Annotations *[]struct{}    `json:"annotations,omitempty"` // of output_text: none
	Logprobs    *[]chatLogprob `json:"logprobs,omitempty"`    // of output_text
}

// responseEvent is an event of a response's stream. Its fields depend on its type.
type responseEvent struct {
	Type         string          `json:"type"`
	Sequence     int             `json:"sequence_number"`
	Response     *responseObject `json:"response,omitempty"`
	OutputIndex  *int            `json:"output_index,omitempty"`
	ItemID       string          `json:"item_id,omitempty"`
	ContentIndex *int            `json:"content_index,omitempty"`
	SummaryIndex *int            `json:"summary_index,omitempty"`
	Item         *outputItem     `json:"item,omitempty"`
	Part         *outputPart     `json:"part,omitempty"`
	Delta        *string         `json:"delta,omitempty"`
	Text         *string         `json:"text,omitempty"`
	Arguments    *string         `json:"arguments,omitempty"`
	Input        *string         `json:"input,omitempty"`
	Name         string          `json:"name,omitempty"`
	Logprobs     *[]chatLogprob  `json:"logprobs,omitempty"`
	Progress     *api.Progress   `json:"prompt_progress,omitempty"` // as llama-server has it
	Timings      *timings        `json:"timings,omitempty"`         // likewise
	Code         *string         `json:"code,omitempty"`            // of "error"
	Message      *string         `json:"message,omitempty"`         // of "error"
}
