package documents

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/pdf"
)

// Header is a header of the front's own requests to a model's process: their bodies have no documents for the front any
// more.
const Header = "X-Uma-Documents"

// marks are bytes of every body that has documents for this package. Within a string of JSON a backslash stands before
// them.
var marks = [][]byte{[]byte(`"file_id"`), []byte(`"application/pdf`), []byte(`"application\/pdf`),
	[]byte(`"data:application/pdf`), []byte(`"data:application\/pdf`), []byte(`"JVBERi0`)}

// Asks reports whether a request has, or may have, documents that the front reads. What is true of the beginning of a
// body is true of the whole.
func Asks(r *http.Request, body []byte) bool {
	if r.Method != http.MethodPost || r.Header.Get(Header) != "" || !reads(r.URL.Path) {
		return false
	}
	for _, m := range marks {
		if marked(body, m) {
			return true
		}
	}
	return false
}

func marked(body, mark []byte) bool {
	for at := 0; ; {
		n := bytes.Index(body[at:], mark)
		if n < 0 {
			return false
		}
		if at += n; at == 0 || body[at-1] != '\\' {
			return true
		}
		at += len(mark)
	}
}

// reads reports whether the requests of a path have messages.
func reads(path string) bool {
	switch strings.TrimPrefix(path, "/v1") {
	case "/messages", "/messages/count_tokens", "/chat/completions", "/responses", "/responses/input_tokens",
		"/responses/compact", "/chat/completions/input_tokens", "/chat/completions/render":
		return true
	case "/apply-template":
		return true
	}
	return strings.Contains(path, ":generateContent") || strings.Contains(path, ":streamGenerateContent") ||
		strings.Contains(path, ":countTokens")
}

// within are the members that lead from a body to its documents.
var within = map[string]bool{"messages": true, "content": true, "contents": true, "parts": true, "output": true,
	"generateContentRequest": true}

// Rewrite returns a body with text and images in the place of documents, in the form of the API that the body has, for
// the process of a model. A body that is no JSON is returned as it is: that process refuses it.
func (d *Reader) Rewrite(ctx context.Context, owner uint32, body []byte) ([]byte, error) {
	if !json.Valid(body) {
		return body, nil
	}
	w := &walk{d: d, ctx: ctx, owner: owner}
	out, err := w.value(body, "", true)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// walk goes through one body.
type walk struct {
	d     *Reader
	ctx   context.Context
	owner uint32
	read  int // documents
}

type object map[string]json.RawMessage

// value returns a value with its documents replaced. at is its path, for errors; top: it is the body.
func (w *walk) value(raw json.RawMessage, at string, top bool) (json.RawMessage, error) {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	switch {
	case len(raw) > 0 && raw[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return raw, nil // it was valid: this does not happen
		}
		for i := range list {
			var err error
			if list[i], err = w.value(list[i], fmt.Sprintf("%s[%d]", at, i), false); err != nil {
				return nil, err
			}
		}
		return marshal(list), nil
	case len(raw) == 0 || raw[0] != '{':
		return raw, nil
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return raw, nil
	}
	changed, err := w.part(o, at)
	if err != nil {
		return nil, err
	}
	for name, v := range o {
		if !within[name] && !(top && name == "input") {
			continue
		}
		path := strings.TrimPrefix(at+"."+name, ".")
		if o[name], err = w.value(v, path, false); err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return raw, nil
	}
	return marshal(o), nil
}

// marshal writes a value without changing the characters of its strings.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // of values that were JSON
	return bytes.TrimSpace(b.Bytes())
}

func (o object) text(name string) string {
	var s string
	_ = json.Unmarshal(o[name], &s) // of another type: there is no text
	return s
}

func (o object) object(name string) (in object) {
	_ = json.Unmarshal(o[name], &in)
	return in
}

func (o object) set(name string, v any) { o[name] = marshal(v) }

// part replaces the document that o is, if it is one.
func (w *walk) part(o object, at string) (changed bool, err error) {
	switch kind := o.text("type"); kind {
	case "document", "image": // Anthropic
		return w.source(o, kind, at)
	case "file": // OpenAI, chat
		in := o.object("file")
		if in == nil {
			return false, nil
		}
		if changed, err = w.inputFile(in, in.text("file_id"), document, at+".file"); changed {
			o.set("file", in)
		}
		return changed, err
	case "input_file": // Responses
		return w.inputFile(o, o.text("file_id"), document, at)
	case "input_image":
		return w.inputFile(o, o.text("file_id"), image, at)
	}
	for _, name := range []string{"inlineData", "inline_data"} { // Gemini
		in := o.object(name)
		if in == nil || !isPDF(in.text("mimeType")+in.text("mime_type")) {
			continue
		}
		text, err := w.inline(in.text("data"), at+"."+name+".data")
		if err != nil {
			return false, err
		}
		delete(in, "mime_type")
		in.set("mimeType", "text/plain")
		in.set("data", base64.StdEncoding.EncodeToString([]byte(text)))
		o.set(name, in)
		return true, nil
	}
	return false, nil
}

