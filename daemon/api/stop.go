package api

import (
	"context"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Cut returns the error of an answer that a shutdown ended, nil for other answers. An answer that a client has
// cancelled by its id is complete as it is: clients would ask again after an error.
func Cut(e *wire.EOS) *Error {
	if e.Reason == wire.Shutdown {
		return &Error{Code: wire.ShuttingDown, Message: "the answer was ended before it was complete: " +
			string(e.Reason)}
	}
	return nil
}

// Cancelled returns the error of a request that was cancelled by its id and has no answer without its end, such as one
// for embeddings. It is one after which clients do not ask again.
func Cancelled(e *wire.EOS) *Error {
	if e.Reason == wire.Cancelled {
		return Refuse("the request was cancelled by its id")
	}
	return Cut(e)
}

// Ended returns why an answer ended, for an API without a word for a cancel: a cancelled answer has stopped, or was cut
// if it ended within a call of a tool, whose arguments are incomplete.
func Ended(e *wire.EOS, withinCall bool) wire.Reason {
	switch {
	case e.Reason != wire.Cancelled:
		return e.Reason
	case withinCall:
		return wire.Length
	}
	return wire.Stop
}

type stopKey struct{}

// WithStop returns a context whose requests stop ends as a cancel by their ids does: their streams end with an eos. The
// end of the context itself ends them without one.
func WithStop(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	signal, stop := context.WithCancel(context.Background())
	return context.WithValue(ctx, stopKey{}, signal), stop
}

// OnStop calls f on its own goroutine when the requests of ctx are to end, at once if that was before. undo unhooks f.
func OnStop(ctx context.Context, f func()) (undo func()) {
	signal, ok := ctx.Value(stopKey{}).(context.Context)
	if !ok {
		return func() {}
	}
	undone := context.AfterFunc(signal, f)
	return func() { undone() }
}
