package api

import (
	"context"
	"net/http"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

type defaultsKey struct{}

// Defaulting returns a handler in which the fields that a request omits have the values that defaults returns; nil:
// those of package wire.
func Defaulting(next http.HandlerFunc, defaults func(context.Context) *wire.Request) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if def := defaults(r.Context()); def != nil {
			r = r.WithContext(context.WithValue(r.Context(), defaultsKey{}, def))
		}
		next(w, r)
	}
}

// defaultsOf returns the defaults of an HTTP request's bodies; nil: those of package wire.
func defaultsOf(r *http.Request) *wire.Request {
	def, _ := r.Context().Value(defaultsKey{}).(*wire.Request)
	return def
}

// DefaultsOrWire returns the values of fields that requests omit.
func (s *Server) DefaultsOrWire() wire.Request {
	if s.Defaults != nil {
		return *s.Defaults
	}
	return wire.DefaultRequest()
}
