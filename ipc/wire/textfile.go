package wire

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// textTypes are media types besides text/… whose files are text.
var textTypes = map[string]bool{"application/json": true, "application/xml": true, "application/yaml": true,
	"application/x-yaml": true, "application/toml": true, "application/javascript": true, "application/x-sh": true,
	"application/sql": true}

// TextFile returns the text of a file that a client sends in base64, if its media type is one of text and its text is
// UTF-8. A data URL is taken too: then mediaType is ignored.
func TextFile(mediaType, data string) (text string, ok bool) {
	if url, isURL := strings.CutPrefix(data, "data:"); isURL {
		head, body, _ := strings.Cut(url, ",")
		if mediaType, ok = strings.CutSuffix(head, ";base64"); !ok {
			return "", false
		}
		data = body
	}
	kind, _, _ := strings.Cut(strings.ToLower(mediaType), ";")
	if !strings.HasPrefix(kind, "text/") && !textTypes[strings.TrimSpace(kind)] {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil || !utf8.Valid(b) {
		return "", false
	}
	return string(b), true
}
