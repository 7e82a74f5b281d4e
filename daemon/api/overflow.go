package api

import "github.com/uma-serve/uma-serve/ipc/wire"

// Overflow reports whether e says that a prompt is longer than the context. Each API has its own words for that, by
// which its clients know that they must compact a conversation.
func (e *Error) Overflow() bool { return e.Code == wire.ContextLength && e.NPrompt > 0 }
