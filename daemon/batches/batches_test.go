package batches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/daemon/files"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// world is a Runner with a model behind it.
type world struct {
	t     *testing.T
	dir   string
	files *files.Store
	r     *Runner
	h     http.Handler
	ask   Ask
	asked atomic.Int64
	full  atomic.Pointer[wire.RequestError] // why no results can be kept
}

// reply is an answer of the model.
func reply(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// echo answers with the body, and with 400 where it has "bad".
func echo(_ context.Context, _ uint32, _ string, _ http.Header, body []byte) (*http.Response, error) {
	if bytes.Contains(body, []byte("bad")) {
		return reply(http.StatusBadRequest, `{"error":{"message":"it is bad"}}`), nil
	}
	return reply(http.StatusOK, `{"echo":`+string(body)+`}`), nil
}

func newWorld(t *testing.T, ask Ask) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), ask: ask}
	var err error
	if w.files, err = files.Open(filepath.Join(w.dir, "files"), time.Now); err != nil {
		t.Fatal(err)
	}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.r, err = Open(Options{Dir: filepath.Join(w.dir, "batches"), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Ask: func(ctx context.Context, owner uint32, path string, h http.Header, body []byte) (*http.Response, error) {
			w.asked.Add(1)
			if h.Get("X-Uma-Priority") != "background" || owner != 1 {
				w.t.Errorf("owner %d, %v", owner, h)
			}
			return w.ask(ctx, owner, path, h, body)
		},
		Keep: func(owner uint32, name string, r io.Reader) (string, error) {
			if err := w.full.Load(); err != nil {
				return "", err
			}
			f, err := w.files.Create(owner, files.File{Name: name, Purpose: files.Results}, r)
			return f.ID, err
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	a := &API{Runner: w.r, Files: w.files, Owner: func(*http.Request) uint32 { return 1 },
		Fail: func(out http.ResponseWriter, _ *http.Request, e *wire.Error) {
			out.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(out).Encode(map[string]string{"error": e.Message})
		}}
	mux := http.NewServeMux()
	for _, r := range a.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, r.Handle)
	}
	w.h = mux
}

func (w *world) do(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	out := map[string]any{}
	if json.Unmarshal(rec.Body.Bytes(), &out) != nil {
		out["text"] = rec.Body.String()
	}
	return rec.Code, out
}

// batch begins a batch of OpenAI's with these bodies.
func (w *world) batch(bodies ...string) map[string]any {
	w.t.Helper()
	var text strings.Builder
	for i, b := range bodies {
		fmt.Fprintf(&text, "{\"custom_id\":\"r%d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":%s}\n",
			i, b)
	}
	_, out := w.do("POST", Path, w.input(text.String()))
	return out
}

// input keeps a file of requests and returns the body that begins a batch of it.
func (w *world) input(text string) string {
	w.t.Helper()
	f, err := w.files.Create(1, files.File{Name: "in.jsonl", Purpose: "batch"}, strings.NewReader(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h",`+
		`"metadata":{"a":"b"}}`, f.ID)
}

// file returns the text of a file by a field of a batch.
func (w *world) file(b map[string]any, field string) string {
	w.t.Helper()
	id, _ := b[field].(string)
	_, f, err := w.files.Read(1, id)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	return string(text)
}

func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, echo)
		defer w.r.Close()
		b := w.batch(`{"x":1}`, `{"bad":1}`, `{"x":2}`)
		id, _ := b["id"].(string)
		if b["status"] != "in_progress" || b["object"] != "batch" {
			t.Fatalf("%v", b)
		}
		synctest.Wait()
		_, b = w.do("GET", Path+"/"+id, "")
		if c := b["request_counts"].(map[string]any); b["status"] != "completed" || c["total"] != 3.0 ||
			c["completed"] != 2.0 || c["failed"] != 1.0 || b["completed_at"] == nil {
			t.Fatalf("%v", b)
		}
		good, wrong := w.file(b, "output_file_id"), w.file(b, "error_file_id")
		if strings.Count(good, "\n") != 2 || !strings.Contains(good, `"body":{"echo":{"x":2}}`) ||
			!strings.Contains(good, `"custom_id":"r0"`) || !strings.Contains(good, `"status_code":200`) {
			t.Errorf("output: %s", good)
		}
		if strings.Count(wrong, "\n") != 1 || !strings.Contains(wrong, `"status_code":400`) ||
			!strings.Contains(wrong, "it is bad") {
			t.Errorf("errors: %s", wrong)
		}
		if _, list := w.do("GET", Path, ""); len(list["data"].([]any)) != 1 {
			t.Errorf("%v", list)
		}
		if status, _ := w.do("GET", AnthropicPath+"/"+id, ""); status != 400 {
			t.Error("Anthropic's API has a batch of OpenAI's")
		}
	})
}

