package api

import (
	"encoding/json"
	"net/http"
)

// MustJSON returns v as JSON. v holds nothing but structs, maps, lists, strings and finite numbers.
func MustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("daemon: JSON: " + err.Error())
	}
	return b
}

// AnswerJSON writes an answer that needs no Writer: it is short, and no request of the daemon is behind it.
func AnswerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(MustJSON(v), '\n'))
}
