package wire

import (
	"fmt"
	"slices"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// MaxFormatChoices bounds the texts of a FormatChoice.
const MaxFormatChoices = 1024

// FormatKind is the type of the constraint on an answer.
type FormatKind uint8

const (
	FormatNone    FormatKind = iota // any text
	FormatJSON                      // any JSON object
	FormatSchema                    // JSON that fits Payload, a JSON schema
	FormatRegex                     // text that matches Payload as a whole
	FormatChoice                    // one of Choices
	FormatGrammar                   // text of the grammar Payload, in llama.cpp's GBNF
)

// String returns the word of structured_outputs for k.
func (k FormatKind) String() string {
	return [...]string{"none", "json_object", "json", "regex", "choice", "grammar"}[k]
}

// Format is the constraint on the answer of a request. It binds the answer, not the thinking.
type Format struct {
	Kind    FormatKind
	Payload string   // of FormatSchema, FormatRegex, FormatGrammar: not empty
	Choices []string // of FormatChoice: 1…1024, none empty
	Name    string   // of a schema, "" = it has none
	Strict  bool     // of a schema; the server holds every answer to its schema, so it changes nothing
}

func (f *Format) same(o *Format) bool {
	return f.Kind == o.Kind && f.Payload == o.Payload && slices.Equal(f.Choices, o.Choices)
}

// formatFields are the fields that set a request's Format. Two of them may be sent if they agree.
var formatFields = []field{
	{name: "response_format", read: readResponseFormat},
	{name: "json_schema", read: readSchema},
	{name: "grammar", aliases: []string{"guided_grammar", "ebnf"}, read: readGrammar},
	{name: "format", read: func(d *decoder, name string, v *fastjson.Value) error {
		if s, err := v.StringBytes(); err == nil {
			switch string(s) {
			case "":
				return nil
			case "json":
				return d.setFormat(name, Format{Kind: FormatJSON})
			}
			return fmt.Errorf("field %q is %s; it must be \"json\" or a JSON schema", name, quoted(s))
		}
		return readSchema(d, name, v)
	}},
	{name: "structured_outputs", read: readStructured},
	{name: "guided_json", read: readSchema},
	{name: "guided_regex", aliases: []string{"regex"}, read: readRegex},
	{name: "guided_choice", read: readChoice},
	{name: "guided_json_object", read: readAnyObject},
}

// setFormat sets the answer's format as the field name asks for it, unless another field asks for a different one.
func (d *decoder) setFormat(name string, f Format) error {
	if d.formatBy != "" && !d.req.Format.same(&f) {
		return fmt.Errorf("fields %q and %q ask for different formats of the answer; send one of them", d.formatBy,
			name)
	}
	if d.formatBy == "" {
		d.req.Format, d.formatBy = f, name
	}
	return nil
}

// schema reads a JSON schema, or its text.
func (d *decoder) schema(name string, v *fastjson.Value) (string, error) {
	const must = "a JSON schema: an object, or true or false"
	switch v.Type() {
	case fastjson.TypeObject, fastjson.TypeTrue, fastjson.TypeFalse:
		return string(appendValue(nil, v)), nil
	case fastjson.TypeString:
		text, _ := v.StringBytes()
		inner, bad := new(jsontext.Parser).Parse(text)
		if bad != "" {
			return "", fmt.Errorf("field %q is a string that is not JSON (%s); it must be %s", name, bad, must)
		}
		if inner.Type() == fastjson.TypeString {
			return "", fmt.Errorf("field %q is a string; it must be %s", name, must)
		}
		return d.schema(name, inner)
	}
	return "", wrongType(name, v, must)
}

func readSchema(d *decoder, name string, v *fastjson.Value) error {
	s, err := d.schema(name, v)
	if err != nil {
		return err
	}
	return d.setFormat(name, Format{Kind: FormatSchema, Payload: s})
}

func readResponseFormat(d *decoder, name string, v *fastjson.Value) error {
	const must = `{"type":"text"}, {"type":"json_object"} or {"type":"json_schema","json_schema":{"schema":…}}`
	var kind string
	var wrapped, bare *fastjson.Value
	f := Format{Kind: FormatSchema}
	named := func(field, key string, v *fastjson.Value) (err error) {
		switch key {
		case "name":
			f.Name, err = d.name(field, v, MaxNameBytes)
		case "strict":
			err = d.boolean(field, v, &f.Strict)
		case "schema":
			bare = v
		}
		return err
	}
	err := d.members(name, v, "an object "+must, func(field, key string, v *fastjson.Value) (err error) {
		switch key {
		case "type":
			kind, err = d.str(field, v)
		case "json_schema":
			wrapped = v
		default:
			return named(field, key, v) // as llama-server and /v1/responses have it
		}
		return err
	})
	if err != nil {
		return err
	}
	where := name + ".schema"
	if kind == "json_schema" && wrapped != nil {
		where = name + ".json_schema.schema"
		if err := d.members(name+".json_schema", wrapped, `an object {"name":…,"schema":…}`, named); err != nil {
			return err
		}
	}
	switch kind {
	case "text":
		return nil
	case "json_object", "json":
		if bare == nil {
			return d.setFormat(name, Format{Kind: FormatJSON})
		}
	case "json_schema":
		if bare == nil {
			return fmt.Errorf("field %q is missing; it must be a JSON schema", name+".json_schema.schema")
		}
	default:
		return fmt.Errorf("field %q is %s; %q must be %s", name+".type", quoted([]byte(kind)), name, must)
	}
	if f.Payload, err = d.schema(where, bare); err != nil {
		return err
	}
	return d.setFormat(name, f)
}

func readGrammar(d *decoder, name string, v *fastjson.Value) error {
	s, err := d.str(name, v)
	if err != nil || s == "" {
		return err
	}
	return d.setFormat(name, Format{Kind: FormatGrammar, Payload: s})
}

func readRegex(d *decoder, name string, v *fastjson.Value) error {
	s, err := d.str(name, v)
	if err != nil {
		return err
	}
	if s == "" {
		return fmt.Errorf("field %q is empty; leave it out for any answer", name)
	}
	return d.setFormat(name, Format{Kind: FormatRegex, Payload: s})
}

func readChoice(d *decoder, name string, v *fastjson.Value) error {
	const must = "an array of 1…1024 strings, none empty"
	list, err := v.Array()
	if err != nil {
		return wrongType(name, v, must)
	}
	if len(list) == 0 || len(list) > MaxFormatChoices {
		return fmt.Errorf("field %q has %d entries; it must be %s", name, len(list), must)
	}
	f := Format{Kind: FormatChoice}
	for i, e := range list {
		s, err := d.str(entry(name, i), e)
		if err != nil {
			return err
		}
		if s == "" {
			return fmt.Errorf("field %q is empty; %q must be %s", entry(name, i), name, must)
		}
		f.Choices = append(f.Choices, s)
	}
	return d.setFormat(name, f)
}

func readAnyObject(d *decoder, name string, v *fastjson.Value) error {
	on := false
	if err := d.boolean(name, v, &on); err != nil || !on {
		return err
	}
	return d.setFormat(name, Format{Kind: FormatJSON})
}

// structuredRefused are the members of structured_outputs that are accepted as false alone; structuredIgnored those
// that vLLM itself adds.
var (
	structuredRefused = []string{"disable_fallback", "disable_any_whitespace", "disable_additional_properties",
		"whitespace_pattern", "structural_tag"}
	structuredIgnored = []string{"_backend", "_backend_was_auto"}
)

// readStructured takes vLLM's object, with one of its formats.
func readStructured(d *decoder, name string, v *fastjson.Value) error {
	return d.members(name, v, "an object with one of json, regex, choice, grammar and json_object",
		func(field, key string, v *fastjson.Value) error {
			switch key {
			case "json":
				return readSchema(d, field, v)
			case "regex":
				return readRegex(d, field, v)
			case "choice":
				return readChoice(d, field, v)
			case "grammar":
				return readGrammar(d, field, v)
			case "json_object":
				return readAnyObject(d, field, v)
			}
			switch {
			case slices.Contains(structuredIgnored, key),
				slices.Contains(structuredRefused, key) && v.Type() == fastjson.TypeFalse:
				return nil
			case slices.Contains(structuredRefused, key):
				return fmt.Errorf("field %q is not supported by this server; leave it out", field)
			case d.p.Left != nil:
				return nil
			}
			return fmt.Errorf("field %q is not known; %q has one of json, regex, choice, grammar and json_object",
				field, name)
		})
}
