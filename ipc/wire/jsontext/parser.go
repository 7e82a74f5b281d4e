package jsontext

import (
	"unsafe"

	"github.com/valyala/fastjson"
)

// Parser makes trees of texts that a Scan has accepted. It keeps its memory between calls, except that of an unusually
// large text.
type Parser struct {
	Scan Scan // of the text that was parsed last

	tree    fastjson.Parser
	scratch []byte
}

// keepText is the largest text whose memory the parser keeps.
const keepText = 64 << 10

// Parse checks text and returns its tree, valid until the next call, or the text's defect.
func (p *Parser) Parse(text []byte) (root *fastjson.Value, bad string) {
	if bad := p.Scan.Check(text); bad != "" {
		return nil, bad
	}
	if p.Scan.Mended != nil {
		text = p.Scan.Mended
	}
	root, err := p.tree.ParseBytes(text)
	if err != nil { // the scanner is stricter
		return nil, err.Error()
	}
	return root, ""
}

// Release ends the use of the tree: the parser forgets the text, and gives back the memory of a large one.
func (p *Parser) Release() {
	if len(p.Scan.Bytes) > keepText {
		p.tree, p.scratch = fastjson.Parser{}, nil
	}
	p.Scan.Bytes, p.Scan.Mended = nil, nil
}

// Number returns the text of a JSON number, valid until the next call.
func (p *Parser) Number(v *fastjson.Value) string {
	p.scratch = v.MarshalTo(p.scratch[:0])
	return unsafe.String(unsafe.SliceData(p.scratch), len(p.scratch))
}

// TypeName returns the type of v for an error message.
func TypeName(v *fastjson.Value) string {
	switch v.Type() {
	case fastjson.TypeNull:
		return "null"
	case fastjson.TypeTrue, fastjson.TypeFalse:
		return "a boolean"
	case fastjson.TypeObject:
		return "an object"
	case fastjson.TypeArray:
		return "an array"
	}
	return "a " + v.Type().String()
}
