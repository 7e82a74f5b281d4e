package toolcall

import "github.com/uma-serve/uma-serve/model/toolcall/stream"

// codeBlock follows the code blocks of Markdown in an answer's text: markup in them is quoted, and calls nothing.
type codeBlock struct {
	open   int // backticks of the fence that began the block; 0: none is open
	part   linePart
	spaces int  // before the fence
	ticks  int  // of the line's fence
	last   byte // of the text
}

// linePart is the state of reading a line.
type linePart uint8

const (
	lineStart linePart = iota // nothing but spaces
	lineTicks                 // the backticks of a fence
	lineEnd                   // a fence that ends a block, if nothing follows
	lineRest
)

// add reads more of the text.
func (c *codeBlock) add(text []byte) {
	for _, b := range text {
		switch {
		case b == '\n':
			if c.part == lineEnd || c.part == lineTicks && c.open > 0 && c.ticks >= c.open {
				c.open = 0
			} else if c.part == lineTicks && c.open == 0 && c.ticks >= 3 {
				c.open = c.ticks
			}
			c.part, c.spaces, c.ticks = lineStart, 0, 0
		case c.part == lineRest:
		case c.part == lineStart && b == ' ' && c.spaces < 3:
			c.spaces++
		case c.part <= lineTicks && b == '`':
			c.part = lineTicks
			c.ticks++
		case c.part == lineTicks && c.open == 0 && c.ticks >= 3:
			c.open, c.part = c.ticks, lineRest
		case (c.part == lineEnd || c.part == lineTicks && c.ticks >= c.open && c.open > 0) && stream.IsSpace(b):
			c.part = lineEnd
		default:
			c.part = lineRest
		}
		c.last = b
	}
}

// quotes reports whether what follows text, which is behind the text read, is quoted: in a block, or after a backtick.
func (c codeBlock) quotes(text []byte) bool {
	c.add(text)
	return c.open > 0 || c.last == '`'
}
