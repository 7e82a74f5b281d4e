package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sampler"
)

var rewrite = flag.Bool("rewrite", false, "write the golden messages of testdata again; understand the diff before committing it")

// golden is one message of testdata: NAME.bin is the frame as it goes over the socket, NAME.json the same payload
// for a reader.
type golden struct {
	name  string
	frame []byte
	check func(t *testing.T, p *Parser, payload []byte) // reads the payload back
}

func fromClient(name string, frame []byte, want Frame) golden {
	return golden{name, frame, func(t *testing.T, p *Parser, payload []byte) {
		def := DefaultRequest()
		got, err := Parse(p, payload, &def)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v %+v, %v\nwant %+v %+v", got, got.Request, err, want, want.Request)
		}
	}}
}

func fromServer(name string, frame []byte, want Event) golden {
	return golden{name, frame, func(t *testing.T, p *Parser, payload []byte) {
		var got Event
		if err := p.ParseEvent(payload, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}}
}

func goldens() []golden {
	def := DefaultRequest()
	request := func(name string, change func(*Request)) golden {
		r := DefaultRequest()
		r.ID = "r-1"
		change(&r)
		return fromClient(name, AppendRequest(nil, &r, &def), Frame{Kind: KindRequest, ID: r.ID, Request: &r})
	}
	all := []golden{
		request("request_prompt", func(r *Request) { r.Prompt = "Once upon a time" }),
		request("request_messages", func(r *Request) {
			r.Messages = []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "What is 2 + 2?"},
				{Role: "assistant", Content: "4", ReasoningContent: "Easy."}, {Role: "user", Content: "Größer als π? 😀\n\"yes\" or \"no\""}}
		}),
		request("request_full", func(r *Request) {
			r.Prompt, r.MaxTokens, r.Stop, r.Stream, r.Progress, r.Priority = "x", 128, []string{"\n\n", "END"}, false, true, PriorityBackground
			r.TargetTTFT, r.TargetTBT, r.Metadata = 150*time.Millisecond, 33500*time.Microsecond, []byte(`{"user": 7, "tags": ["a"]}`)
			r.Sampling = sampler.Params{Temperature: 0.7, TopK: 20, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.1, FrequencyPenalty: 0.5, PresencePenalty: -0.5,
				PenaltyLastN: -1, Seed: math.MaxUint64, SeedSet: true, IgnoreEOS: true, Logprobs: 3,
				LogitBias: []sampler.Bias{{Token: 15043, Bias: 1.5}, {Token: 2, Bias: float32(math.Inf(-1))}}}
		}),
		fromClient("cancel", AppendCancel(nil, "r-1"), Frame{Kind: KindCancel, ID: "r-1"}),
	}
	for k := KindMetrics; k <= KindInfo; k++ {
		all = append(all, fromClient("admin_"+k.String(), AppendAdmin(nil, k, ""), Frame{Kind: k}))
	}
	tok := Token{ID: "r-1", Text: []byte(" Größe"), TokenID: 4711, Phase: Output, Top: []TokenLogprob{}}
	all = append(all, fromServer("token", AppendToken(nil, &tok), Event{Kind: EventToken, ID: "r-1", Token: Token{ID: "r-1", Text: tok.Text, TokenID: 4711, Phase: Output}}))
	tok.Phase, tok.HasLogprob, tok.Logprob = Thinking, true, -0.105
	tok.Top = []TokenLogprob{{4711, []byte(" Größe"), -0.105}, {220, []byte("\xc3"), -2.5}}
	all = append(all, fromServer("token_logprobs", AppendToken(nil, &tok), Event{Kind: EventToken, ID: "r-1", Token: tok}))
	eos := EOS{ID: "r-1", Reason: Stop, StopText: "\n\n", Streamed: true, Usage: Usage{12, 8, 40, 15}, Metadata: []byte(`{"user": 7}`),
		Timings: Timings{350 * time.Microsecond, 41200 * time.Microsecond, 40850 * time.Microsecond, 780 * time.Millisecond}}
	all = append(all, fromServer("eos", AppendEOS(nil, &eos), Event{Kind: EventEOS, ID: "r-1", EOS: eos}))
	eos.Reason, eos.StopText, eos.Streamed, eos.Text, eos.Think = Length, "", false, []byte("The answer\nis"), []byte("Hm.")
	all = append(all, fromServer("eos_not_streamed", AppendEOS(nil, &eos), Event{Kind: EventEOS, ID: "r-1", EOS: eos}))
	for _, e := range []Error{
		{ID: "r-1", Code: QueueLimit, Message: "the queue is full: 512 requests wait", RetryAfter: 1500 * time.Millisecond},
		{ID: "r-1", Code: ContextLength, Message: "context_length_exceeded: the prompt has 5000 tokens, the context 4096", NPrompt: 5000, NCtx: 4096},
		{Code: FrameTooLarge, Message: "a frame of 2097152 bytes; --max-frame-bytes is 1048576"},
	} {
		name := "error_" + strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(string(e.Code), "E_"), "PROTO_"))
		all = append(all, fromServer(name, AppendError(nil, &e), Event{Kind: EventError, ID: e.ID, Error: e}))
	}
	progress := Progress{ID: "r-1", Processed: 1024, Total: 8192, Elapsed: 412 * time.Millisecond, Position: 0}
	all = append(all, fromServer("progress", AppendProgress(nil, &progress), Event{Kind: EventProgress, ID: "r-1", Progress: progress}))
	progress.Processed, progress.Position = 0, 3
	all = append(all, fromServer("progress_queued", AppendProgress(nil, &progress), Event{Kind: EventProgress, ID: "r-1", Progress: progress}))
	all = append(all, fromServer("report_health", AppendReport(nil, KindHealth, "", []byte(`{"status":"ok"}`)),
		Event{Kind: EventReport, ReportKind: KindHealth, Report: []byte(`{"status":"ok"}`)}))
	return all
}

func TestGolden(t *testing.T) {
	p := new(Parser)
	known := map[string]bool{}
	for _, g := range goldens() {
		known[g.name] = true
		t.Run(g.name, func(t *testing.T) {
			path := filepath.Join("testdata", g.name)
			var readable bytes.Buffer
			if err := json.Indent(&readable, payload(t, g.frame), "", "  "); err != nil {
				t.Fatal(err)
			}
			readable.WriteByte('\n')
			for ext, got := range map[string][]byte{".bin": g.frame, ".json": readable.Bytes()} {
				if *rewrite {
					if err := os.WriteFile(path+ext, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path + ext)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s%s\n got %q\nwant %q\n(go test ./ipc/wire -run TestGolden -rewrite writes it again)", g.name, ext, got, want)
				}
			}
			g.check(t, p, payload(t, g.frame))
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.*"))
	if err != nil || len(files) != 2*len(known) {
		t.Errorf("testdata has %d files for %d messages: %v (%v)", len(files), len(known), files, err)
	}
}
