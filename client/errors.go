package client

import (
	"errors"
	"time"

	"github.com/uma-serve/uma-serve/internal/wireclient"
)

var (
	// ErrNoDaemon reports that no daemon listens on the socket.
	ErrNoDaemon = wireclient.ErrNoDaemon
	// ErrClosed reports that the connection ended before the answer did, or that Client.Close was called.
	ErrClosed = wireclient.ErrClosed
	// ErrStreamClosed is the error of Stream.Next after Stream.Close.
	ErrStreamClosed = wireclient.ErrStreamClosed
)

// Code tells why the daemon refused or failed a request; docs/protocol.md says for each what a client should do.
type Code string

// The codes. A newer daemon may have others.
const (
	FrameTooLarge   Code = "E_PROTO_FRAME_TOO_LARGE"
	InvalidJSON     Code = "E_PROTO_INVALID_JSON"
	BadRequest      Code = "E_PROTO_BAD_REQUEST"
	DuplicateID     Code = "E_PROTO_DUPLICATE_ID"
	Timeout         Code = "E_PROTO_TIMEOUT"
	PromptTooLarge  Code = "E_LIMIT_PROMPT_TOO_LARGE"
	SessionLimit    Code = "E_LIMIT_SESSIONS"
	QueueLimit      Code = "E_LIMIT_QUEUE"
	ContextLength   Code = "E_CONTEXT_LENGTH_EXCEEDED"
	RuntimeDecode   Code = "E_RUNTIME_DECODE"
	ShuttingDown    Code = "E_SHUTTING_DOWN"
	ModelUnready    Code = "E_MODEL_LOADING"
	NotSupported    Code = "E_NOT_SUPPORTED"
	ModelNotFound   Code = "E_MODEL_NOT_FOUND"
	ModelTooLarge   Code = "E_MODEL_TOO_LARGE"
	EngineCrashed   Code = "E_ENGINE_CRASHED"
	InternalFailure Code = "E_INTERNAL"
)

// ServerError reports that the daemon refused or failed a request.
type ServerError struct {
	Code          Code
	Message       string
	RetryAfter    time.Duration // 0 = the daemon suggests no time
	PromptTokens  int           // with ContextLength
	ContextTokens int           // with ContextLength
	Predicted     time.Duration // with QueueLimit: the latency in the place of a strict target; 0 = not told
}

// Error returns the code and the daemon's message.
func (e *ServerError) Error() string { return string(e.Code) + ": " + e.Message }

// public returns err with the error types of this package.
func public(err error) error {
	if e, ok := errors.AsType[*wireclient.ServerError](err); ok {
		return &ServerError{Code: Code(e.Code), Message: e.Message, RetryAfter: e.RetryAfter, PromptTokens: e.NPrompt,
			ContextTokens: e.NCtx, Predicted: e.Predicted}
	}
	return err
}
