package api

import (
	"context"
	"net/http"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

type defaultsKey struct{}

// Defaulting returns a handler in which requests have the server's defaults.
func (s *Server) Defaulting(next http.HandlerFunc) http.HandlerFunc {
	if s.Defaults == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r.WithContext(context.WithValue(r.Context(), defaultsKey{}, s.Defaults)))
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
