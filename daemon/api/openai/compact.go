package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// serveCount answers POST /v1/responses/input_tokens.
func (a *responsesAPI) serveCount(w http.ResponseWriter, r *http.Request) {
	out := a.s.NewWriter(w)
	_, req, err := a.read(r)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	p, err := a.s.Render(r.Context(), req)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	out.JSON(http.StatusOK, struct {
		Object string `json:"object"`
		Tokens int    `json:"input_tokens"`
	}{"response.input_tokens", len(p.Tokens)})
}

// compacted answers POST /v1/responses/compact: the user's messages, then an item that stands for the conversation.
type compacted struct {
	ID        string         `json:"id"`
	Object    string         `json:"object"` // "response.compaction"
	CreatedAt int64          `json:"created_at"`
	Output    []rawJSON      `json:"output"`
	Usage     *responseUsage `json:"usage"`
}

// compaction is the item. Its content is the summary, as encrypt writes a thought: no secret, but opaque to clients.
type compaction struct {
	ID        string `json:"id"`
	Type      string `json:"type"` // "compaction"
	Encrypted string `json:"encrypted_content"`
}

const (
	summarize = "Summarise the conversation above for an assistant that continues it without having seen it: goals " +
		"and instructions of the user, decisions and their reasons, facts, names, paths and code that are still " +
		"needed, results of tools, and what is still to be done. Write the summary alone."
	summaryHead = "Summary of the conversation so far:\n"
	mostSummary = 4096 // tokens
)

// serveCompact answers POST /v1/responses/compact. The model itself writes the summary, in one answer without tools.
func (a *responsesAPI) serveCompact(w http.ResponseWriter, r *http.Request) {
	out := a.s.NewWriter(w)
	c, req, err := a.read(r)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	w.Header().Set("X-Request-Id", c.response.ID)
	a.s.Warn(w, req)
	req.Messages = append(req.Messages, wire.Message{Role: "user", Content: summarize})
	req.Tools, req.ToolChoice, req.Format, req.NoProgress = nil, wire.ToolChoice{}, wire.Format{}, true
	if req.MaxTokens == 0 {
		req.MaxTokens = mostSummary
	}
	text, end, bad := a.whole(r, req)
	if bad != nil {
		Fail(out, bad)
		return
	}
	// The client is about to replace its history by this.
	if len(bytes.TrimSpace(text)) == 0 || end.Reason == wire.Length {
		Fail(out, api.Refuse("the summary did not end within the context or max_output_tokens, and nothing was "+
			"compacted: raise max_output_tokens, lower reasoning.effort, or send less"))
		return
	}
	answer := compacted{ID: c.response.ID, Object: "response.compaction", CreatedAt: a.s.Now().Unix(),
		Output: []rawJSON{}, Usage: usageOfResponse(end)}
	for _, raw := range c.history {
		var it item
		if json.Unmarshal(raw, &it) == nil && it.Role == "user" {
			answer.Output = append(answer.Output, raw)
		}
	}
	answer.Output = append(answer.Output,
		api.AppendJSON(nil, compaction{api.NewID("cmp_"), "compaction", encrypt(string(text))}))
	out.JSON(http.StatusOK, &answer)
}

// whole waits for the answer to req, and returns its text without thinking.
func (a *responsesAPI) whole(r *http.Request, req *wire.Request) (text []byte, end *wire.EOS, _ *api.Error) {
	stream, err := a.s.Start(r.Context(), req)
	if err != nil {
		return nil, nil, api.AsError(err)
	}
	defer stream.Close()
	for ev := stream.Next(); ev != nil; ev = stream.Next() {
		switch ev.Kind {
		case wire.EventToken:
			if ev.Token.Phase != wire.Thinking {
				text = append(text, ev.Token.Text...)
			}
		case wire.EventError:
			e := api.Error(ev.Error)
			return nil, nil, &e
		case wire.EventEOS:
			end := ev.EOS
			return text, &end, api.Cancelled(&end)
		}
	}
	return nil, nil, &api.Error{Code: wire.ShuttingDown,
		Message: "the server ended the request: " + io.ErrUnexpectedEOF.Error()}
}

// summaryOf returns the text of a compaction that this server has made.
func summaryOf(it *item) (string, bool) {
	if it.Type != "compaction" || it.Encrypted == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(*it.Encrypted, encryptedPrefix)
	if !ok {
		return "", false
	}
	text, err := base64.StdEncoding.DecodeString(rest)
	return summaryHead + strings.ToValidUTF8(string(text), "\ufffd"), err == nil
}
