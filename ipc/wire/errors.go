package wire

import "fmt"

// Errorf returns an error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// RequestError says that one whole, well-delimited message cannot be served: send it as an error event; the
// connection and its other requests go on.
type RequestError struct {
	ID      string // the message's id where it could be read, "" otherwise
	Code    Code
	Message string
}

func (e *RequestError) Error() string { return string(e.Code) + ": " + e.Message }

// Event returns the answer to send.
func (e *RequestError) Event() Error { return Error{ID: e.ID, Code: e.Code, Message: e.Message} }
