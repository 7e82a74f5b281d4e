package documents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/internal/testutil/race"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/pdf"
	"github.com/uma-serve/uma-serve/model/pdf/pdffile"
)

// The test program is the process that reads PDF files, and processes that fail.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		switch mode := os.Args[2]; mode {
		case "hang":
			for turns := new(atomic.Uint64); ; { // as a library that loops
				turns.Add(1)
			}
		case "die":
			os.Exit(3)
		case "eat":
			eat()
		default:
			if err := Run(os.Stdin, os.Stdout, mode == Confined); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, mode string) *Program {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return NewProgram(exe, []string{Arg, mode}, slog.New(slog.DiscardHandler))
}

const gif = "GIF89a\x01\x00\x01\x00\x00\x00\x00;"

// files are those of user 7.
func files() map[string]*File {
	return map[string]*File{
		"file-pdf":    {Name: "a.pdf", Data: pdffile.Pages(pdffile.Lines("in a file"))},
		"file-text":   {Name: "a.txt", Data: []byte("\ufeffhello <b>")},
		"file-image":  {Name: "a.gif", Data: []byte(gif)},
		"file-scan":   {Name: "scan.pdf", Data: pdffile.Scan()},
		"file-binary": {Name: "a.bin", Data: []byte{0, 1, 2, 0xff}},
	}
}

func reader(read func(context.Context, []byte) (string, error)) *Reader {
	list := files()
	return New(Options{Read: read, File: func(owner uint32, id string) (*File, error) {
		if f := list[id]; f != nil && owner == 7 {
			return f, nil
		}
		return nil, &api.Error{Code: wire.ModelNotFound, Message: "File not found: " + id}
	}})
}

