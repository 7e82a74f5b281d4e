package meridian

// textState tells whether a text ends inside a character, or at the end of a line, sentence or paragraph.
type textState struct {
	need  uint8  // bytes that the last character lacks; 0: it is complete
	lo    byte   // while need > 0: the lowest and highest byte that continues it
	hi    byte   //
	lines int    // line breaks since the last visible character
	tail  uint32 // the last four bytes, the last one lowest; 0: no text yet
}

// add appends a piece. A byte that cannot continue a character ends it, as in a decoder that writes U+FFFD for invalid
// bytes (Unicode 15, §3.9, maximal subparts).
func (t *textState) add(piece []byte) {
	for _, b := range piece {
		t.tail = t.tail<<8 | uint32(b)
		if b < 0x80 {
			t.need = 0
			switch b {
			case '\n':
				t.lines++
			case ' ', '\t', '\r':
			default:
				t.lines = 0
			}
			continue
		}
		t.lines = 0
		if t.need > 0 && t.lo <= b && b <= t.hi {
			t.need--
			t.lo, t.hi = 0x80, 0xBF
			continue
		}
		t.need, t.lo, t.hi = 0, 0x80, 0xBF
		switch {
		case b < 0xC2 || b > 0xF4: // continues nothing, or never valid
		case b < 0xE0:
			t.need = 1
		case b < 0xF0:
			t.need = 2
			switch b {
			case 0xE0:
				t.lo = 0xA0
			case 0xED:
				t.hi = 0x9F // excludes surrogates
			}
		default:
			t.need = 3
			switch b {
			case 0xF0:
				t.lo = 0x90
			case 0xF4:
				t.hi = 0x8F
			}
		}
	}
}

// boundary reports whether the text ends with a line or a sentence, and so may be cut here.
func (t *textState) boundary() bool {
	if t.lines > 0 {
		return true
	}
	end := t.tail
	if end&0xFF == ' ' {
		end >>= 8
	}
	switch byte(end) {
	case '!', '?':
		return true
	case '.':
		digit := byte(end>>8) - '0'
		return digit > 9 // "3." may be half of a number
	}
	switch t.tail & 0xFFFFFF {
	case 0xE38082, 0xEFBC81, 0xEFBC9F, 0xE280A6: // 。！？…
		return true
	}
	return false
}

// blankLine reports whether the text ends with an empty line, which separates steps of reasoning.
func (t *textState) blankLine() bool { return t.lines > 1 }
