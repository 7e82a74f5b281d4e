package toolcall

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// Instructions tells a model whose template does not show tools which there are, and how to call them in this syntax.
func (f *Syntax) Instructions(tools []Tool) string {
	var b strings.Builder
	b.WriteString("You can call the functions below. To call one, write exactly this, with its name and its " +
		"arguments, and nothing " +
		"after the last call:\n")
	b.WriteString(f.Write([]Call{{Name: "function_name", Arguments: `{"parameter": "value"}`}}))
	b.WriteString("\nThe results come in the next message. Answer in words where no function is needed.\n\n" +
		"Functions:\n")
	for i := range tools {
		t := &tools[i]
		parameters := json.RawMessage(t.Parameters)
		if len(parameters) == 0 {
			parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if enc.Encode(struct {
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Parameters  json.RawMessage `json:"parameters"`
		}{t.Name, t.Description, parameters}) != nil {
			b.WriteString(t.Name + "\n") // parameters that are no JSON
		}
	}
	return strings.TrimSpace(b.String())
}

// Write returns calls as a model of this syntax writes them, for templates that do not render calls. The arguments are
// JSON objects; of a Tagged syntax and of Braces the values are JSON too.
func (f *Syntax) Write(calls []Call) string {
	var b strings.Builder
	each := f.each()
	lines := each && (f.Notation == Envelope || len(f.Before) > 0 && f.Notation == Tagged)
	list := f.list()
	open := func() {
		if len(f.Open) > 0 {
			b.WriteString(f.Open[0])
		}
	}
	shut := func() {
		if len(f.Close) > 0 {
			b.WriteString(f.Close[0])
		}
	}
	if !each {
		open()
	}
	if list {
		b.WriteByte('[')
	}
	for i, c := range calls {
		if i > 0 && list {
			b.WriteString(", ")
		} else if i > 0 && lines {
			b.WriteByte('\n')
		}
		if each {
			open()
		}
		if lines {
			b.WriteByte('\n')
		}
		f.write(&b, i, c)
		if lines {
			b.WriteByte('\n')
		}
		if each {
			shut()
		}
	}
	if list {
		b.WriteByte(']')
	}
	if !each {
		shut()
	}
	return b.String()
}

func (f *Syntax) write(b *strings.Builder, i int, c Call) {
	arguments := c.Arguments
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
	}
	name := string(stream.AppendQuoted(nil, c.Name))
	key := func(list, def []string) string {
		if len(list) > 0 {
			return list[0]
		}
		return def[0]
	}
	switch f.Notation {
	case Envelope:
		b.WriteString(`{"` + key(f.Keys.Name, jsonKeys.Name) + `": ` + name + `, "` +
			key(f.Keys.Arguments, jsonKeys.Arguments) + `": ` + arguments + `}`)
	case Keyed:
		b.WriteString(`{` + name + `: ` + arguments + `}`)
	case Keywords:
		b.WriteString(c.Name + "(" +
			f.members(arguments, ", ", func(key, value string) string { return key + "=" + pythonic(value) }) + ")")
	case Braces:
		b.WriteString(first(f.Before) + c.Name + "{" + f.members(arguments, ",", func(key, value string) string {
			var s string
			if json.Unmarshal([]byte(value), &s) == nil {
				return key + ":" + f.Quote + s + f.Quote
			}
			return key + ":" + value
		}) + "}")
	case Tagged:
		p := &f.Params
		b.WriteString(first(f.Before) + c.Name + first(f.Middle) +
			f.members(arguments, "", func(key, value string) string {
				attr, text := "false", value
				if typeOf(value[0]) == typeString && json.Unmarshal([]byte(value), &text) == nil {
					attr = "true"
				}
				if f.Escaped { // types by name
					attr = typeOf(value[0]).word()
				}
				if p.Nested {
					if value == "null" {
						return "" // as the model leaves it out
					}
					return p.tag(key, p.nest(value))
				}
				if len(p.Attr) > 0 {
					key += p.Attr[0] + attr
				}
				return first(p.Open) + key + first(p.Middle) + p.Pad + text + p.Pad + first(p.Close)
			}) + first(f.After))
	default:
		name := c.Name
		if f.Suffixed {
			if name = c.ID; !strings.HasPrefix(c.ID, f.Prefix+c.Name+":") {
				name = f.Prefix + c.Name + ":" + strconv.Itoa(i)
			}
		} else if f.NameTag != "" {
			name = f.NameTag + f.Prefix + c.Name
		}
		if len(f.ID) > 0 && c.ID != "" {
			name += f.ID[0] + c.ID
		}
		b.WriteString(first(f.Before) + name + first(f.Middle) + arguments + first(f.After))
	}
}

// members joins the members of a JSON object, in their order. Another text, which a model may have written before it
// was cut, is returned as it is.
func (f *Syntax) members(object, separator string, member func(key, value string) string) string {
	if !json.Valid([]byte(object)) || !strings.HasPrefix(strings.TrimSpace(object), "{") {
		return object
	}
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		return ""
	}
	var parts []string
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			break
		}
		name, _ := key.(string)
		parts = append(parts, member(name, string(value)))
	}
	return strings.Join(parts, separator)
}

// pythonic returns a JSON value as Python writes it.
func pythonic(value string) string {
	switch value {
	case "true":
		return "True"
	case "false":
		return "False"
	case "null":
		return "None"
	}
	return value
}
