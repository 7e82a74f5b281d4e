package lineedit

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A key is one thing the user did. Its name is "text" for characters, which are in text, typed or pasted; else the
// key's name with the prefixes C- (Control) and M- (Alt): "C-a", "M-b", "left", "C-left", "enter". An empty name is an
// unknown sequence.
type key struct {
	name, text string
}

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
	esc        = '\x1b'
	maxControl = 4096 // the longest control string a terminal may send, in bytes
)

// decoder parses the keys that the terminal sent.
type decoder struct {
	pasting bool // between the brackets of a paste
	afterCR bool // the paste's last byte was a carriage return: a line feed now belongs to it
}

// next returns the first key of buf and its length. The length is 0 when the key is incomplete; paused says that no
// further byte came for keyPause, so that buf is all of it.
func (d *decoder) next(buf []byte, paused bool) (key, int) {
	switch {
	case len(buf) == 0:
		return key{}, 0
	case d.pasting:
		return d.paste(buf, paused)
	case buf[0] == esc:
		return d.escape(buf, paused)
	case buf[0] < 0x20 || buf[0] == 0x7f:
		return key{name: controlName(buf[0])}, 1
	}
	n := textLength(buf, paused, func(b byte) bool { return b < 0x20 || b == 0x7f })
	if n == 0 {
		return key{}, 0
	}
	return key{name: "text", text: valid(string(buf[:n]))}, n
}

// textLength returns the length of the text at the beginning of buf, up to a byte that ends it. An incomplete character
// is left out.
func textLength(buf []byte, paused bool, ends func(byte) bool) int {
	n := 0
	for n < len(buf) && !ends(buf[n]) {
		if !utf8.FullRune(buf[n:]) && !paused {
			break
		}
		_, size := utf8.DecodeRune(buf[n:])
		n += size
	}
	return n
}

// paste returns a part of a pasted text, where every byte but Ctrl-C is text. Ctrl-C ends a paste without a closing
// bracket.
func (d *decoder) paste(buf []byte, paused bool) (key, int) {
	if buf[0] == 0x03 {
		d.pasting = false
		return key{name: "C-c"}, 1
	}
	end := len(buf)
	if i := bytes.Index(buf, []byte(pasteEnd)); i == 0 {
		d.pasting = false
		return key{}, len(pasteEnd)
	} else if i > 0 {
		end = i
	} else if i := bytes.LastIndexByte(buf, esc); i >= 0 && strings.HasPrefix(pasteEnd, string(buf[i:])) {
		end = i // perhaps the beginning of the closing bracket
	}
	n := textLength(buf[:end], paused || end < len(buf), func(b byte) bool { return b == 0x03 })
	if n == 0 {
		return key{}, 0
	}
	// Terminals send a carriage return for the end of a line.
	s := string(buf[:n])
	if d.afterCR {
		s = strings.TrimPrefix(s, "\n")
	}
	d.afterCR = buf[n-1] == '\r'
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "").Replace(valid(s))
	return key{name: "text", text: s}, n
}

// controlName names a control character.
func controlName(b byte) string {
	switch b {
	case '\r', '\n':
		return "enter"
	case '\t':
		return "tab"
	case 0x7f, '\b':
		return "backspace"
	case 0:
		return "" // Ctrl-Space, and the NUL bytes of a binary file
	case 0x1f:
		return "C-_"
	}
	return "C-" + string(rune(b|0x60))
}

// escape returns a key that the terminal sends as a sequence, or with Alt.
func (d *decoder) escape(buf []byte, paused bool) (key, int) {
	if len(buf) == 1 {
		if paused {
			return key{name: "escape"}, 1
		}
		return key{}, 0
	}
	switch c := buf[1]; c {
	case '[':
		return d.csi(buf, paused)
	case 'O':
		if len(buf) > 2 {
			return key{name: csiNames[string(buf[2:3])]}, 3
		}
	case ']', 'P', '_', '^', 'X': // a report, up to BEL or ST
		for i := 2; i < len(buf); i++ {
			if buf[i] == '\a' {
				return key{}, i + 1
			}
			if buf[i] == '\\' && buf[i-1] == esc {
				return key{}, i + 1
			}
		}
		if len(buf) > maxControl {
			return key{}, len(buf)
		}
	case esc:
		return key{name: "escape"}, 1
	default:
		if c < 0x20 || c == 0x7f {
			return key{name: "M-" + controlName(c)}, 2
		}
		if utf8.FullRune(buf[1:]) {
			_, n := utf8.DecodeRune(buf[1:])
			return key{name: "M-" + string(buf[1:1+n])}, 1 + n
		}
	}
	if paused {
		return key{}, len(buf) // the beginning of nothing
	}
	return key{}, 0
}

// csiNames are the keys of "ESC [" sequences, by the text before the modifiers and the text behind them.
var csiNames = map[string]string{
	"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "",
	"1~": "home", "3~": "delete", "4~": "end", "7~": "home", "8~": "end",
}

// csi returns a key that comes as "ESC [", parameters and a final byte.
func (d *decoder) csi(buf []byte, paused bool) (key, int) {
	if len(buf) > 3 && buf[2] == '[' {
		return key{}, 4 // a function key of the Linux console
	}
	end := 2
	for end < len(buf) && buf[end] >= 0x20 && buf[end] < 0x40 {
		end++
	}
	switch {
	case end == len(buf) && !paused && len(buf) <= maxControl:
		return key{}, 0
	case end == len(buf):
		return key{}, end
	case buf[end] < 0x40 || buf[end] > 0x7e:
		return key{}, end // incomplete: the rest is parsed separately
	}
	n := end + 1
	if string(buf[:n]) == pasteBegin {
		d.pasting, d.afterCR = true, false
		return key{}, n
	}
	number, modifier, _ := strings.Cut(string(buf[2:end]), ";")
	final := string(buf[end])
	if final == "u" && number == "13" || final == "~" && number == "27" && strings.HasSuffix(modifier, ";13") {
		return key{name: "M-enter"}, n // Enter with Shift, Control or Alt, from a terminal that tells
	}
	if final != "~" && number == "1" {
		number = ""
	}
	name := csiNames[number+final]
	if name != "" {
		switch modifier {
		case "3", "4":
			name = "M-" + name
		case "5", "6", "7", "8":
			name = "C-" + name
		}
	}
	return key{name: name}, n
}
