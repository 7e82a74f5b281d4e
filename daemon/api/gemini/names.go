package gemini

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// camelNames are the names that bodies may have in snake_case too, as in the JSON of Protocol Buffers.
var camelNames = func() map[string]string {
	names := map[string]string{}
	add := func(name string) {
		var snake strings.Builder
		for _, r := range name {
			if unicode.IsUpper(r) {
				snake.WriteByte('_')
			}
			snake.WriteRune(unicode.ToLower(r))
		}
		if snake.String() != name {
			names[snake.String()] = name
		}
	}
	seen := map[*wire.Shape]bool{}
	var walk func(s *wire.Shape)
	walk = func(s *wire.Shape) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		for _, list := range [][]string{s.Read, s.Ignored} {
			for _, name := range list {
				add(name)
			}
		}
		for _, inner := range s.Inner {
			walk(inner)
		}
	}
	walk(api.ShapeOf(&body{}, &config{}))
	for _, t := range Tables() {
		for _, f := range t {
			add(f.Name)
		}
	}
	for name := range hostedTools {
		add(name)
	}
	for _, name := range schemaNames {
		add(name)
	}
	return names
}()

// opaque are the members whose names are the client's.
var opaque = map[string]bool{"args": true, "response": true, "parametersJsonSchema": true, "responseJsonSchema": true,
	"jsonSchema": true, "default": true, "example": true, "enum": true}

// camelCase returns a body with the names of its fields in camelCase. The body is valid JSON.
func camelCase(body []byte) []byte {
	if !bytes.ContainsRune(body, '_') {
		return body
	}
	type open struct{ object, names bool }
	var (
		stack  []open
		out    = make([]byte, 0, len(body))
		key    string // the last one
		isKey  bool   // a string here is a key
		closed int    // depth of the opaque member; 0: none
	)
	for i := 0; i < len(body); i++ {
		c := body[i]
		switch c {
		case '"':
			end := i + 1
			for body[end] != '"' {
				if body[end] == '\\' {
					end++
				}
				end++
			}
			text := body[i+1 : end]
			if isKey {
				key = string(text)
				if camel, ok := camelNames[key]; ok && closed == 0 && !stack[len(stack)-1].names {
					key, text = camel, []byte(camel)
				}
			}
			out = append(append(append(out, '"'), text...), '"')
			i, isKey = end, false
			continue
		case '{', '[':
			names := key == "properties" || key == "defs" || key == "$defs"
			within := len(stack) > 0 && stack[len(stack)-1].names // a property that is called so
			stack = append(stack, open{c == '{', names && !within})
			if closed == 0 && opaque[key] && !within {
				closed = len(stack)
			}
			key, isKey = "", c == '{'
		case '}', ']':
			if len(stack) == closed {
				closed = 0
			}
			stack, key, isKey = stack[:len(stack)-1], "", false
		case ',':
			key, isKey = "", stack[len(stack)-1].object
		}
		out = append(out, c)
	}
	return out
}