func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, echo)
		defer w.r.Close()
		_, b := w.do("POST", AnthropicPath, `{"requests":[{"custom_id":"a","params":{"x":1}},`+
			`{"custom_id":"b","params":{"bad":2}}]}`)
		id, _ := b["id"].(string)
		if b["processing_status"] != "in_progress" || !strings.HasPrefix(id, "msgbatch_") {
			t.Fatalf("%v", b)
		}
		synctest.Wait()
		_, b = w.do("GET", AnthropicPath+"/"+id, "")
		if b["processing_status"] != "ended" ||
			b["results_url"] != "http://example.com"+AnthropicPath+"/"+id+"/results" {
			t.Fatalf("%v", b)
		}
		_, results := w.do("GET", AnthropicPath+"/"+id+"/results", "")
		text := fmt.Sprint(results["text"])
		if strings.Count(text, "\n") != 2 ||
			!strings.Contains(text, `{"message":{"echo":{"x":1}},"type":"succeeded"}`) ||
			!strings.Contains(text, `"type":"errored"`) {
			t.Errorf("%s", text)
		}
		if status, got := w.do("DELETE", AnthropicPath+"/"+id, ""); status != 200 ||
			got["type"] != "message_batch_deleted" {
			t.Errorf("%d %v", status, got)
		}
		if status, _ := w.do("GET", AnthropicPath+"/"+id, ""); status != 400 {
			t.Error("it is not deleted")
		}
		for body, want := range map[string]string{`[]`: "requests", `{"requests":[]}`: "no requests",
			`{"requests":[{"params":{}}]}`:                                               "custom_id",
			`{"requests":[{"custom_id":"a","params":5}]}`:                                "must be an object",
			`{"requests":[{"custom_id":"a","params":{"stream":true}}]}`:                  "stream",
			`{"requests":[{"custom_id":"a"`:                                              "no list",
			`{"requests":[{"custom_id":"a","params":{}}`:                                 "whole",
			`{"requests":[{"custom_id":"a","params":{}}]`:                                "whole",
			`{"requests":[{"custom_id":"a","params":{}},{"custom_id":"a","params":{}}]}`: "another request"} {
			status, got := w.do("POST", AnthropicPath, body)
			if status != 400 || !strings.Contains(fmt.Sprint(got), want) {
				t.Errorf("%s: %d %v, want %q", body, status, got, want)
			}
		}
	})
}

