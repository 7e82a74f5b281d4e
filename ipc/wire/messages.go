package wire

import (
	"fmt"
	"strings"

	"github.com/valyala/fastjson"
)

// readMessages reads a conversation. Its errors name the place: messages[1].content[0].text.
func readMessages(d *decoder, name string, v *fastjson.Value) error {
	list, err := v.Array()
	if err != nil {
		return wrongType(name, v, "an array of {role, content} objects")
	}
	if len(list) == 0 {
		return fmt.Errorf("field %q is empty; it must hold at least one message", name)
	}
	d.messages = true
	d.req.Messages = make([]Message, len(list))
	for i, m := range list {
		if err := d.message(entry(name, i), m, &d.req.Messages[i]); err != nil {
			return err
		}
	}
	return nil
}

const rolesText = `"system", "developer", "user", "assistant" or "tool"`

func (d *decoder) message(name string, v *fastjson.Value, m *Message) (err error) {
	obj, oerr := v.Object()
	if oerr != nil {
		return wrongType(name, v, "an object with role and content")
	}
	role, content := false, false
	more := "" // text from other fields
	pictures, from := "", len(d.references)
	d.joints = d.joints[:0]
	once := func(seen *bool, field string) error {
		if *seen {
			return fmt.Errorf("field %q is given twice", field)
		}
		*seen = true
		return nil
	}
	obj.Visit(func(key []byte, v *fastjson.Value) {
		if err != nil {
			return
		}
		field := name + "." + string(key)
		switch string(key) {
		case "role":
			if err = once(&role, field); err != nil {
				return
			}
			m.Role, err = d.str(field, v)
			switch m.Role {
			case "system", "developer", "user", "assistant", "tool":
			default:
				if err == nil {
					err = fmt.Errorf("field %q is %s; it must be %s", field, quoted([]byte(m.Role)), rolesText)
				}
			}
		case "content":
			if err = once(&content, field); err != nil {
				return
			}
			var thought string
			m.Content, thought, err = d.content(field, v)
			for i := from; i < len(d.references); i++ {
				d.references[i].message = m
			}
			if m.ReasoningContent == "" {
				m.ReasoningContent = thought
			}
		case "reasoning_content", "reasoning":
			if v.Type() == fastjson.TypeNull {
				return
			}
			var s string
			// some clients echo both names
			if s, err = d.str(field, v); err == nil && m.ReasoningContent != "" && s != m.ReasoningContent {
				err = fmt.Errorf("field %q differs from the message's other reasoning; send one", field)
			}
			m.ReasoningContent = s
		case "name":
			if v.Type() != fastjson.TypeNull {
				m.Name, err = d.str(field, v)
			}
		case "tool_call_id":
			if v.Type() != fastjson.TypeNull {
				m.ToolCallID, err = d.str(field, v)
			}
		case "tool_calls":
			if v.Type() != fastjson.TypeNull {
				m.ToolCalls, err = d.toolCalls(field, v)
			}
		case "refusal":
			if s, _ := v.StringBytes(); len(s) > 0 {
				more = string(s)
			}
		case "function_call": // OpenAI's form before tools
			if v.Type() == fastjson.TypeObject {
				call := ToolCall{Name: string(v.GetStringBytes("name")),
					Arguments: string(v.GetStringBytes("arguments"))}
				if call.Name != "" {
					m.ToolCalls = append(m.ToolCalls, call)
				}
			}
		case "images":
			if v.Type() != fastjson.TypeNull {
				pictures, err = imageList(field, v)
			}
		case "audio":
			if v.Type() != fastjson.TypeNull && !emptyArray(v) && string(v.MarshalTo(nil)) != `""` {
				more = d.leftOut(string(key))
			}
		}
	})
	switch {
	case err != nil:
		return err
	case !role:
		return fmt.Errorf("field %q is missing; it must be %s", name+".role", rolesText)
	case len(m.ToolCalls) > 0 && m.Role != "assistant":
		return fmt.Errorf("field %q belongs to a message of the assistant", name+".tool_calls")
	case !content && len(m.ToolCalls) == 0 && more == "" && pictures == "":
		return fmt.Errorf("field %q is missing; it must be a string or an array of text parts", name+".content")
	}
	if more != "" && m.Content != "" {
		more = "\n" + more
	}
	m.Content = pictures + m.Content + more
	moved, err := m.takeImages()
	if err != nil {
		return fmt.Errorf("field %q: %w", name+".content", err)
	}
	for i := range d.joints {
		d.joints[i] = moved(len(pictures) + d.joints[i])
	}
	for i := from; i < len(d.references); i++ {
		d.references[i].at = moved(len(pictures) + d.references[i].at)
	}
	return nil
}

