package wire

import (
	"bytes"
	"fmt"
)

// DefaultsWith returns DefaultRequest with other defaults for some fields: fields is a JSON object of a request's
// fields. Fields that make up the prompt, and those of the request's end, are no defaults.
func DefaultsWith(fields []byte) (Request, error) {
	def := DefaultRequest()
	fields = bytes.TrimSpace(fields)
	if len(fields) == 0 || string(fields) == "{}" {
		return def, nil
	}
	if fields[0] != '{' {
		return def, fmt.Errorf("the defaults of requests must be an object")
	}
	const head = `{"id":"defaults","prompt":"x",`
	f, err := Parse(new(Parser), append([]byte(head), fields[1:]...), &def)
	if err != nil {
		return def, err
	}
	if f.Request == nil || len(f.Request.Messages) > 0 {
		return def, fmt.Errorf("the defaults of requests must not have messages or an event")
	}
	r := *f.Request.Clone()
	r.ID, r.Prompt = "", ""
	return r, nil
}