// TestWrongLines: a file that is no list of requests ends its batch as a failed one, with the line and the reason.
func TestWrongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, echo)
		defer w.r.Close()
		line := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}` + "\n"
		for text, want := range map[string]string{"": "no requests", "nonsense\n": "no JSON",
			line + line:                             "another request",
			strings.Replace(line, "POST", "GET", 1): `must be "POST"`,
			strings.Replace(line, "chat/completions", "embeddings", 1): "endpoint",
			strings.Replace(line, "{}}", "[]}", 1):                     "must be an object",
			strings.Replace(line, "{}}", `{"stream":true}}`, 1):        "a stream",
			strings.Replace(line, `"a"`, `""`, 1):                      "custom_id must",
			line + strings.Replace(line, `"a"`, `"b"`, 1) + "\nhalf {": "no JSON"} {
			_, b := w.do("POST", Path, w.input(text))
			if b["status"] != "failed" || !strings.Contains(fmt.Sprint(b["errors"]), want) {
				t.Errorf("%q: %v, want %q", text, b, want)
			}
		}
		for body, want := range map[string]string{"{": "JSON", "{}": "endpoint",
			`{"endpoint":"/v1/embeddings"}`:                           "completion_window",
			`{"endpoint":"/v1/embeddings","completion_window":"24h"}`: "input_file_id"} {
			if status, got := w.do("POST", Path, body); status != 400 || !strings.Contains(fmt.Sprint(got), want) {
				t.Errorf("%s: %d %v", body, status, got)
			}
		}
		if w.asked.Load() != 0 {
			t.Error("requests of failed batches ran")
		}
	})
}

// TestAgain: a server that is busy, or loads the model, is asked again.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var mu sync.Mutex
		w := newWorld(t, func(ctx context.Context, o uint32, p string, h http.Header, body []byte) (*http.Response,
			error) {
			mu.Lock()
			defer mu.Unlock()
			switch n++; n {
			case 1:
				return reply(http.StatusTooManyRequests, "{}", "Retry-After", "7"), nil
			case 2:
				return nil, errors.New("no process")
			case 3:
				return reply(http.StatusServiceUnavailable, "{}"), nil
			}
			return echo(ctx, o, p, h, body)
		})
		defer w.r.Close()
		begun := time.Now()
		b := w.batch(`{"x":1}`)
		for b["status"] == "in_progress" {
			time.Sleep(time.Second)
			_, b = w.do("GET", Path+"/"+b["id"].(string), "")
		}
		if b["status"] != "completed" || w.asked.Load() != 4 || time.Since(begun) < 7*time.Second {
			t.Errorf("%v after %d requests and %v", b["status"], w.asked.Load(), time.Since(begun))
		}
	})
}

// hang answers nothing until its client leaves.
func hang(ctx context.Context, _ uint32, _ string, _ http.Header, _ []byte) (*http.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCancelAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hang)
		defer w.r.Close()
		var bodies []string
		for range 3 * Slots {
			bodies = append(bodies, "{}")
		}
		b := w.batch(bodies...)
		synctest.Wait()
		if n := w.asked.Load(); n != Slots {
			t.Errorf("%d requests run at a time", n)
		}
		path := Path + "/" + b["id"].(string)
		if _, got := w.do("POST", path+"/cancel", ""); got["status"] != "cancelling" {
			t.Errorf("%v", got)
		}
		synctest.Wait()
		_, b = w.do("GET", path, "")
		if b["status"] != "cancelled" || strings.Count(w.file(b, "error_file_id"), "batch_cancelled") != 3*Slots {
			t.Errorf("%v", b)
		}
		b = w.batch("{}", "{}")
		time.Sleep(Window + time.Minute)
		synctest.Wait()
		_, b = w.do("GET", Path+"/"+b["id"].(string), "")
		if b["status"] != "expired" || strings.Count(w.file(b, "error_file_id"), "batch_expired") != 2 {
			t.Errorf("%v", b)
		}
	})
}

// TestRestart: a batch goes on where it was; what was answered is not asked again, and a result that was cut is.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stop atomic.Bool
		w := newWorld(t, func(ctx context.Context, o uint32, p string, h http.Header, body []byte) (*http.Response,
			error) {
			if stop.Load() && !bytes.Contains(body, []byte("first")) {
				return hang(ctx, o, p, h, body)
			}
			return echo(ctx, o, p, h, body)
		})
		stop.Store(true)
		b := w.batch(`{"first":1}`, `{"x":2}`, `{"x":3}`)
		id := b["id"].(string)
		synctest.Wait()
		w.r.Close()
		results := w.r.path(id, "results")
		f, err := os.OpenFile(results, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(`{"custom_id":"r1","sta`)
		f.Close()
		stop.Store(false)
		w.asked.Store(0)
		w.open()
		defer w.r.Close()
		synctest.Wait()
		_, b = w.do("GET", Path+"/"+id, "")
		if out := w.file(b, "output_file_id"); b["status"] != "completed" || w.asked.Load() != 2 ||
			strings.Count(out, "\n") != 3 {
			t.Errorf("%v after %d requests: %s", b["status"], w.asked.Load(), out)
		}
		if left, _ := filepath.Glob(filepath.Join(w.dir, "batches", "*")); len(left) != 1 { // the state
			t.Errorf("%q", left)
		}
	})
}

func FuzzRequests(f *testing.F) {
	f.Add("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}\n")
	f.Add("{}\nnull\n[]\n")
	f.Fuzz(func(t *testing.T, text string) {
		next := requestsOf(strings.NewReader(text), "/v1/embeddings")
		for range 100 {
			q, err := next()
			if err != nil {
				return
			}
			var of map[string]any
			if json.Unmarshal(q.Body, &of) != nil || of == nil {
				t.Fatalf("%q has the body %q", text, q.Body)
			}
		}
	})
}
