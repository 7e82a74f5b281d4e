package openai

import (
	"fmt"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// place is the field of a body that its prompt is made of, and what OpenAI's messages call it.
type place struct{ field, name string }

var (
	inMessages = place{"messages", "your messages"}
	inPrompt   = place{"prompt", "your prompt"}
	inInput    = place{"input", "your input"}

	ofEmbeddings = place{field: "input"}
)

// overflow is the error of a prompt that is longer than the context.
type overflow struct {
	Message string `json:"message"`
	Type    string `json:"type"` // llama-server's, by which its clients know it
	Param   string `json:"param"`
	Code    string `json:"code"`
	UMACode string `json:"uma_code"`
	NPrompt int    `json:"n_prompt_tokens"` // llama-server's, too
	NCtx    int    `json:"n_ctx"`           // likewise
}

// overflowMessage is OpenAI's message for a prompt that is longer than the context.
func (p place) overflowMessage(e *api.Error) string {
	most := fmt.Sprintf("This model's maximum context length is %d tokens. However, ", e.NCtx)
	if p == ofEmbeddings { // the error says which input it is
		return most + e.Message
	}
	return fmt.Sprintf("%s%s resulted in %d tokens, and an answer needs at least one. Please reduce the length, or "+
		"start uma-serve with a larger --ctx-size if the model has one.", most, p.name, e.NPrompt)
}

// failure is the error body of a request whose prompt is in p.
func (p place) failure(e *api.Error) any {
	if !e.Overflow() {
		return failure(e)
	}
	_, kind := wire.HTTPStatus(e.Code)
	return struct {
		Error overflow `json:"error"`
	}{overflow{p.overflowMessage(e), kind, p.field, "context_length_exceeded", string(e.Code), e.NPrompt, e.NCtx}}
}

// fail answers with an error of a request whose prompt is in p.
func (p place) fail(w *api.Writer, e *api.Error) {
	if !e.Overflow() {
		Fail(w, e)
		return
	}
	w.Refuse(e)
	w.JSON(http.StatusBadRequest, p.failure(e))
}
