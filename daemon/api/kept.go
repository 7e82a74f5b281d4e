package api

import (
	"errors"
	"net/http"
)

var errLong = errors.New("the answer is too long")

// Kept is an http.ResponseWriter that keeps the response.
type Kept struct {
	Status int // 0: WriteHeader was not called, which means 200
	Body   []byte
	Max    int // bytes of Body; a Write beyond it fails and adds nothing. 0 = no limit
	header http.Header
}

// Header returns the header, which the handler writes to.
func (w *Kept) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader keeps the status.
func (w *Kept) WriteHeader(status int) { w.Status = status }

func (w *Kept) Write(b []byte) (int, error) {
	if w.Max > 0 && len(w.Body)+len(b) > w.Max {
		return 0, errLong
	}
	w.Body = append(w.Body, b...)
	return len(b), nil
}
