package wire

import (
	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// appendValue appends a JSON value of a client with its members in their order and its numbers as they were written.
func appendValue(dst []byte, v *fastjson.Value) []byte {
	switch v.Type() {
	case fastjson.TypeObject:
		obj, _ := v.Object()
		dst = append(dst, '{')
		first := true
		obj.Visit(func(key []byte, v *fastjson.Value) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendValue(append(jsontext.AppendString(dst, key), ':'), v)
		})
		return append(dst, '}')
	case fastjson.TypeArray:
		list, _ := v.Array()
		dst = append(dst, '[')
		for i, e := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, e)
		}
		return append(dst, ']')
	case fastjson.TypeString:
		s, _ := v.StringBytes()
		return jsontext.AppendString(dst, s)
	}
	return v.MarshalTo(dst) // a number as it was written, true, false, null
}

// AppendDefinition appends the tool as requests have it.
func (t *Tool) AppendDefinition(dst []byte) []byte {
	dst = jsontext.AppendHead(dst, `{"type":"function","function":{"name":`, t.Name)
	if t.Description != "" {
		dst = jsontext.AppendHead(dst, `,"description":`, t.Description)
	}
	if t.Parameters != nil {
		dst = append(append(dst, `,"parameters":`...), t.Parameters...)
	}
	if t.Strict {
		dst = append(dst, `,"strict":true`...)
	}
	return append(dst, "}}"...)
}

// AppendCalls appends calls as messages and eos events have them.
func AppendCalls(dst []byte, calls []ToolCall) []byte {
	dst = append(dst, '[')
	for i := range calls {
		c := &calls[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst = append(dst, '{'); c.ID != "" {
			dst = append(jsontext.AppendHead(dst, `"id":`, c.ID), ',')
		}
		dst = jsontext.AppendHead(dst, `"type":"function","function":{"name":`, c.Name)
		dst = append(jsontext.AppendHead(dst, `,"arguments":`, c.Arguments), "}}"...)
	}
	return append(dst, ']')
}
