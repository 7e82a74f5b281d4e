package daemon

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestEveryPathIsSorted: a front answers each path itself, or has the model loaded for it, or tells what the model's
// file does. A new path must be put among them.
func TestEveryPathIsSorted(t *testing.T) {
	facts := []string{"GET /props", "GET /slots", "GET /lora-adapters", "POST /props", "POST /lora-adapters"}
	for _, path := range []string{"/version", "/server_info", "/get_server_info", "/model_info", "/get_model_info",
		"/v1/loads", "/get_loads", "/get_load", "/loads", "/load", "/kv_event_sources"} {
		facts = append(facts, "GET "+path)
	}
	r := serve(t, fake.Config{})
	for _, route := range r.in.Web.Routes(web{r.Server, r.about}, r.live) {
		path := strings.NewReplacer("{$}", "", "{id...}", "x:generateContent", "{id}", "1", "{file}", "x").
			Replace(route.Path)
		front, needs := httpd.FrontServes(route.Method, &url.URL{Path: path}), httpd.NeedsModel(route.Method, path)
		fact := slices.Contains(facts, route.Method+" "+route.Path)
		// A stored response is asked from the model that a query names, if it names one.
		if n := count(front, needs, fact); n != 1 && !strings.Contains(path, "/responses/") {
			t.Errorf("%s %s: the front %v, needs the model %v, a fact %v", route.Method, route.Path, front, needs, fact)
		}
	}
}

func count(of ...bool) (n int) {
	for _, b := range of {
		if b {
			n++
		}
	}
	return n
}

// TestFactsOfAFileAreThoseOfTheModel: the facts that a front reports from a model's file equal those that its process
// reports once it is loaded.
func TestFactsOfAFileAreThoseOfTheModel(t *testing.T) {
	path := ggufgen.Cached(t, ggufgen.TinyWide())
	c, err := load(t, []string{"-m", path, "-c", "512", "--parallel", "3", "--max-tokens", "7", "--pooling", "mean"},
		[]string{"UMA_CONFIG="})
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.FileFacts(c, path)
	if err != nil {
		t.Fatal(err)
	}
	m := &got.Model
	if !got.Asleep || got.Context != 512 || got.Parallel != 3 || got.MaxTokens != 7 || got.Template == "" ||
		!m.ChatTemplate || !m.Thinks || got.EOS != "<|im_end|>" || got.FileType() != "Q8_0" || got.File.Bytes == 0 ||
		len(got.File.Digest) != 64 || got.File.Modified.IsZero() || m.Name != "ggufgen-tiny-wide" ||
		m.Architecture != "llama" || m.Layers != 8 || m.Heads != 4 || m.KVHeads != 2 || m.VocabSize != 512 ||
		m.TrainContext != 4096 || m.Parameters == 0 || m.Bytes == 0 || m.KVBytesPerToken == 0 || m.Embeddings == nil ||
		got.Infill != nil {
		t.Errorf("%+v", got)
	}
	if _, err := report.FileFacts(c, path+".none"); err == nil {
		t.Error("a file that is not there")
	}
}

// TestQuestionsWaitForTheModel: what needs the model waits until it is loaded, as requests do, and is refused where
// those are.
func TestQuestionsWaitForTheModel(t *testing.T) {
	questions := map[string]string{
		"/tokenize": `{"content":"x","model":"any"}`, "/detokenize": `{"tokens":[40],"model":"any"}`,
		"/apply-template":                   `{"messages":[{"role":"user","content":"x"}]}`,
		"/v1/chat/completions/input_tokens": `{"messages":[{"role":"user","content":"x"}]}`,
		"/v1/messages/count_tokens":         `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		"/infill":                           `{"input_prefix":"a","input_suffix":"b","n_predict":1,"stream":false}`,
		"/api/generate":                     `{"model":"m"}`,
	}
	r := serveLoading(t, nil)
	web := r.web()
	type reply struct {
		path   string
		status int
		body   string
	}
	replies := make(chan reply, len(questions))
	for path, body := range questions {
		go func() {
			status, _, text := post(t, web, path, body)
			replies <- reply{path, status, string(text)}
		}()
	}
	waitfor.True(t, "all questions have come", func() bool {
		return int(r.poller.Stats().HTTP.Load()) == len(questions)
	})
	if len(replies) > 0 {
		t.Errorf("answered without the model: %+v", <-replies)
	}
	r.load(nil)
	for range questions {
		got := waitfor.Recv(t, "an answer", replies)
		want := http.StatusOK
		if got.path == "/infill" { // this model cannot fill in the middle
			want = http.StatusNotImplemented
		}
		if got.status != want {
			t.Errorf("%s: %d %s", got.path, got.status, got.body)
		}
	}
	web.CloseIdleConnections()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}
