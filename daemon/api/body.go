package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Use says how an API treats a field of a body.
type Use uint8

const (
	Taken   Use = iota // the API translates it
	Ignored            // it does not change the answer
	Refused            // ignoring it would change the answer
)

// Field is a row of an API's table. A test compares the rows with docs/http.md. A field without a row is one of the
// request's (docs/protocol.md), or unknown: it is left out and told (docs/http.md, "Unknown fields").
type Field struct {
	Name string
	Use  Use
	But  []string // of a refused field: accepted values, in JSON, that ask for nothing
	Why  string   // of a refused field: what to do instead
}

// Table is the table of one endpoint.
type Table []Field

// Of returns a row with the same use for each name.
func Of(use Use, names ...string) (t Table) {
	for _, n := range names {
		t = append(t, Field{Name: n, Use: use})
	}
	return t
}

// Body is a body whose fields are sorted by a Table.
type Body struct {
	taken  []member
	passed []member
	left   *left         // nil: unknown fields are refused
	def    *wire.Request // values of fields that are omitted; nil: those of package wire
	under  string        // path of the body within that of an HTTP request, with a point; "" = it is that
}

type member struct {
	name  string
	value json.RawMessage
}

// ReadBody returns the body of a request, which the daemon has read into memory, or an *Error.
func ReadBody(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, Refuse("the body is incomplete: " + err.Error())
	}
	return b, nil
}

// Body reads the body of a request and sorts its fields. A null counts as absent. The error is an *Error or a
// *wire.RequestError.
func (t Table) Body(r *http.Request) (*Body, error) {
	raw, err := ReadBody(r)
	if err != nil {
		return nil, err
	}
	return t.read(raw, &Body{left: leftOf(r), def: defaultsOf(r)})
}

// Under sorts the members of an object in b by t. name is its field.
func (b *Body) Under(name string, t Table, value []byte) (*Body, error) {
	return t.read(value, &Body{left: b.left, under: name + "."})
}

// Read sorts the fields of a body, and refuses unknown ones.
func (t Table) Read(body []byte) (*Body, error) { return t.read(body, new(Body)) }

func (t Table) read(body []byte, b *Body) (*Body, error) {
	body, err := wire.CheckJSON(body)
	if err != nil {
		return nil, err
	}
	if kind := Kind(bytes.TrimLeft(body, " \t\r\n")); kind != "an object" {
		return nil, Refuse("the body is " + kind + "; it must be a JSON object")
	}
	in := json.NewDecoder(bytes.NewReader(body))
	if _, err := in.Token(); err != nil {
		return nil, Refuse(err.Error())
	}
	rows := make(map[string]*Field, len(t))
	for i := range t {
		rows[t[i].Name] = &t[i]
	}
	seen := map[string]bool{}
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return nil, Refuse(err.Error())
		}
		m := member{name: token.(string)}
		if err := in.Decode(&m.value); err != nil {
			return nil, Refuse(err.Error())
		}
		if string(m.value) == "null" {
			continue
		}
		row := rows[m.name]
		switch {
		case row != nil && row.Use == Ignored:
		case row == nil && !wire.KnownField(m.name):
			if err := b.unknown(m.name, t); err != nil {
				return nil, err
			}
		case seen[m.name]:
			return nil, Refusef("field %q is given twice", m.name)
		case row == nil:
			b.passed = append(b.passed, m)
		case row.Use == Refused:
			if !row.harmless(m.value) {
				return nil, Refusef("field %q is not supported by this server (%s); leave it out", m.name, row.Why)
			}
		default:
			b.taken = append(b.taken, m)
		}
		seen[m.name] = true
	}
	if b.left != nil {
		b.left.tell()
	}
	return b, nil
}

// harmless reports whether a refused field has one of the accepted values.
func (f *Field) harmless(value json.RawMessage) bool {
	var short bytes.Buffer
	if json.Compact(&short, value) != nil {
		return false
	}
	for _, but := range f.But {
		if short.String() == but {
			return true
		}
	}
	return false
}

// Has reports whether the body has a field that is taken or passed on.
func (b *Body) Has(name string) bool {
	for _, list := range [][]member{b.taken, b.passed} {
		for _, m := range list {
			if m.name == name {
				return true
			}
		}
	}
	return false
}

