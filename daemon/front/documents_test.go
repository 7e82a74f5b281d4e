package front

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/model/pdf/pdffile"
)

// posted sends a request and returns its status and its body.
func posted(t *testing.T, web *http.Client, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://uma"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// deltas are the texts of a stream of Anthropic's.
var deltas = regexp.MustCompile(`"text_delta","text":"([^"]*)"`)

// uploaded stores a file and returns its id.
func uploaded(t *testing.T, web *http.Client, name string, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	if err := form.WriteField("purpose", "user_data"); err != nil {
		t.Fatal(err)
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		t.Fatal(err)
	}
	part.Write(data)
	form.Close()
	status, text := posted(t, web, "/v1/files", b.String(), "Content-Type: "+form.FormDataContentType())
	var f struct{ ID string }
	if err := json.Unmarshal([]byte(text), &f); err != nil || f.ID == "" {
		t.Fatalf("%d %s", status, text)
	}
	return f.ID
}

// getBody returns the body of an answer to GET.
func getBody(t *testing.T, web *http.Client, path string) string {
	t.Helper()
	resp, err := web.Get("http://uma" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDocuments: requests that name a stored file, or bring a PDF, reach the process of their model as text, whichever
// API they are of, and whichever process their connection is in. The model answers "whoami" alone.
func TestDocuments(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	web := over(t, r.socket())
	asks := pdffile.Pages(pdffile.Lines("whoami"))
	stored, scan := uploaded(t, web, "a.pdf", asks), uploaded(t, web, "scan.pdf", pdffile.Scan())
	text := uploaded(t, web, "a.txt", []byte("whoami"))
	data := base64.StdEncoding.EncodeToString(asks)
	anthropic := func(source string) string {
		return `{"model":"two","max_tokens":8,"messages":[{"role":"user","content":[{"type":"document",` +
			`"source":` + source +
			`}]}]}`
	}
	source := func(id string) string { return fmt.Sprintf(`{"type":"file","file_id":%q}`, id) }
	const version = "Anthropic-Version: 2023-06-01"
	for name, c := range map[string]struct {
		path, body string
		status     int
		want       string
	}{
		"anthropic, PDF":  {"/v1/messages", anthropic(source(stored)), 200, "I am two"},
		"anthropic, text": {"/v1/messages", anthropic(source(text)), 200, "I am two"},
		"anthropic, inline": {"/v1/messages?beta=true", anthropic(`{"type":"base64",` +
			`"media_type":"application/pdf","data":"` +
			data + `"}`), 200, "I am two"},
		"anthropic, none": {"/v1/messages", anthropic(source("file-0123456789abcdef01234567")), 404,
			`"type":"not_found_error","message":"field \"messages[0].content[0].source.file_id\": File not ` +
				`found: file-0`},
		"anthropic, scan": {"/v1/messages", anthropic(source(scan)), 400, "its 1 pages have no text"},
		"count": {"/v1/messages/count_tokens", strings.Replace(anthropic(source(stored)), `"max_tokens":8,`+
			``, "", 1), 200,
			`{"input_tokens":`},
		"chat": {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":` +
			`"data:application/pdf;base64,` + data + `"}}]}],"model":"one","max_tokens":8}`, 200, "I am one"},
		"chat, no model": {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"file",` +
			`"file":{"file_id":"` + stored + `"}}]}],"model":"three"}`, 404, "three"},
		"responses": {"/v1/responses", `{"model":"one","max_output_tokens":8,"input":[{"role":"user","content":[` +
			`{"type":"input_file","file_id":"` + stored + `"}]}]}`, 200, "I am one"},
		"gemini": {"/v1beta/models/two:generateContent", `{"contents":[{"role":"user","parts":[{"inlineData":{` +
			`"mimeType":"application/pdf","data":"` + data + `"}}]}]}`, 200, "I am two"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if strings.HasPrefix(c.path, "/v1/messages") {
				headers = []string{version}
			}
			// twice: the second request comes on a connection that the first one's process may have
			for range 2 {
				status, got := posted(t, web, c.path, c.body, headers...)
				if status != c.status || !strings.Contains(got, c.want) {
					t.Errorf("%d %s; want %d %s", status, got, c.status, c.want)
				}
			}
			status, got := posted(t, web, "/v1/chat/completions",
				`{"model":"one","max_tokens":8,"messages":[{"role":"user","content":"whoami"}]}`)
			if status != 200 || !strings.Contains(got, "I am one") {
				t.Errorf("the request behind it: %d %s", status, got)
			}
		})
	}
	t.Run("text", func(t *testing.T) {
		for _, id := range []string{stored, text} {
			if got := getBody(t, web, "/v1/files/"+id+"/text"); strings.TrimSpace(got) != `{"text":"whoami"}` {
				t.Errorf("the text of a file: %s", got)
			}
		}
		for id, want := range map[string]string{scan: "its 1 pages have no text",
			"file-0123456789abcdef01234567": "File not found"} {
			if got := getBody(t, web, "/v1/files/"+id+"/text"); !strings.Contains(got, want) {
				t.Errorf("%s: %s; want %s", id, got, want)
			}
		}
	})
	t.Run("stream", func(t *testing.T) {
		body := strings.Replace(anthropic(source(stored)), `"max_tokens":8`, `"max_tokens":8,"stream":true`, 1)
		status, got := posted(t, web, "/v1/messages", body, version)
		text := ""
		for _, part := range deltas.FindAllStringSubmatch(got, -1) {
			text += part[1]
		}
		if status != 200 || !strings.Contains(got, "event: message_stop") || text != "I am two" {
			t.Errorf("%d %s", status, got)
		}
	})
	t.Run("batch", func(t *testing.T) {
		_, got := posted(t, web, "/v1/messages/batches", `{"requests":[{"custom_id":"good","params":`+
			anthropic(source(stored))+`},{"custom_id":"bad","params":`+anthropic(source(scan))+`}]}`, version)
		var b struct{ ID string }
		if err := json.Unmarshal([]byte(got), &b); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		get := func(path string) string {
			resp, err := web.Get("http://uma/v1/messages/batches/" + b.ID + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		waitfor.True(t, "the end of the batch", func() bool { return strings.Contains(get(""), `"ended"`) })
		if text := get("/results"); !strings.Contains(text, "I am two") || !strings.Contains(text, "have no text") {
			t.Error(text)
		}
	})
}

// TestDocumentBehindTheHead: the front passes a connection when it has read the model's name, and the process of the
// model gives it back when the document comes.
func TestDocumentBehindTheHead(t *testing.T) {
	r := start(t, Options{}, []string{"one"}, nil)
	data := base64.StdEncoding.EncodeToString(pdffile.Pages(pdffile.Lines("whoami")))
	body := `{"model":"one","max_tokens":8,"messages":[{"role":"user","content":[{"type":"file",` +
		`"file":{"filename":"","file_data":"data:application/pdf;base64,` + data + `"}}]}]}`
	c, err := net.Dial("unix", r.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n", len(body))
	const first = 40 // of the body, with the model's name
	if _, err := io.WriteString(c, head+body[:first]); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the connection in the model's process", func() bool { return r.passed() == 1 })
	if _, err := io.WriteString(c, body[first:]); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(got), "I am one") {
		t.Errorf("%s, %v", got, err)
	}
}
