package wire_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/client/frames"
	. "github.com/uma-serve/uma-serve/ipc/wire"
)

func parsedMessage(t *testing.T, message string) Message {
	t.Helper()
	def := DefaultRequest()
	f, err := Parse(new(Parser), []byte(`{"id":"a","messages":[`+message+`]}`), &def)
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	return f.Request.Messages[0]
}

// TestImagesOfMessages: the forms in which clients send images all become marks in the content, in order, and a message
// that is sent on means the same.
func TestImagesOfMessages(t *testing.T) {
	const text, a, b = `{"type":"text","text":"what?"}`, `{"type":"image_url","image_url":{"url":"data:a"}}`,
		`{"type":"input_image","image_url":"data:b"}`
	for _, c := range []struct {
		message, content string // with # for the mark
		images           []string
	}{
		{`"content":"what?","images":["A","B"]`, "##what?", []string{"A", "B"}},
		{`"images":["A"],"content":"what?"`, "#what?", []string{"A"}},
		{`"content":"","images":["A"]`, "#", []string{"A"}},
		{`"images":["A"]`, "#", []string{"A"}},
		{`"content":[` + a + `,` + text + `]`, "#what?", []string{"data:a"}},
		{`"content":[` + text + `,` + a + `,` + b + `,` + text + `]`, "what?##what?", []string{"data:a", "data:b"}},
		{`"content":[` + text + `,` + text + `]`, "what?\nwhat?", nil},
		{`"content":[{"type":"text","text":"own\n"},` + a + `]`, "own\n#", []string{"data:a"}},
		{`"content":[{"type":"image","source":{"type":"base64","data":"S"}},{"type":"image_url"}]`,
			"#[image_url left out: this server reads text]", []string{"S"}},
		{`"content":"plain","images":[]`, "plain", nil},
		{`"content":"plain","images":null`, "plain", nil},
	} {
		m := parsedMessage(t, `{"role":"user",`+c.message+`}`)
		for range 2 {
			var got []string
			for _, im := range m.Images {
				got = append(got, im.Data)
			}
			if strings.ReplaceAll(m.Content, ImageMark, "#") != c.content || !slices.Equal(got, c.images) {
				t.Errorf("%s: %q %q", c.message, m.Content, got)
			}
			if m.Content == "" {
				break
			}
			def := DefaultRequest()
			q := def
			q.ID, q.Messages = "a", []Message{m}
			frame := frames.AppendRequest(nil, &q, &def)
			f, err := Parse(new(Parser), frame[4:], &def)
			if err != nil {
				t.Fatalf("%s: %v", frame[4:], err)
			}
			m = f.Request.Messages[0]
		}
	}
}

func TestImagesLimits(t *testing.T) {
	def := DefaultRequest()
	many := `{"role":"user","content":"x","images":[` + strings.Repeat(`"A",`, MaxImages) + `"A"]}`
	for message, want := range map[string]string{
		`{"role":"user","content":"x","images":"A"}`: `"messages[0].images"`,
		`{"role":"user","content":"x","images":[1]}`: `"messages[0].images[0]"`,
		many: "the limit is 64",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"File:///etc/passwd"}}]}`: "" +
			`"messages[0].content": image 1 (image_url) is named by a file: URL`,
	} {
		if _, err := Parse(new(Parser), []byte(`{"id":"a","messages":[`+message+`]}`), &def); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", message, err)
		}
	}
	// What an API passes on has the client's bytes in it; they cannot end the mark early.
	m := Message{Content: "a\n" + ImagePart("image,x", "data"+ImageShut+"more") + "\nb"}
	if _, err := m.TakeImages(); err != nil || m.Content != "a"+ImageMark+"b" || m.Images[0].Data != "datamore" {
		t.Errorf("%q, %v", m, err)
	}
}
