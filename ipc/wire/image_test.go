package wire_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
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
		{`"content":[{"type":"input_audio","input_audio":{"data":"S","format":"wav"}},` + text + `,` + a + `]`,
			"#what?#", []string{"S", "data:a"}},
		{`"content":[{"type":"audio_url","audio_url":{"url":"data:s"}},` + text + `]`, "#what?", []string{"data:s"}},
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

// TestLeaveOut: a model has what it reads, in order; a text stands in the place of the rest.
func TestLeaveOut(t *testing.T) {
	const parts = `{"type":"text","text":"a"},{"type":"input_audio","input_audio":{"data":"S","format":"wav"}},` +
		`{"type":"image_url","image_url":{"url":"data:I"}},{"type":"audio_url","audio_url":{"url":"data:U"}},` +
		`{"type":"text","text":"b"}`
	const out = " left out: this server reads text]"
	for want, reads := range map[string]func(sound bool) bool{
		"a###b":                         func(bool) bool { return true },
		"a#\n[image_url" + out + "\n#b": func(sound bool) bool { return sound },
		"a\n[input_audio" + out + "\n#\n[audio_url" + out + "\nb": func(sound bool) bool { return !sound },
	} {
		m := parsedMessage(t, `{"role":"user","content":[`+parts+`]}`)
		var notes Notes
		m.LeaveOut(reads, &notes)
		got := strings.ReplaceAll(m.Content, ImageMark, "#")
		if got != want ||
			len(m.Images) != strings.Count(want, "#") || len(m.Images)+len(notes) != 3 {
			t.Errorf("%q, want %q; %+v %v", got, want, m.Images, notes)
		}
	}
	for messages, want := range map[string]int{
		`[{"role":"user","content":[` + parts + `]}]`:                                      0,
		`[{"role":"user","content":"x"},{"role":"user","content":[` + parts + `]}]`:        1,
		`[{"role":"user","content":[` + parts + `]},{"role":"user","content":"x"}]`:        -1,
		`[{"role":"assistant","content":"x"}]`:                                             -1,
		`[{"role":"user","content":[` + parts + `]},{"role":"assistant","content":"yes"}]`: 0,
	} {
		def := DefaultRequest()
		f, err := Parse(new(Parser), []byte(`{"id":"a","messages":`+messages+`}`), &def)
		if err != nil {
			t.Fatal(err)
		}
		if at, found := Unheard(f.Request.Messages); found != (want >= 0) || found && at != want {
			t.Errorf("%s: %d %v", messages, at, found)
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