// Into decodes the taken fields into a struct with their names as json tags. Errors name the field.
func (b *Body) Into(dst any) error {
	if err := json.Unmarshal(appendMembers([]byte{'{'}, b.taken), dst); err != nil {
		return Refuse(b.typeError(err))
	}
	b.strays(dst)
	return nil
}

// typeError names the field whose value has the wrong type, and the right type.
func (b *Body) typeError(err error) string {
	var bad *json.UnmarshalTypeError
	if !errors.As(err, &bad) {
		return err.Error()
	}
	name := bad.Field
	for { // package json names embedded structs too
		first, rest, nested := strings.Cut(name, ".")
		if !nested || b.Has(first) {
			break
		}
		name = rest
	}
	if name == "" {
		return fmt.Sprintf("a value is %s; it must be %s", article(bad.Value), goKind(bad.Type.String()))
	}
	return fmt.Sprintf("field %q is %s; it must be %s", name, article(bad.Value), goKind(bad.Type.String()))
}

func article(kind string) string {
	kind, _, _ = strings.Cut(kind, " ")
	switch kind {
	case "bool":
		return "a boolean"
	case "array", "object":
		return "an " + kind
	}
	return "a " + kind
}

func goKind(t string) string {
	t = strings.TrimPrefix(t, "*")
	switch {
	case t == "string":
		return "a string"
	case t == "bool":
		return "true or false"
	case strings.HasPrefix(t, "int") || strings.HasPrefix(t, "uint"):
		return "an integer"
	case strings.HasPrefix(t, "float"):
		return "a number"
	case strings.HasPrefix(t, "[]"):
		return "an array"
	}
	return "an object"
}

// appendMembers appends members to an open object and closes it.
func appendMembers(dst []byte, list []member) []byte {
	for _, m := range list {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			panic("api: a field's name: " + err.Error()) // a string
		}
		dst = append(append(append(dst, name...), ':'), m.value...)
	}
	return append(dst, '}')
}

// Request returns the request for b with this id: the members of more (a struct or nil) and the fields that are passed
// on. It streams, and has progress events only if a field asks for them. The error is an *Error.
func (b *Body) Request(id string, more any) (*wire.Request, error) {
	payload := []byte{'{'}
	if more != nil {
		text, err := json.Marshal(more)
		if err != nil {
			return nil, Refuse(err.Error())
		}
		payload = append(payload[:0], text[:len(text)-1]...)
	}
	fixed := []member{{"id", quote(id)}, {"stream", json.RawMessage("true")}}
	if !b.Has("return_progress") { // clients of the API do not expect progress events
		fixed = append(fixed, member{"return_progress", json.RawMessage("false")})
	}
	payload = appendMembers(payload, append(fixed, b.passed...))
	def := wire.DefaultRequest()
	if b.def != nil {
		def = *b.def
	}
	p := new(wire.Parser)
	if b.left != nil {
		p.Left = &b.left.Strays
	}
	f, err := wire.Parse(p, payload, &def)
	if b.left != nil {
		b.left.tell()
	}
	if err != nil {
		bad := AsError(err)
		bad.ID = ""
		return nil, bad
	}
	if f.Request.PromptLogprobs > 0 {
		return nil, Refuse(`field "prompt_logprobs" is not supported over HTTP; send "echo" with "logprobs" to ` +
			`/v1/completions`)
	}
	if b.left != nil && len(b.left.List) > 0 {
		f.Request.Notes.Add(b.left.note())
	}
	return f.Request, nil
}

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic("api: " + err.Error()) // a string
	}
	return b
}

// Kind names the type of a JSON value by its first byte.
func Kind(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "empty"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't' || raw[0] == 'f':
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}

// Join adds the fields that o passes on to b. It refuses a field that both have.
func (b *Body) Join(o *Body) error {
	for _, m := range o.passed {
		if b.Has(m.name) {
			return Refusef("field %q is given twice", m.name)
		}
	}
	b.passed = append(b.passed, o.passed...)
	return nil
}

// Passed returns the names of the fields without a row in the table.
func (b *Body) Passed() (names []string) {
	for _, m := range b.passed {
		names = append(names, m.name)
	}
	return names
}
