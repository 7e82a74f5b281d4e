// Package upload reads the bytes of a file that a client sent as text.
package upload

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Bytes returns the bytes of a data: URL, or of base64 alone. Other URLs are refused, for nothing is fetched. example
// is a media type for the error.
func Bytes(text, example string) ([]byte, error) {
	text = strings.TrimSpace(text)
	scheme, _, found := strings.Cut(text[:min(len(text), 16)], ":")
	switch {
	case text == "":
		return nil, errors.New("it is empty")
	case found && !strings.EqualFold(scheme, "data"):
		return nil, fmt.Errorf("it is a URL (%s:), and this server fetches nothing: send the bytes as a data: URL, "+
			"data:%s;base64,…", scheme, example)
	case found:
		head, body, comma := strings.Cut(text, ",")
		if n := len(head) - len(";base64"); !comma || n < 0 || !strings.EqualFold(head[n:], ";base64") {
			return nil, errors.New("the data: URL has no ;base64, before its bytes")
		}
		text = body
	}
	text = strings.TrimRight(text, "=\r\n ") // base64(1) ends its lines
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if data, err := e.DecodeString(text); err == nil && len(data) > 0 {
			return data, nil
		}
	}
	return nil, errors.New("its base64 is malformed")
}
