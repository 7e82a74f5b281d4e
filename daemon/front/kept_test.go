package front

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestBatchOfAFile: a file of requests becomes a batch, whose requests the processes of their models answer.
func TestBatchOfAFile(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	line := func(id, model string) string {
		return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":%q,`+
			`"max_tokens":8,"messages":[{"role":"user","content":"whoami"}]}}`+"\n", id, model)
	}
	const boundary = "xx"
	form := "--xx\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--xx\r\n" +
		"Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" +
		line("a", "one") + line("b", "two") + line("c", "none") +
		"\r\n--xx--\r\n"
	web := over(t, r.socket())
	ask := func(method, path, body string, headers ...string) map[string]any {
		t.Helper()
		req, err := http.NewRequest(method, "http://uma"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s, %v", method, path, resp.Status, text, err)
		}
		out := map[string]any{"text": string(text)}
		_ = json.Unmarshal(text, &out) // a file of lines is none
		return out
	}
	f := ask("POST", "/v1/files", form, "Content-Type: multipart/form-data; boundary="+boundary)
	b := ask("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions",`+
		`"completion_window":"24h"}`, f["id"]))
	waitfor.True(t, "the end of the batch", func() bool {
		b = ask("GET", fmt.Sprintf("/v1/batches/%v", b["id"]), "")
		return b["status"] != "in_progress"
	})
	good := fmt.Sprint(ask("GET", fmt.Sprintf("/v1/files/%v/content", b["output_file_id"]), "")["text"])
	wrong := fmt.Sprint(ask("GET", fmt.Sprintf("/v1/files/%v/content", b["error_file_id"]), "")["text"])
	if b["status"] != "completed" || !strings.Contains(good, "I am one") || !strings.Contains(good, "I am two") ||
		strings.Count(good, "\n") != 2 || !strings.Contains(wrong, `"custom_id":"c"`) {
		t.Errorf("%v\n%s\n%s", b, good, wrong)
	}
	m := ask("POST", "/v1/messages/batches", `{"requests":[{"custom_id":"m","params":{"model":"two","max_tokens":8,`+
		`"messages":[{"role":"user","content":"whoami"}]}}]}`, "Anthropic-Version: 2023-06-01")
	path := fmt.Sprintf("/v1/messages/batches/%v", m["id"])
	waitfor.True(t, "the end of the batch", func() bool { return ask("GET", path, "")["processing_status"] == "ended" })
	if text := fmt.Sprint(ask("GET", path+"/results", "")["text"]); !strings.Contains(text, "I am two") ||
		!strings.Contains(text, "succeeded") {
		t.Errorf("%s", text)
	}
}
