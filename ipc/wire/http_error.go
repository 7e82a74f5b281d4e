package wire

import (
	"encoding/json"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// HTTPStatus returns the HTTP status of an error, and its type in a body of OpenAI's form.
func HTTPStatus(c Code) (status int, kind string) {
	switch c {
	case BadRequest, InvalidJSON, DuplicateID:
		return 400, "invalid_request_error"
	case ContextLength:
		return 400, "exceed_context_size_error"
	case PromptTooLarge, FrameTooLarge:
		return 413, "invalid_request_error"
	case Timeout:
		return 408, "invalid_request_error"
	case QueueLimit:
		return 429, "rate_limit_error"
	case ModelNotFound:
		return 404, "not_found_error"
	case EngineCrashed:
		return 502, "server_error"
	case SessionLimit, ModelUnready, ModelTooLarge, ShuttingDown:
		return 503, "unavailable_error"
	case NotSupported:
		return 501, "not_supported_error"
	}
	return 500, "server_error"
}

// AppendHTTPError appends the body of a response that says e, in OpenAI's form: also where no API is known yet.
func AppendHTTPError(dst []byte, e *Error) []byte {
	var f struct {
		Error struct {
			Code    int    `json:"code"`
			Type    string `json:"type"`
			Message string `json:"message"`
			UMACode string `json:"uma_code"`
			NPrompt *int   `json:"n_prompt_tokens,omitempty"`
			NCtx    *int   `json:"n_ctx,omitempty"`

			PredictedMs float64 `json:"predicted_ms,omitempty"`
		} `json:"error"`
	}
	f.Error.Code, f.Error.Type = HTTPStatus(e.Code)
	f.Error.Message, f.Error.UMACode, f.Error.PredictedMs = e.Message, string(e.Code), Ms(e.Predicted)
	if e.Code == ContextLength {
		f.Error.NPrompt, f.Error.NCtx = &e.NPrompt, &e.NCtx
	}
	b, err := json.Marshal(&f)
	if err != nil {
		panic("wire: error body: " + err.Error()) // plain strings and numbers
	}
	return append(dst, b...)
}

// CheckJSON returns body, with each half of a surrogate pair replaced by U+FFFD, if it is one strict JSON text within
// the bounds of a message (docs/protocol.md, Frames). The error is a *RequestError.
func CheckJSON(body []byte) ([]byte, error) {
	var s jsontext.Scan
	if bad := s.Check(body); bad != "" {
		return nil, &RequestError{Code: InvalidJSON, Message: bad}
	}
	if s.Mended != nil {
		return s.Mended, nil
	}
	return body, nil
}

// FieldUse is the use of a field of a request: it is read, ignored or refused.
type FieldUse struct {
	Ignored bool     // it cannot change an answer
	Refused bool     // an answer that ignores it is not the answer asked for
	But     []string // of a refused field: accepted values, in JSON
	Why     string   // of a refused field: what to do instead; may be ""
}

// FieldOf returns the use of the field of this name, false if a request has no such field.
func FieldOf(name string) (u FieldUse, ok bool) {
	k, ok := fieldIndex[name]
	if ok {
		f := &fields[k.at]
		u = FieldUse{Ignored: f.read == nil && !f.refused, Refused: f.refused, But: f.but, Why: f.why}
	}
	return u, ok
}

// KnownField reports whether a request of the protocol may have a field of this name, and UnknownField is the error for
// one that it may not have: it suggests the field that may be meant.
func KnownField(name string) bool {
	_, ok := fieldIndex[name]
	return ok
}

// UnknownField is described at KnownField.
func UnknownField(name string) error { return unknown([]byte(name)) }