// leftOut returns the text in the place of something that this server cannot read. A client sends its history again
// with every request: refusing it would end the conversation for ever.
func (d *decoder) leftOut(kind string) string {
	text, note := LeftOut(kind)
	d.req.Notes.Add(note)
	return text
}

// content reads a message's text: a string, or parts of type "text", which are joined by newlines as llama-server
// and vLLM do; and its thought, of parts of type "thinking". An assistant's null is an empty text. A part of another
// type is a placeholder.
func (d *decoder) content(name string, v *fastjson.Value) (content, thought string, err error) {
	const must = `a string or an array of {"type":"text","text":…} parts`
	switch v.Type() {
	case fastjson.TypeNull:
		return "", "", nil
	case fastjson.TypeString:
		content, err = d.str(name, v)
		return content, "", err
	case fastjson.TypeArray:
	default:
		return "", "", wrongType(name, v, must)
	}
	parts, _ := v.Array()
	var text []byte
	texts := 0
	for i, part := range parts {
		field := entry(name, i)
		if part.Type() != fastjson.TypeObject {
			return "", "", wrongType(field, part, `an object {"type":"text","text":…}`)
		}
		kind, s := string(part.GetStringBytes("type")), ""
		switch kind {
		case "":
			return "", "", fmt.Errorf("field %q is missing; it must be a string", field+".type")
		case "thinking", "reasoning", "redacted_thinking":
			thought += thinkingPart(part)
			continue
		case "refusal":
			s, err = d.str(field+".refusal", part.Get("refusal"))
		case "text", "input_text", "output_text":
			if !part.Exists("text") {
				return "", "", fmt.Errorf("field %q is missing; it must be a string", field+".text")
			}
			s, err = d.str(field+".text", part.Get("text"))
		case "file":
			text, ok := TextFile("", string(part.GetStringBytes("file", "file_data")))
			if !ok {
				s = d.leftOut(kind)
				break
			}
			s = strings.TrimPrefix(string(part.GetStringBytes("file", "filename"))+"\n"+text, "\n")
		case "tool_reference":
			of := string(part.GetStringBytes("tool_name"))
			at := len(text)
			if texts > 0 {
				at++ // the line break before it
			}
			d.references = append(d.references, reference{at: at, name: of})
			s = ToolReference(of)
		default:
			if data, ok := imageOf(kind, part); ok {
				s = ImagePart(kind, data)
			} else {
				s = d.leftOut(kind)
			}
		}
		if err != nil {
			return "", "", err
		}
		if texts++; texts > 1 {
			d.joints = append(d.joints, len(text))
			text = append(text, '\n')
		}
		text = append(text, s...)
	}
	return string(text), thought, nil
}

// thinkingPart returns the text of a part of type "thinking": a string, or parts of text as Mistral has them.
func thinkingPart(part *fastjson.Value) (text string) {
	for _, field := range []string{"thinking", "text"} {
		v := part.Get(field)
		if v == nil {
			continue
		}
		if v.Type() == fastjson.TypeArray {
			for _, p := range v.GetArray() {
				text += string(p.GetStringBytes("text"))
			}
			return text
		}
		s, _ := v.StringBytes()
		return string(s)
	}
	return ""
}
