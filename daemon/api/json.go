package api

import (
	"encoding/json"
	"net/http"
)

// MustJSON returns v as JSON. v must be encodable: no NaN or infinity, and each json.RawMessage valid.
func MustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("daemon: JSON: " + err.Error())
	}
	return b
}

// AnswerJSON writes v as the whole answer, for handlers that start no request of the daemon.
func AnswerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(MustJSON(v), '\n'))
}
