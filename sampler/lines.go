package sampler

import "time"

// Lines ends an answer at a line, as llama-server does for filling in code: at the first line that is indented by less
// than Indent, or at the first newline after MaxTime. The zero value ends none.
type Lines struct {
	Indent  int           // white space that each line after the first must begin with, in characters; 0: none
	MaxTime time.Duration // from the answer's first token; 0: no limit

	width     int  // of the current line's indentation
	measuring bool // the current line has had nothing else
	ended     bool
}

// Ended reports whether the answer has ended at a line.
func (l *Lines) Ended() bool { return l.ended }

// Push takes text that is added to the answer, at a time after its first token. It returns how many bytes of it the
// answer keeps, and whether it ends there.
func (l *Lines) Push(text []byte, at time.Duration) (n int, end bool) {
	if l.ended {
		return 0, true
	}
	if l.Indent == 0 && l.MaxTime == 0 {
		return len(text), false
	}
	newline := false
	for i, b := range text {
		if l.measuring {
			if b == ' ' || b == '\t' {
				l.width++
				continue
			}
			if l.measuring = false; l.width < l.Indent {
				l.ended = true
				return i, true
			}
		}
		if b == '\n' {
			newline, l.measuring, l.width = true, l.Indent > 0, 0
		}
	}
	l.ended = newline && l.MaxTime > 0 && at > l.MaxTime
	return len(text), l.ended
}
