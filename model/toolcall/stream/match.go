package stream

import "github.com/uma-serve/uma-serve/model/tags"

// IsFence reports whether c begins or ends the text of a token that is a marker (model/tags).
func IsFence(c byte) bool { return c >= tags.ShownFence }

// Unfenced returns text without fences, in place.
func Unfenced(text []byte) []byte {
	n := 0
	for _, c := range text {
		if !IsFence(c) {
			text[n] = c
			n++
		}
	}
	return text[:n]
}

// NameByte reports whether c may be part of a name that has no end marker.
func NameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' ||
		c == ':' || c == '/' || c >= 0x80 && !IsFence(c)
}

// Found answers whether a text begins with another one.
type Found uint8

const (
	No Found = iota
	Yes
	Wait // not yet to be told
)

// At reports whether text begins with lit, and how many bytes of it are lit. White space within lit, but not
// at its end, stands for any amount of it. final says that no text follows.
func At(text, lit []byte, final bool) (int, Found) {
	i := 0
	for j, c := range lit {
		if IsSpace(c) && j < len(lit)-1 {
			for i < len(text) && IsSpace(text[i]) {
				i++
			}
			continue
		}
		if i == len(text) {
			if final {
				return 0, No
			}
			return 0, Wait
		}
		if text[i] != c {
			return 0, No
		}
		i++
	}
	return i, Yes
}

// OneOf is At for a list of texts, the longest first.
func OneOf(text []byte, list [][]byte, final bool) (int, Found) {
	for _, lit := range list {
		if n, f := At(text, lit, final); f != No {
			return n, f
		}
	}
	return 0, No
}