// isPDF reports whether a media type is PDF's.
func isPDF(mime string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(mime), ";")
	return strings.TrimSpace(kind) == "application/pdf"
}

// source replaces the source of a block of Anthropic's API.
func (w *walk) source(o object, kind, at string) (bool, error) {
	in := o.object("source")
	want := document
	if kind == "image" {
		want = image
	}
	switch in.text("type") {
	case "file":
		c, err := w.stored(in.text("file_id"), want, at+".source.file_id")
		if err != nil {
			return false, err
		}
		if want == image {
			o.set("source", map[string]string{"type": "base64", "media_type": c.mime,
				"data": base64.StdEncoding.EncodeToString(c.image)})
			return true, nil
		}
		if o.text("title") == "" && c.name != "" {
			o.set("title", c.name)
		}
		o.set("source", map[string]string{"type": "text", "media_type": "text/plain", "data": c.text})
		return true, nil
	case "base64":
		if want != document || !isPDF(in.text("media_type")) {
			return false, nil
		}
		text, err := w.inline(in.text("data"), at+".source.data")
		if err != nil {
			return false, err
		}
		o.set("source", map[string]string{"type": "text", "media_type": "text/plain", "data": text})
		return true, nil
	}
	return false, nil
}

// inputFile replaces a file of OpenAI's APIs: by its id, or the bytes of a PDF.
func (w *walk) inputFile(o object, id string, want want, at string) (bool, error) {
	if id != "" {
		c, err := w.stored(id, want, at+".file_id")
		if err != nil {
			return false, err
		}
		delete(o, "file_id")
		if want == image {
			o.set("image_url", dataURL(c.mime, c.image))
			return true, nil
		}
		if o.text("filename") == "" && c.name != "" {
			o.set("filename", c.name)
		}
		o.set("file_data", dataURL("text/plain", []byte(c.text)))
		return true, nil
	}
	data := o.text("file_data")
	head, rest, isURL := strings.Cut(data, ",")
	switch {
	case isURL && strings.HasPrefix(head, "data:") && isPDF(strings.TrimPrefix(head, "data:")):
		data = rest
	case !strings.HasPrefix(data, "JVBERi0"):
		return false, nil
	}
	text, err := w.inline(data, at+".file_data")
	if err != nil {
		return false, err
	}
	o.set("file_data", dataURL("text/plain", []byte(text)))
	return true, nil
}

func dataURL(mime string, data []byte) string {
	return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// more counts a document.
func (w *walk) more(field string) error {
	if w.read++; w.read > MaxInBody {
		return api.Refusef("field %q: a request has at most %d documents that are PDF or named by a file's id", field,
			MaxInBody)
	}
	return nil
}

// stored reads a file by its id. A place for a document may have an image where the API has files of both.
func (w *walk) stored(id string, want want, field string) (*content, error) {
	if err := w.more(field); err != nil {
		return nil, err
	}
	c, err := w.d.file(w.ctx, w.owner, id, want)
	return c, in(field, err)
}

// inline reads a PDF in base64.
func (w *walk) inline(data, field string) (string, error) {
	if err := w.more(field); err != nil {
		return "", err
	}
	b, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "").Replace(data))
	switch {
	case err != nil:
		return "", api.Refusef("field %q is not base64: %v", field, err)
	case len(b) > MaxBytes:
		return "", &api.Error{Code: wire.FrameTooLarge,
			Message: fmt.Sprintf("field %q has %d bytes, and the limit is %d", field, len(b), MaxBytes)}
	case !pdf.Is(b):
		return "", api.Refusef("field %q is no PDF: it begins with %q", field, b[:min(len(b), 8)])
	}
	text, err := w.d.text(w.ctx, w.owner, b)
	return text, in(field, err)
}

// in names the field that an error is about.
func in(field string, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Message = fmt.Sprintf("field %q: %s", field, e.Message)
	return &named
}
