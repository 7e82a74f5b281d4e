package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/bench/workload"
)

// fake implements the protocols of the HTTP targets, with the fields that the servers send: llama-server's
// (tools/server/server-task.cpp of llama.cpp, late 2025), ollama's (api/types.go and server/routes.go, 0.17), and
// OpenAI's as vLLM and others have it.
type fake struct {
	play func(token func(thinking bool, n int)) // when to write which token

	think string // field of a thought in OpenAI's deltas, "" = reasoning_content, "tags" = in the text
	crlf  bool
	piece int   // > 0: every write is cut into pieces of so many bytes
	once  bool  // everything in one write
	fail  error // sent instead of token failAt
	at    int
	drop  bool // the connection breaks off there
}

func (f *fake) start(t *testing.T) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// answer is a response that is being written.
type answer struct {
	*fake
	w    http.ResponseWriter
	held strings.Builder
}

func (a *answer) write(text string) {
	if a.crlf {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if a.once {
		a.held.WriteString(text)
		return
	}
	a.flush(text)
}

func (a *answer) flush(text string) {
	for size := a.piece; size > 0 && len(text) > size; text = text[size:] {
		io.WriteString(a.w, text[:size])
		a.w.(http.Flusher).Flush()
	}
	io.WriteString(a.w, text)
	a.w.(http.Flusher).Flush()
}

// event is one of server-sent events.
func (a *answer) event(format string, args ...any) {
	a.write("data: " + fmt.Sprintf(format, args...) + "\n\n")
}

const prompts, cached = 9, 3 // tokens

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Stream   bool
		Model    string
		Messages []workload.Message
		Prompt   *string
		Options  *struct {
			NumPredict int `json:"num_predict"`
		}
		MaxTokens int `json:"max_tokens"`
		NPredict  int `json:"n_predict"`
		Usage     struct {
			Include bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || !q.Stream {
		http.Error(w, `{"error":{"code":400,"message":"bad body","type":"invalid_request_error"}}`, 400)
		return
	}
	a := &answer{fake: f, w: w}
	defer func() { a.flush(a.held.String()) }()
	ended := false // by an error
	play := func(token func(thinking bool, n int), failed func(message string)) {
		f.play(func(thinking bool, n int) {
			switch {
			case ended:
			case f.at == n && f.drop:
				panic(http.ErrAbortHandler)
			case f.at == n && f.fail != nil:
				ended = true
				failed(f.fail.Error())
			default:
				token(thinking, n)
			}
		})
	}
	tokens := fmt.Sprintf(`"completion_tokens":%d,"prompt_tokens":%d,"total_tokens":%d`, thinks+speaks, prompts,
		thinks+speaks+prompts)
	timings := fmt.Sprintf(`{"cache_n":%d,"prompt_n":%d,"prompt_ms":60.1,"prompt_per_token_ms":10.0,`+
		`"prompt_per_second":99.8,"predicted_n":%d,"predicted_ms":300.5,"predicted_per_token_ms":18.8,`+
		`"predicted_per_second":53.2}`,
		cached, prompts-cached, thinks+speaks)
	oaiError := func(message string) { a.event(`{"error":{"code":500,"message":%q,"type":"server_error"}}`, message) }
	head := `"created":1763740000,"id":"chatcmpl-JcRn3","model":"m.gguf","system_fingerprint":"b7100-ec98e200",` +
		`"object":"chat.completion.chunk"`
	delta := func(delta, reason string) {
		a.event(`{"choices":[{"finish_reason":%s,"index":0,"delta":%s}],%s}`, reason, delta, head)
	}

	switch {
	case r.URL.Path == "/v1/chat/completions" && len(q.Messages) > 0 && q.MaxTokens > 0:
		w.Header().Set("Content-Type", "text/event-stream")
		a.write(": ping\n\n") // a proxy's
		delta(`{"role":"assistant","content":null}`, "null")
		last := false
		play(func(thinking bool, n int) {
			switch {
			case !thinking || f.think == "tags":
				if f.think == "tags" && n == 0 {
					delta(`{"content":"<think>"}`, "null")
				}
				if f.think == "tags" && last && !thinking {
					delta(`{"content":"</think>"}`, "null")
				}
				delta(`{"content":"w "}`, "null")
			case f.think != "":
				delta(fmt.Sprintf(`{%q:"w "}`, f.think), "null")
			default:
				delta(`{"reasoning_content":"w "}`, "null")
			}
			last = thinking
		}, oaiError)
		if ended {
			return
		}
		delta(`{}`, `"stop"`)
		if q.Usage.Include {
			a.event(`{"choices":[],%s,"usage":{%s,"prompt_tokens_details":{"cached_tokens":%d}},"timings":%s}`, head,
				tokens, cached, timings)
		}
		a.event("[DONE]")
	case r.URL.Path == "/v1/completions" && q.Prompt != nil:
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		play(func(_ bool, n int) {
			a.event(`{"id":"cmpl-1","object":"text_completion","created":1763740000,"model":"m",` +
				`"choices":[{"index":0,"text":"w ","logprobs":null,"finish_reason":null,"stop_reason":null}],` +
				`"usage":null}`)
		}, func(message string) {
			a.event(`{"object":"error","message":%q,"type":"InternalServerError","param":null,"code":500}`, message)
		})
		if ended {
			return
		}
		a.event(`{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],`+
			`"object":"text_completion","usage":{%s,"prompt_tokens_details":{"cached_tokens":%d}},"id":"cmpl-1"}`,
			tokens, cached)
		a.event("[DONE]")
	case r.URL.Path == "/completion" && q.Prompt != nil && q.NPredict > 0:
		w.Header().Set("Content-Type", "text/event-stream")
		play(func(_ bool, n int) {
			a.event(`{"index":0,"content":"w ","tokens":[%d],"stop":false,"id_slot":-1,"tokens_predicted":%d,`+
				`"tokens_evaluated":%d}`, 100+n, n+1, prompts)
		}, func(message string) {
			a.write(fmt.Sprintf("error: {\"code\":500,\"message\":%q,\"type\":\"server_error\"}\n\n", message))
		})
		if !ended { // no [DONE] here
			a.event(`{"index":0,"content":"","tokens":[],"id_slot":0,"stop":true,"model":"m.gguf",`+
				`"tokens_predicted":%d,"tokens_evaluated":%d,"generation_settings":{"seed":1,"stop":[]},"prompt":"go `+
				`on","has_new_line":false,"truncated":false,"stop_type":"eos","stopping_word":"","tokens_cached":24,`+
				`"timings":%s}`,
				thinks+speaks, prompts, timings)
		}
	case (r.URL.Path == "/api/chat" && len(q.Messages) > 0 || r.URL.Path == "/api/generate" && q.Prompt != nil) &&
		q.Options != nil && q.Options.NumPredict > 0 && q.Model != "":
		w.Header().Set("Content-Type", "application/x-ndjson")
		line := func(text, thinking, rest string) {
			more := ""
			if thinking != "" {
				more = fmt.Sprintf(`,"thinking":%q`, thinking)
			}
			if r.URL.Path == "/api/chat" {
				a.write(fmt.Sprintf(`{"model":%q,"created_at":"2026-11-21T17:00:00.123456789Z",`+
					`"message":{"role":"assistant","content":%q%s},%s}`+"\n", q.Model, text, more, rest))
			} else {
				a.write(fmt.Sprintf(`{"model":%q,"created_at":"2026-11-21T17:00:00.123456789Z","response":%q%s,%s}`+
					"\n", q.Model, text, more, rest))
			}
		}
		play(func(thinking bool, _ int) {
			if thinking {
				line("", "w ", `"done":false`)
			} else {
				line("w ", "", `"done":false`)
			}
		}, func(message string) { a.write(fmt.Sprintf("{\"error\":%q}\n", message)) })
		if !ended {
			line("", "", fmt.Sprintf(`"done":true,"done_reason":"stop","total_duration":391064000,`+
				`"load_duration":20000000,"prompt_eval_count":%d,"prompt_eval_duration":60000000,"eval_count":%d,`+
				`"eval_duration":300000000`, prompts, thinks+speaks))
		}
	case q.Model == "missing":
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(404)
		io.WriteString(w, `{"error":"model 'missing' not found"}`)
	default:
		http.NotFound(w, r)
	}
}

// TestWire: the parsed answer does not depend on how its bytes were split or on line ends, and errors of every protocol
// have the server's text.
func TestWire(t *testing.T) {
	failure := fmt.Errorf("the KV cache is full")
	protocols := []struct {
		target, think string
		raw, apart    bool // apart: thoughts are told from answers
	}{{"openai", "", false, true}, {"openai", "reasoning", false, true}, {"openai", "tags", false, true},
		{"openai", "", true, false},
		{"llama-server", "", false, true}, {"llama-server", "", true, false}, {"ollama", "", false, true},
		{"ollama", "", true, true}}
	for _, p := range protocols {
		for name, f := range map[string]*fake{"whole": {}, "CRLF": {crlf: true}, "bytes": {piece: 1},
			"pieces": {piece: 7, crlf: true}, "one write": {once: true},
			"fails": {fail: failure, at: 6}, "fails at once": {fail: failure, crlf: true},
			"breaks off": {drop: true, at: 9}} {
			t.Run(fmt.Sprint(p.target, " ", p.think, " raw ", p.raw, " ", name), func(t *testing.T) {
				f.play, f.think = atOnce, p.think
				q := workload.Request{Kind: workload.Reasoning, Measured: true, After: -1, Think: thinks,
					Output: speaks, Answer: strings.TrimSpace(strings.Repeat("w ", speaks)), Grader: "exact"}
				if p.raw {
					q.Prompt = "go on"
				} else {
					q.Messages = []workload.Message{{Role: "user", Content: "hello"}}
				}
				res, err := Run(t.Context(), &Job{Target: p.target, Address: f.start(t), Model: "m",
					Requests: []workload.Request{q}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				r := res.Records[0]
				seen := len(r.Think) + len(r.Output)
				switch {
				case f.fail != nil:
					if r.Err != "the server answered: "+failure.Error() || seen != f.at {
						t.Errorf("error %q after %d tokens", r.Err, seen)
					}
					return
				case f.drop:
					if r.Err == "" || r.Reason != "" {
						t.Errorf("no error: %+v", r)
					}
					return
				}
				if r.Err != "" || r.Reason == "" || seen != thinks+speaks || r.CompletionTokens != thinks+speaks ||
					r.PromptTokens != prompts || r.End < r.Output[len(r.Output)-1] {
					t.Errorf("%+v", r)
				}
				if p.target != "ollama" && r.CachedTokens != cached {
					t.Errorf("%d tokens were cached", r.CachedTokens)
				}
				if p.apart && (len(r.Think) != thinks || r.Thought() != thinks || !r.Right) {
					t.Errorf("%d tokens of thought, right %v", len(r.Think), r.Right)
				}
				if f.once && r.First() != r.Output[len(r.Output)-1] {
					t.Errorf("what came with one read has times from %d to %d ns", r.First(), r.Output[len(r.Output)-1])
				}
			})
		}
	}
}

// TestRefusals: a status other than 200 and an answer that is no stream are errors with the server's words.
func TestRefusals(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		"503 Service Unavailable: Loading model": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			io.WriteString(w, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)
		},
		"404 Not Found: model 'missing' not found": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			io.WriteString(w, `{"error":"model 'missing' not found"}`)
		},
		"502 Bad Gateway: <h1>no</h1>": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			io.WriteString(w, "<h1>no</h1>\n")
		},
		`did not stream its answer: {"choices":[]}`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":[]}`)
		},
		"read the server's event": func(w http.ResponseWriter,
			_ *http.Request) {
			io.WriteString(w, "data: {\"choices\":7}\n\n")
		},
		"without a reason": func(w http.ResponseWriter,
			_ *http.Request) {
			io.WriteString(w, "data: [DONE]\n\n")
		},
	} {
		s := httptest.NewServer(h)
		res, err := Run(t.Context(), &Job{Target: "openai", Address: s.URL,
			Requests: []workload.Request{{Prompt: "x", After: -1, Output: 1}}}, nil)
		s.Close()
		if err != nil || !strings.Contains(res.Records[0].Err, want) {
			t.Errorf("want an error with %q, got %v %+v", want, err, res.Records[0])
		}
	}
}
