package jsontext

import (
	"bytes"
	"encoding/json"
)

// maxMember bounds the text of a value that has not ended, in bytes.
const maxMember = 4 << 10

// Member looks for a string member of the JSON object that text begins with, whose end may be missing yet. found: value
// is the member's. ended: the object has no such member, or text is no object. With neither, the answer may be in what
// follows. Of several members with the name the first counts. It reads text once, and allocates for the value alone.
func Member(text []byte, name string) (value string, found, ended bool) {
	m := memberScan{text: text}
	m.blanks()
	if m.at == len(text) {
		return "", false, false
	}
	if text[m.at] != '{' {
		return "", false, true
	}
	m.at++
	for {
		m.blanks()
		if m.at == len(text) {
			return "", false, false
		}
		if text[m.at] == ',' {
			m.at++
			continue
		}
		if text[m.at] != '"' { // "}", or no JSON, which the request's reader says
			return "", false, true
		}
		key, ok := m.str()
		if !ok {
			return "", false, false
		}
		m.blanks()
		if m.at == len(text) {
			return "", false, false
		}
		if text[m.at] != ':' {
			return "", false, true
		}
		m.at++
		m.blanks()
		if m.at == len(text) {
			return "", false, false
		}
		if isName(key, name) {
			if text[m.at] != '"' {
				return "", false, true
			}
			raw, ok := m.str()
			if !ok {
				return "", false, len(text)-m.at > maxMember
			}
			if json.Unmarshal(raw, &value) != nil {
				return "", false, true
			}
			return value, true, false
		}
		if !m.value() {
			return "", false, false
		}
	}
}

func isName(key []byte, name string) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1:len(key)-1]) == name
	}
	var s string
	return json.Unmarshal(key, &s) == nil && s == name
}

// memberScan is a place in a JSON text that may be cut.
type memberScan struct {
	text []byte
	at   int
}

func (m *memberScan) blanks() {
	for m.at < len(m.text) {
		switch m.text[m.at] {
		case ' ', '\t', '\r', '\n':
			m.at++
		default:
			return
		}
	}
}

// str returns the string that begins here, with its quotes, and passes it; not ok, and at stays, when its end is
// missing.
func (m *memberScan) str() (raw []byte, ok bool) {
	for i := m.at + 1; i < len(m.text); i++ {
		switch m.text[i] {
		case '\\':
			i++
		case '"':
			raw, m.at = m.text[m.at:i+1], i+1
			return raw, true
		}
	}
	return nil, false
}

// value passes the value that begins here; false: its end is missing. Brackets are counted and not matched: whether the
// text is JSON is not asked.
func (m *memberScan) value() (whole bool) {
	depth := 0
	for m.at < len(m.text) {
		switch m.text[m.at] {
		case '"':
			if _, ok := m.str(); !ok {
				m.at = len(m.text)
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return true // the object's own end follows
			}
			if depth == 0 {
				m.at++
				return true
			}
		case ',':
			if depth == 0 {
				return true
			}
		}
		m.at++
	}
	return false
}