func TestRewrite(t *testing.T) {
	d := reader(program(t, Confined).Read)
	data := base64.StdEncoding.EncodeToString(pdffile.Pages(pdffile.Lines("sent along")))
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, c := range map[string]struct{ body, want string }{
		"Anthropic, stored": {`{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file",` +
			`"file_id":"file-pdf"},"cache_control":{"type":"ephemeral"}}]}]}`,
			`{"messages":[{"content":[{"cache_control":{"type":"ephemeral"},"source":{"data":"in a file",` +
				`"media_type":"text/plain","type":"text"},"title":"a.pdf","type":"document"}],"role":"user"}]}`},
		"Anthropic, text and image": {`{"messages":[{"content":[{"type":"document","title":"T","source":{` +
			`"type":"file",` +
			`"file_id":"file-text"}},{"type":"image","source":{"type":"file","file_id":"file-image"}}]}]}`,
			`{"messages":[{"content":[{"source":{"data":"hello <b>","media_type":"text/plain","type":"text"},` +
				`"title":"T",` +
				`"type":"document"},{"source":{"data":"` + b64(gif) + `","media_type":"image/gif","type":"base64"},` +
				`"type":"image"}]}]}`},
		"Anthropic, a result": {`{"messages":[{"content":[{"type":"tool_result","content":[{"type":"document",` +
			`"source":` +
			`{"type":"base64","media_type":"application/pdf","data":"` + data + `"}}]}]}]}`,
			`{"messages":[{"content":[{"content":[{"source":{"data":"sent along","media_type":"text/plain",` +
				`"type":"text"},"type":"document"}],"type":"tool_result"}]}]}`},
		"a call's argument is no document": {`{"messages": [{"content":[{"type":"tool_use","input":{` +
			`"type":"document",` +
			`"source":{"type":"file","file_id":"x"}}}]}]}`,
			`{"messages":[{"content":[{"type":"tool_use","input":{"type":"document","source":{"type":"file",` +
				`"file_id":"x"}}}]}]}`},
		"OpenAI, chat": {`{"model":"m","messages":[{"content":[{"type":"file","file":{"file_id":"file-text"}},{` +
			`"type":` +
			`"file","file":{"filename":"b.pdf","file_data":"data:application/pdf;base64,` + data + `"}}]}]}`,
			`{"messages":[{"content":[{"file":{"file_data":"data:text/plain;base64,` + b64("hello <b>") +
				`","filename":"a.txt"},"type":"file"},{"file":{"file_data":"data:text/plain;base64,` +
				`` + b64("sent along") +
				`","filename":"b.pdf"},"type":"file"}]}],"model":"m"}`},
		"OpenAI, responses": {`{"input":[{"role":"user","content":[{"type":"input_file","file_data":"` + data + `"},` +
			`{"type":"input_image","file_id":"file-image"}]},{"type":"function_call_output","output":[{` +
			`"type":"input_file",` +
			`"file_id":"file-pdf"}]}]}`,
			`{"input":[{"content":[{"file_data":"data:text/plain;base64,` + b64("sent along") + `",` +
				`"type":"input_file"},` +
				`{"image_url":"data:image/gif;base64,` + b64(gif) + `","type":"input_image"}],"role":"user"},{` +
				`"output":[{` +
				`"file_data":"data:text/plain;base64,` + b64("in a file") + `","filename":"a.pdf",` +
				`"type":"input_file"}],` +
				`"type":"function_call_output"}]}`},
		"Gemini": {`{"contents":[{"parts":[{"inline_data":{"mime_type":"application/pdf","data":"` + data + `"}}]}]}`,
			`{"contents":[{"parts":[{"inline_data":{"data":"` + b64("sent along") + `","mimeType":"text/plain"}}]}]}`},
		"no JSON":      {`{"messages":[`, `{"messages":[`},
		"nothing here": {`{ "messages" : "x", "input": 5}`, `{"input":5,"messages":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := d.Rewrite(t.Context(), 7, []byte(c.body))
			if err != nil || string(got) != c.want {
				t.Errorf("%s, %v;\nwant %s", got, err, c.want)
			}
		})
	}
}

func TestRewriteRefuses(t *testing.T) {
	d := reader(program(t, Confined).Read)
	block := func(kind, id string) string {
		return `{"messages":[{"content":[{"type":"` + kind + `","source":{"type":"file","file_id":"` + id + `"}}]}]}`
	}
	many := make([]string, MaxInBody+1)
	for i := range many {
		many[i] = `{"type":"input_file","file_id":"file-text"}`
	}
	const at = `field "messages[0].content[0].source.file_id": `
	for name, c := range map[string]struct {
		owner      uint32
		body, want string
		code       wire.Code
	}{
		"no file":      {7, block("document", "file-x"), at + "File not found: file-x", wire.ModelNotFound},
		"another user": {8, block("document", "file-pdf"), at + "File not found: file-pdf", wire.ModelNotFound},
		"an image": {7, block("document", "file-image"), at + `file "file-image" is an image (image/gif), and a ` +
			`document ` +
			`is expected here: name it in an image`, wire.BadRequest},
		"no image": {7, block("image", "file-pdf"), at + `file "file-pdf" is a PDF, and an image is expected ` +
			`here: name ` +
			`it in a document`, wire.BadRequest},
		"binary": {7, block("document", "file-binary"), at + `file "file-binary" (application/octet-stream) ` +
			`cannot be ` +
			`read: a document is PDF, or text in UTF-8`, wire.BadRequest},
		"a scan": {7, block("document", "file-scan"), "its 1 pages have no text", wire.BadRequest},
		"many": {7, `{"input":[` + strings.Join(many, ",") + `]}`, `field "input[64].file_id": a request has at ` +
			`most 64 ` +
			"documents", wire.BadRequest},
		"no base64": {7, `{"messages":[{"content":[{"type":"file","file":{` +
			`"file_data":"data:application/pdf;base64,%"}}` +
			`]}]}`, `field "messages[0].content[0].file.file_data" is not base64`, wire.BadRequest},
		"no PDF": {7, `{"contents":[{"parts":[{"inlineData":{"mimeType":"application/pdf","data":"aGk="}}]}]}`,
			`field "contents[0].parts[0].inlineData.data" is no PDF: it begins with "hi"`, wire.BadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Rewrite(t.Context(), c.owner, []byte(c.body))
			e, ok := err.(*api.Error)
			if !ok || e.Code != c.code || !strings.Contains(e.Message, c.want) {
				t.Errorf("%v; want %s %s", err, c.code, c.want)
			}
		})
	}
}

// A PDF is read once, and so is one that cannot be; an error that is not the file's is not kept.
func TestTextsAreKept(t *testing.T) {
	var asked []string
	d := reader(func(_ context.Context, data []byte) (string, error) {
		asked = append(asked, string(data))
		switch string(data) {
		case "bad":
			return "", api.Refuse("it is bad")
		case "later":
			return "", errors.New("no process")
		}
		return "text", nil
	})
	for range 2 {
		for _, data := range []string{"good", "bad", "later"} {
			_, _ = d.text(t.Context(), 7, []byte(data))
		}
	}
	_, _ = d.text(t.Context(), 8, []byte("good")) // another user's is read anew
	if want := []string{"good", "bad", "later", "later", "good"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	big := strings.Repeat("x", maxKept/2)
	d.Read = func(context.Context, []byte) (string, error) { return big, nil }
	for _, data := range []string{"1", "2", "3"} {
		if _, err := d.text(t.Context(), 7, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.texts) != len(d.order) || d.bytes > maxKept || len(d.texts) != 1 {
		t.Errorf("%d texts, %d bytes; the limit is %d", len(d.texts), d.bytes, maxKept)
	}
}

// Processes that hang, die or take all memory are errors, and the next one is not kept from running.
func TestProcessFails(t *testing.T) {
	for mode, want := range map[string]string{"hang": "takes longer than 200ms",
		"die": "the process that reads it has ended", "eat": "takes more than 1024 MiB of memory"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "eat" && race.Enabled {
				want = "the process that reads it has ended" // the race detector fails first, with another text
			}
			p := program(t, mode)
			if mode == "hang" {
				p.Limit = 200 * time.Millisecond
			}
			for range maxProcesses + 1 {
				_, err := p.Read(t.Context(), pdffile.Scan())
				if e, ok := err.(*api.Error); !ok || e.Code != wire.BadRequest || !strings.Contains(e.Message, want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("the client has left")
	cancel(left)
	if _, err := program(t, "hang").Read(ctx, nil); !errors.Is(err, left) {
		t.Errorf("%v; want %v", err, left)
	}
}

func TestAsks(t *testing.T) {
	for body, want := range map[string]bool{
		`{"source":{"file_id":"x"}}`:                          true,
		`{"media_type": "application/pdf"}`:                   true,
		`{"file_data":"data:application\/pdf;base64,JV"}`:     true,
		`{"file_data":"JVBERi0xLjQK"}`:                        true,
		`{"text":"{\"file_id\":\"x\"} application/pdf"}`:      false,
		`{"text":"curl -F type=\"application/pdf\" JVBERi0"}`: false,
	} {
		for path, reads := range map[string]bool{"/v1/messages": true, "/chat/completions": true, "/v1/files": false,
			"/v1beta/models/m:generateContent": true, "/v1/embeddings": false} {
			r := httptest.NewRequest(http.MethodPost, path, nil)
			if got := Asks(r, []byte(body)); got != (want && reads) {
				t.Errorf("%s %s: %v", path, body, got)
			}
			r.Header.Set(Header, "1")
			if Asks(r, []byte(body)) {
				t.Errorf("%s of the front itself: true", path)
			}
		}
	}
}

// FuzzRewrite: a body that is JSON stays JSON, whatever its documents are.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"file-text"}}]}]}`))
	f.Add([]byte(`{"input":[{"type":"input_file","file_data":"JVBERi0="},null,[[]]],"contents":{"parts":{}}}`))
	f.Add([]byte(`{"messages":[{"content":[{"type":"file","file":{"file_id":"file-image"}}]}],"input":null}`))
	d := reader(func(_ context.Context, data []byte) (string, error) {
		text, _, err := pdf.Text(data)
		return text, err
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := d.Rewrite(t.Context(), 7, body)
		if err == nil && json.Valid(body) && !json.Valid(out) {
			t.Errorf("%q became %q", body, out)
		}
	})
}
