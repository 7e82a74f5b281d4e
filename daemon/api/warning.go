package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Warn adds a Warning header (RFC 7234, 299: a miscellaneous persistent warning) to an answer for each note of what was
// left out of its request, images and sounds among it where the model reads none. It comes before the answer.
func (s *Server) Warn(w http.ResponseWriter, r *wire.Request) {
	notes := slices.Clone(r.Notes)
	if f := s.Facts(); f != nil {
		for _, m := range r.Messages { // a copy: preparation leaves them out
			m.LeaveOut(f.Model.Images.Reads, &notes)
		}
	}
	for _, n := range notes {
		if n.Reason == ignoredReason {
			continue
		}
		w.Header().Add("Warning", `299 uma-serve "`+headerText(n.Text)+`"`)
	}
}

// headerText is text for a quoted string in a header: printable ASCII without quotation marks and backslashes.
func headerText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\'')
		case r < ' ' || r > '~':
			fmt.Fprintf(&b, "?")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
