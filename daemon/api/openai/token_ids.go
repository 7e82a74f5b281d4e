package openai

import (
	"context"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The ids of tokens ("return_token_ids"), in vLLM's places: those of a chat's prompt beside the choices, those of a
// completion's prompt and of every answer in its choice. A stream has the prompt's in the first chunk of a choice and
// the answer's in the chunk that has their text, or the next one.

// tokenIDs are the ids of one choice.
type tokenIDs struct {
	request *wire.Request // renders the prompt
	answer  []int32       // not yet written
}

// keepID keeps the id of an answer's token.
func (ch *choice) keepID(t *wire.Token) {
	if ch.ids != nil && t.TokenID >= 0 {
		ch.ids.answer = append(ch.ids.answer, t.TokenID)
	}
}

// addIDs moves the ids that were kept into part.
func (ch *choice) addIDs(part *choicePart) {
	if ch.ids != nil {
		part.TokenIDs = append([]int32{}, ch.ids.answer...)
		ch.ids.answer = ch.ids.answer[:0]
	}
}

// promptIDs returns the ids of a choice's prompt, nil if they were not asked for or the daemon is gone.
func (c *completion) promptIDs(ctx context.Context, ch *choice) []int32 {
	switch {
	case ch.ids == nil:
		return nil
	case ch.ids.request.PromptTokens != nil && ch.ids.request.TruncatePrompt == 0:
		return ch.ids.request.PromptTokens
	}
	p, err := c.s.Render(ctx, ch.ids.request)
	if err != nil {
		return nil
	}
	return p.Tokens
}

// addPrompt puts the ids of a choice's prompt into their place in o, of which part is the choice's.
func (c *completion) addPrompt(ctx context.Context, o *answerObject, ch *choice, part *choicePart) {
	ids := c.promptIDs(ctx, ch)
	if c.chat {
		o.PromptIDs = ids
	} else {
		part.PromptIDs = ids
	}
}
