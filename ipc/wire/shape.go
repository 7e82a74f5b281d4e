package wire

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/valyala/fastjson"
)

// MaxStrays is the most unknown fields of a message that are listed, MaxStrayBytes the most bytes of a name.
const (
	MaxStrays     = 16
	MaxStrayBytes = 64
)

// Stray is a field of a message that this server does not know.
type Stray struct {
	Name  string // its path, elements without their index: messages[].x
	Meant string // the field that was probably meant; "" = none is near
}

// Strays are the unknown fields of a message, each name once.
type Strays struct {
	List []Stray
	More int // further ones, not all of them different
}

// Add adds a field and reports whether it is listed now and was not before. of are the names that its name may be a
// slip for.
func (l *Strays) Add(path, name string, of iter.Seq[string]) bool {
	full := path + name
	if len(full) > MaxStrayBytes {
		full = strings.ToValidUTF8(full[:MaxStrayBytes], "") + "…"
	}
	switch {
	case slices.ContainsFunc(l.List, func(s Stray) bool { return s.Name == full }):
		return false
	case len(l.List) == MaxStrays:
		l.More++
		return false
	}
	l.List = append(l.List, Stray{full, Nearest(name, of)})
	return true
}

// AddField adds a field of a request that no table has.
func (l *Strays) AddField(path, name string) bool {
	added := l.Add(path, name, maps.Keys(fieldIndex))
	if s := l.List; added && s[len(s)-1].Meant == "" && strayThink([]byte(name)) != nil {
		s[len(s)-1].Meant = "think"
	}
	return added
}

// Shape lists the members of an object. A Parser that leaves out unknown fields finds those of nested objects by it,
// and docs/fields.md is made from it.
type Shape struct {
	Read    []string // members that have an effect
	Ignored []string // members that cannot change an answer
	Inner   map[string]*Shape
	// Kinds are the values of "type" for which the members are listed; objects of another type are not looked at. Nil:
	// all.
	Kinds []string
}

// requestShape has the nested objects of a request. Its own members are the table of fields.
var requestShape = &Shape{Inner: map[string]*Shape{
	"messages": {
		Read: []string{"role", "content", "reasoning_content", "reasoning", "name", "tool_call_id", "tool_calls",
			"refusal", "function_call", "images", "audio"},
		Ignored: []string{"id", "type", "status", "phase", "index", "annotations", "cache_control", "tool_name",
			"parsed", "metadata", "timestamp", "reasoning_details", "thinking_blocks", "provider_specific_fields"},
		Inner: map[string]*Shape{"content": contentShape, "tool_calls": {
			Read:    []string{"id", "type", "function"},
			Ignored: []string{"index", "extra_content", "provider_specific_fields", "cache_control"},
			Kinds:   []string{"", "function"},
			Inner: map[string]*Shape{"function": {Read: []string{"name", "arguments"},
				Ignored: []string{"index", "description", "parsed_arguments", "provider_specific_fields"}}},
		}},
	},
	"tools": toolShape,
	"tool_choice": {
		Read: []string{"type", "function", "name", "allowed_tools"}, Ignored: []string{"disable_parallel_tool_use"},
		Kinds: []string{"", "function", "allowed_tools"},
		Inner: map[string]*Shape{"function": {Read: []string{"name"}},
			"allowed_tools": {Read: []string{"mode", "tools"}, Inner: map[string]*Shape{"tools": toolShape}}},
	},
	"response_format": {
		Read: []string{"type", "json_schema", "schema", "name", "strict"}, Ignored: []string{"description"},
		Inner: map[string]*Shape{"json_schema": {Read: []string{"name", "strict", "schema"},
			Ignored: []string{"description", "type"}}},
	},
	"slo":      {Read: []string{"target_ttft_ms", "target_tbt_ms", "target_ttot_ms", "strict"}},
	"think":    {Read: thinkMembers},
	"thinking": {Read: []string{"type", "budget_tokens", "clear_thinking"}, Ignored: []string{"display"}},
	"structured_outputs": {
		Read:    append([]string{"json", "regex", "choice", "grammar", "json_object"}, structuredRefused...),
		Ignored: structuredIgnored,
	},
}}

var contentShape = &Shape{
	Read: []string{"type", "text", "refusal", "file", "tool_name", "thinking"},
	Ignored: []string{"cache_control", "prompt_cache_breakpoint", "annotations", "logprobs", "citations", "signature",
		"summary", "id", "data", "closed"},
	Kinds: []string{"text", "input_text", "output_text", "refusal", "file", "tool_reference", "thinking", "reasoning",
		"redacted_thinking"},
	Inner: map[string]*Shape{"file": {Read: []string{"file_data", "filename"}, Ignored: []string{"file_id", "format"}}},
}

var toolShape = &Shape{
	Read:    []string{"type", "function", "defer_loading", "referenced"},
	Ignored: []string{"cache_control", "allowed_callers", "input_examples", "eager_input_streaming"},
	Kinds:   []string{"", "function"},
	Inner: map[string]*Shape{"function": {
		Read:    []string{"name", "description", "parameters", "strict", "defer_loading"},
		Ignored: []string{"output_schema", "return", "response", "cache_control"},
	}},
}

// RequestShape returns the shape of a request's nested objects.
func RequestShape() *Shape { return requestShape }

// Strays adds the unknown members of a JSON value, which is valid, to list: those of an object and of objects in
// arrays, nested ones included. path is the value's own.
func (s *Shape) Strays(value []byte, path string, list *Strays) {
	p := parsers.Get()
	defer parsers.Put(p)
	if v, err := p.ParseBytes(value); err == nil {
		s.strays(v, path, list)
	}
}

var parsers fastjson.ParserPool

func (s *Shape) strays(v *fastjson.Value, path string, list *Strays) {
	switch v.Type() {
	case fastjson.TypeArray:
		elements, _ := v.Array()
		path += "[]"
		for _, e := range elements {
			if e.Type() == fastjson.TypeObject {
				s.object(e, path, list)
			}
		}
	case fastjson.TypeObject:
		s.object(v, path, list)
	}
}

func (s *Shape) object(v *fastjson.Value, path string, list *Strays) {
	if s.Kinds != nil && !slices.Contains(s.Kinds, string(v.GetStringBytes("type"))) {
		return
	}
	obj, _ := v.Object()
	obj.Visit(func(key []byte, v *fastjson.Value) {
		if v.Type() == fastjson.TypeNull {
			return
		}
		if inner := s.Inner[string(key)]; inner != nil {
			inner.strays(v, path+"."+string(key), list)
			return
		}
		if !s.Knows(string(key)) {
			list.Add(path+".", string(key), slices.Values(s.Read))
		}
	})
}

// Knows reports whether an object has such a member. Package json reads members in any case.
func (s *Shape) Knows(key string) bool {
	if slices.Contains(s.Read, key) || slices.Contains(s.Ignored, key) {
		return true
	}
	return slices.ContainsFunc(s.Read, func(name string) bool { return strings.EqualFold(name, key) })
}

// Nearest returns the one of some names for which name may be a slip; "" = none.
func Nearest(name string, of iter.Seq[string]) string {
	nearest, least := "", 3
	if len(name) > 40 {
		return ""
	}
	for o := range of {
		if d := levenshtein.ComputeDistance(name, o); d < least && d < len(o)/2 || d == least && o < nearest {
			nearest, least = o, d
		}
	}
	return nearest
}
