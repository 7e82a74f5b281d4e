package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/testutil/fifo"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

var rewrite = flag.Bool("rewrite", false, "write the help texts into testdata/help; read the diff before you keep it")

// TestMain lets the test binary be uma-cli itself: the tests then see exit statuses and signals of a real process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == onSignal {
		endOnSignal()
	}
	if os.Getenv("UMA_CLI_TEST_MAIN") != "" {
		askTimeout = time.Minute
		main()
	}
	os.Exit(m.Run())
}

// onSignal makes this program one that says "ready" and ends with status 9 at SIGTERM. A shell with a trap will not do:
// it loses a signal that comes just before its read.
const onSignal = "end-on-signal"

func endOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println("ready")
	<-signals
	os.Exit(9)
}

// program is uma-cli with args, as a separate process that talks to socket.
func program(t *testing.T, socket string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = []string{"UMA_CLI_TEST_MAIN=1", "UMA_SOCKET=" + socket, "HOME=" + t.TempDir(), "TERM=xterm",
		"GOCOVERDIR=" + t.TempDir()}
	return cmd
}

// embeds is a daemon for the tests of embed: the first value is the number of a text's bytes.
func embeds(c *clienttest.Conn, e *wire.Embed) {
	total := 0
	for i, in := range e.Inputs {
		v := wire.Embedding{ID: e.ID, Index: i, Row: -1, Tokens: len(in.Text),
			Values: []float32{float32(len(in.Text)), 0.1}}
		send := func() { c.Send(func(dst []byte) []byte { return wire.AppendEmbedding(dst, &v, e.Base64) }) }
		switch in.Text {
		case "refuse":
			c.Error(wire.Error{ID: e.ID, Code: wire.NotSupported, Message: "no embeddings: this model makes none"})
			return
		case "options":
			truncate := map[bool]float32{true: 1}[e.Truncate]
			v.Values = []float32{float32(e.Dimensions), float32(e.Normalize), truncate, float32(e.Priority)}
		case "rows":
			v.Row = 0
			send()
			v.Row = 1
		}
		send()
		total += len(in.Text)
	}
	c.EOS(wire.EOS{ID: e.ID, Reason: wire.Stop, Streamed: true, Usage: wire.Usage{PromptTokens: total},
		Timings: wire.Timings{Queue: 5 * time.Millisecond, Prefill: 2 * time.Millisecond, Decode: time.Millisecond}})
}

// answers is a daemon for the tests of run.
func answers(c *clienttest.Conn, r *clienttest.Request) {
	text := r.Prompt
	for _, m := range r.Messages {
		text += m.Role + ":" + strings.ReplaceAll(m.Content, "\n", "⏎") + ";"
	}
	eos := wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: r.Stream,
		Usage:   wire.Usage{PromptTokens: 9, CompletionTokens: 4},
		Timings: wire.Timings{TTFT: 5 * time.Millisecond, Decode: 3 * time.Millisecond}}
	switch {
	case strings.Contains(text, "refuse"):
		c.Error(wire.Error{ID: r.ID, Code: wire.ContextLength, Message: "context_length_exceeded: n_prompt 9, n_ctx 8",
			NPrompt: 9, NCtx: 8})
		return
	case strings.Contains(text, "wait for cancel"):
		c.Token(r.ID, "started", wire.Output)
		<-r.Cancelled
		eos.Reason = wire.Cancelled
	case strings.Contains(text, "flood"):
		for range 100_000 {
			select {
			case <-r.Cancelled:
				return
			default:
				c.Token(r.ID, "all work and no play\n", wire.Output)
			}
		}
	case strings.Contains(text, "how"):
		k := r.Think
		c.Token(r.ID, fmt.Sprintf("effort %v mode %v budget %d exit %v", k.Effort, k.Mode, k.BudgetTokens, k.EarlyExit),
			wire.Output)
	case strings.Contains(text, "ponder"):
		c.Token(r.ID, "hm", wire.Thinking)
		c.Token(r.ID, "s", wire.Output) // a sign of life for the test, which sees no thinking
		<-r.EndThink
		c.Token(r.ID, "ended", wire.Output)
	case strings.Contains(text, "think"):
		eos.Thought = wire.ThinkSummary{Tokens: 1, Time: 20 * time.Millisecond, Ended: "converged"}
		eos.Usage.CacheMiss = "diverged at token 3: another message"
		c.Token(r.ID, "hm", wire.Thinking)
		c.Token(r.ID, "\n\nanswer", wire.Output)
	case strings.Contains(text, "shut down"):
		eos.Reason = wire.Shutdown
	case !r.Stream:
		eos.Text = []byte(text)
	default:
		c.Token(r.ID, text, wire.Output)
	}
	c.EOS(eos)
}

// inside answers why and kv questions by saying what it was asked.
func inside(f *wire.Frame) string {
	var body any
	switch {
	case f.Kind == wire.KindWhy && f.Why.Request == "gone":
		body = reports.WhyReport{}
	case f.Kind == wire.KindWhy:
		body = reports.WhyReport{Requests: []reports.WhyRequest{{Request: f.Why.Request, Number: uint64(f.Why.Last),
			Class: "interactive", State: "queued",
			Decisions: []reports.Decision{{AtMs: 2, Times: 1, Text: "It waits because others are before it."}}}}}
	case f.KV.Op != wire.KVShow:
		body = reports.KVDone{Op: f.KV.Op.String(), Target: f.KV.Target, Text: f.KV.Op.String() + " of " + f.KV.Target +
			" is done"}
	default:
		r := reports.KVReport{Cells: reports.KVCells{Total: 100, Free: 75, Cached: 25},
			Entries: []reports.KVEntry{{Name: "12", Kind: "prefix", Tier: wire.TierDevice, Why: "end of a turn"}}}
		if f.KV.Tree {
			r.Tree = "[0, 25) cached · prefix 12\n"
		}
		body = r
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestInspectAPipe: a named pipe is refused, not waited for.
func TestInspectAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	fifo.Make(t, pipe)
	cmd := program(t, "/nonexistent/uma.sock", "model", "inspect", pipe)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "it is a named pipe") {
		t.Errorf("%v %s", err, out)
	}
}

func TestProgram(t *testing.T) {
	server := (&clienttest.Server{Answer: answers, Question: inside, Embed: embeds}).Start(t)
	file := filepath.Join(t.TempDir(), "part.txt")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const none = "/nonexistent/uma.sock"
	for name, c := range map[string]struct {
		args           string // separated by "|"
		stdin          string
		socket         string // "" = the server's
		code           int
		stdout, stderr string // must be contained; a stdout that ends in "$" must be all of it
	}{
		"words":             {"run|why|not", "", "", 0, "user:why not;\n$", ""},
		"pipe":              {"run", "hi\n", "", 0, "user:hi;\n$", ""},
		"no verb, pipe":     {"", "hi\n", "", 0, "user:hi;\n$", ""},
		"words and pipe":    {"run|summarise", "text\n", "", 0, "user:summarise⏎⏎text;\n$", ""},
		"file and pipe":     {"run|x|--file|" + file, "text\n", "", 0, "user:x⏎⏎from a file⏎⏎text;\n$", ""},
		"system":            {"run|x|--system|be kind", "", "", 0, "system:be kind;user:x;\n$", ""},
		"raw":               {"run|--raw|Once", "", "", 0, "Once\n$", ""},
		"not streamed":      {"run|--no-stream|x", "", "", 0, "user:x;\n$", ""},
		"thinking left out": {"run|think", "", "", 0, "answer\n$", ""},
		"thinking shown":    {"run|think|--show-thinking", "", "", 0, "answer\n$", "hm"},
		"json":              {"run|--json|x", "", "", 0, `{"event":"token","id":"r1","text":"user:x;"`, ""},
		"json refused": {"run|--json|refuse", "", "", 1,
			`{"event":"error","id":"r1","code":"E_CONTEXT_LENGTH_EXCEEDED"`, "E_CONTEXT"},
		"verbose":            {"run|-v|x", "", "", 0, "user:x;\n$", "4 tokens · 1000 tokens/s · first after 5.00 ms"},
		"refused":            {"run|refuse", "", "", 1, "$", "larger --ctx-size"},
		"shut down":          {"run|shut down", "", "", 1, "$", "shut down before the answer"},
		"timeout":            {"run|--timeout|50ms|wait for cancel", "", "", 1, "", "(--timeout)"},
		"no prompt":          {"run", "", "", 2, "$", "there is no prompt"},
		"only blanks":        {"run| ", " \n\n", "", 2, "$", "there is no prompt"},
		"not text":           {"run", "a\x00b", "", 2, "$", "standard input is not text"},
		"not UTF-8":          {"run", "a\xffb", "", 2, "$", "not valid UTF-8"},
		"no such file":       {"run|--file|/nonexistent", "", "", 2, "$", "no such file"},
		"logprobs need json": {"run|--logprobs|3|x", "", "", 2, "$", "--logprobs needs --json"},
		"raw with system":    {"run|--raw|--system|s|x", "", "", 2, "$", "--system needs the chat template"},
		"show and hide":      {"run|--show-thinking|--hide-thinking|x", "", "", 2, "$", "contradict"},
		"bad number":         {"run|--top-p|2|x", "", "", 2, "$", "top_p is 2; it must be a number of 0…1"},
		"not a number":       {"run|--temp|NaN|x", "", "", 2, "$", "temperature is NaN"},
		"bad priority":       {"run|--priority|low|x", "", "", 2, "$", "interactive or background"},
		"unknown flag":       {"run|--frobnicate", "", "", 2, "$", "there is no option --frobnicate\n"},
		"mistyped flag":      {"run|--tempp|1", "", "", 2, "$", "there is no option --tempp; did you mean --temp?"},
		"unknown letter":     {"run|-z", "", "", 2, "$", "there is no option -z\n"},
		"temp":               {"run|--temp|x|hi", "", "", 2, "$", `uma-cli: --temp is "x": it must be a number`},
		"seed":               {"run|--seed|x|hi", "", "", 2, "$", `--seed is "x": it must be a whole number`},
		"seed, negative":     {"run|--seed|-x|hi", "", "", 2, "$", `--seed is "-x": it must be a whole number`},
		"timeout, no unit": {"run|--timeout|5|hi", "", "", 2, "$", `--timeout is "5": it must be a duration with a ` +
			`unit`},
		"health timeout": {"health|--timeout|-1s", "", "", 2, "$", "--timeout is -1s; it must be more than 0"},
		"switch":         {"run|--json=x|hi", "", "", 2, "$", `--json is "x": it must be true or false`},
		"no value":       {"run|--system", "", "", 2, "$", "--system needs a value: --system TEXT"},
		"file is a folder": {"run|--file|" + filepath.Dir(file), "", "", 2, "$",
			"it is a directory; name a file in it"},
		"unknown command": {"helth", "", "", 2, "$", "did you mean health?"},
		"a prompt as command": {"why is it", "", "", 2, "$",
			`uma-cli run "why is it"`},
		"embed":        {"embed|ab|c d e", "", "", 0, "2 0.1\n5 0.1\n$", ""},
		"embed a file": {"embed|x|--file|" + file, "", "", 0, "1 0.1\n11 0.1\n$", ""},
		"embed a pipe": {"embed", "one\ntwo\n", "", 0, "7 0.1\n$", ""},
		"embed lines":  {"embed|--lines", "one\n\nthree\r\n", "", 0, "3 0.1\n5 0.1\n$", ""},
		"embed json":   {"embed|--json|ab", "", "", 0, `{"index":0,"tokens":2,"embedding":[2,0.1]}` + "\n$", ""},
		"embed rows": {"embed|--json|rows", "", "", 0, `{"index":0,"row":0,"tokens":4,"embedding":[4,0.1]}` +
			"\n" + `{"index":0,"row":1,"tokens":4,"embedding":[4,0.1]}` + "\n$", ""},
		"embed options": {"embed|--dimensions|1|--normalize|-1|--truncate|--priority|background|options", "", "", 0,
			"1 -1 1 1\n$", ""},
		"embed verbose":  {"embed|-v|ab", "", "", 0, "2 0.1\n$", "1 texts, 2 tokens; waited 5.00 ms, then 3.00 ms"},
		"embed refused":  {"embed|refuse", "", "", 1, "$", "this model makes none"},
		"embed nothing":  {"embed", "", "", 2, "$", "standard input has no text"},
		"embed not text": {"embed", "a\xffb", "", 2, "$", "standard input is not UTF-8 text"},

		"embed no file": {"embed|--file|/nonexistent", "", "", 1, "$", "no such file"},

		"embed size": {"embed|--dimensions|-1|x", "", "", 2, "$", "--dimensions is -1; it must be 0 (all) … 1048576"},
		"embed norm": {"embed|--normalize|65|x", "", "", 2, "$", "--normalize is 65; it must be -1…64"},

		"embed priority": {"embed|--priority|low|x", "", "", 2, "$", "interactive or background"},

		"embed, no daemon": {"embed|x", "", none, 3, "$", "uma-serve -m model.gguf"},
		"no daemon":        {"run|x", "", none, 3, "$", "uma-serve -m model.gguf"},
		"health":           {"health", "", "", 0, "ok · up 1 m 01 s · 0 requests · last step 12.0 ms ago\n$", ""},
		"health json":      {"health|--json", "", "", 0, clienttest.HealthOK + "\n$", ""},

		"health, no daemon": {"health", "", none, 3, "$", "no uma-serve daemon"},
		"info":              {"info", "", "", 0, "context     4,096 tokens (trained on 2,048)", ""},
		"info, policy":      {"info", "", "", 0, "policy      uma: tick-budget 30.0 ms\n", ""},
		"info json":         {"info|--json", "", "", 0, clienttest.InfoTiny + "\n$", ""},
		"info argument":     {"info|x", "", "", 2, "$", `takes no argument "x"`},
		"metrics":           {"metrics", "", "", 0, "requests  0 running, 0 queued", ""},
		"metrics json":      {"metrics|--json", "", "", 0, "{}\n$", ""},
		"metrics flags":     {"metrics|--json|--prometheus", "", "", 2, "$", "--prometheus excludes"},
		"metrics interval":  {"metrics|--interval|2s", "", "", 2, "$", "--interval needs --watch"},
		"metrics too fast":  {"metrics|--watch|--interval|1ms", "", "", 2, "$", "100ms or more"},
		"metrics, no unit": {"metrics|--watch|--interval|1", "", "", 2, "$", `uma-cli: --interval is "1": it must ` +
			`be a duration with a unit, such as 500ms, 30s or 5m`},
		"metrics no daemon": {"metrics|--prometheus", "", none, 3, "$", "uma-serve -m model.gguf"},
		"info cost model": {"info|--cost-model", "", "", 0, "{\n  \"a\": 4.25,\n  \"b\": 3.5,\n  \"c\": 6,\n" +
			"  \"d\": 0.000125,\n  \"e\": 0.00025\n}\n$", "learned from 1,200 steps; its predictions are off by 7.2 %"},
		"info two forms":  {"info|--cost-model|--json", "", "", 2, "$", "--json and --cost-model exclude each other"},
		"why":             {"why", "", "", 0, "#1 · uid 0 · interactive · queued", ""},
		"why last":        {"why|--last|5", "", "", 0, "#5 ", ""},
		"why id":          {"why|chat-1", "", "", 0, "chat-1  uid 0", ""},
		"why json":        {"why|--json|chat-1", "", "", 0, `{"requests":[{"request":"chat-1",`, ""},
		"why, forgotten":  {"why|gone", "", "", 1, "$", `no request "gone" of yours is remembered`},
		"why, too many":   {"why|--last|65", "", "", 2, "$", "--last is 65; it must be 1…64"},
		"why, both":       {"why|--last|5|x", "", "", 2, "$", "either an ID or --last"},
		"why, two":        {"why|a|b", "", "", 2, "$", "why takes one ID, not 2"},
		"why, no daemon":  {"why", "", none, 3, "$", "no uma-serve daemon"},
		"kv":              {"kv", "", "", 0, "12    prefix  device", ""},
		"kv tree":         {"kv|--tree", "", "", 0, "\n[0, 25) cached · prefix 12\n", ""},
		"kv json":         {"kv|--json", "", "", 0, `{"cells":{"total":100,`, ""},
		"kv pin":          {"kv|pin|12", "", "", 0, "pin of 12 is done\n$", ""},
		"kv unpin":        {"kv|unpin|12", "", "", 0, "unpin of 12 is done\n$", ""},
		"kv save":         {"kv|save|3f2a", "", "", 0, "save of 3f2a is done\n$", ""},
		"kv drop json":    {"kv|drop|--json|all", "", "", 0, `{"op":"drop","target":"all",`, ""},
		"kv drop nothing": {"kv|drop", "", "", 2, "$", "kv drop takes one TARGET, not 0"},
		"kv verb":         {"kv|burn", "", "", 2, "$", "drop, pin, unpin and save"},
		"think":           {"run|--think|low|how", "", "", 0, "effort low mode  budget 0 exit \n$", ""},
		"think budget": {"run|--think|on|--think-budget|9|--early-exit|both|how", "", "", 0,
			"effort  mode on budget 9 exit both\n$", ""},
		"think off":        {"run|--reasoning-budget|0|how", "", "", 0, "effort  mode off budget 0 exit \n$", ""},
		"reasoning effort": {"run|--reasoning-effort|none|how", "", "", 0, "effort  mode off budget 0 exit \n$", ""},
		"think, bad":       {"run|--think|maybe|how", "", "", 2, "$", `must be auto, off, on, minimal`},
		"early exit, bad":  {"run|--early-exit|maybe|how", "", "", 2, "$", `must be off, eat, rpdi, both`},
		"thought, verbose": {"run|-v|think", "", "", 0, "answer\n$", "thought 1 token, 20.0 ms, ended: converged\n" +
			"prompt cache: diverged at token 3: another message"},
		"version":        {"version", "", "", 0, "engine      fake\n", ""},
		"version, alone": {"version", "", none, 0, "daemon      none answers\n", ""},
		"version json":   {"version|--json", "", none, 0, `"daemon":null}`, ""},
		"model":          {"model|inspect|/nonexistent.gguf", "", "", 1, "$", "no such file"},
		"model, a folder": {"model|inspect|" + filepath.Dir(file), "", "", 1, "$",
			"it is a directory; name a .gguf file in it"},
		"model, a device": {"model|inspect|/dev/zero", "", "", 1, "$", "it is a device"},
		"model, no folder": {"model|inspect|/nonexistent/x.gguf", "", "", 1, "$",
			"uma-cli: /nonexistent/x.gguf: there is no directory /nonexistent"},
		"model, not one":   {"model|inspect|" + file, "", "", 1, "$", "GGUF"},
		"model, no file":   {"model|inspect", "", "", 2, "$", "name one file"},
		"model, verb":      {"model|frobnicate", "", "", 2, "$", "has inspect FILE.gguf"},
		"completion bash":  {"completion|bash", "", "", 0, "__start_uma-cli", ""},
		"completion zsh":   {"completion|zsh", "", "", 0, "#compdef uma-cli", ""},
		"completion fish":  {"completion|fish", "", "", 0, "complete -c uma-cli", ""},
		"completion other": {"completion|csh", "", "", 2, "$", "bash, zsh or fish"},
		"help":             {"help|run", "", "", 0, "Send one prompt and print the answer", ""},
		"help on nothing":  {"help|nothing", "", "", 2, "$", "there is no command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var args []string
			if c.args != "" {
				args = strings.Split(c.args, "|")
			}
			socket := server.Path
			if c.socket != "" {
				socket = c.socket
			}
			cmd := program(t, socket, args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &stdout, &stderr
			err := cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit status %d, want %d (%v)", code, c.code, err)
			}
			if want, all := strings.CutSuffix(c.stdout, "$"); all && stdout.String() != want ||
				!strings.Contains(stdout.String(), want) {
				t.Errorf("stdout %q, want %q", stdout.String(), c.stdout)
			}
			if !strings.Contains(stderr.String(), c.stderr) || c.code == 0 && c.stderr == "" && stderr.Len() > 0 {
				t.Errorf("stderr %q, want %q", stderr.String(), c.stderr)
			}
			if both := stdout.String() + stderr.String(); strings.ContainsAny(both, "\x1b\r\b") &&
				!strings.HasPrefix(c.args, "completion") {
				t.Errorf("control characters off a terminal: %q", both)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	set := func(env map[string]string) {
		for _, name := range []string{"UMA_HOST", "UMA_SOCKET"} {
			t.Setenv(name, env[name])
		}
	}
	for _, c := range []struct {
		flag string
		env  map[string]string
		want string
		bad  bool
	}{
		{"/a", map[string]string{"UMA_HOST": "unix:///b", "UMA_SOCKET": "/c"}, "/a", false},
		{"unix:///a", nil, "/a", false},
		{"", map[string]string{"UMA_HOST": "unix:///b", "UMA_SOCKET": "/c"}, "/b", false},
		{"", map[string]string{"UMA_SOCKET": "/c"}, "/c", false},
		{"", map[string]string{"UMA_HOST": "tcp://localhost:80"}, "", true},
		{"", map[string]string{"UMA_HOST": "unix://relative"}, "", true},
		{"", map[string]string{"UMA_HOST": "/b"}, "", true},
	} {
		set(c.env)
		got, err := socketPath(c.flag)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q %v: %q, %v", c.flag, c.env, got, err)
		}
	}
	set(nil)
	if path, err := socketPath(""); err != nil || !filepath.IsAbs(path) {
		t.Errorf("default: %q, %v", path, err)
	}
}

func TestNormalizeArgs(t *testing.T) {
	got := strings.Join(normalizeArgs([]string{"model", "inspect", "-ctk", "q8_0", "-ctv=q4_0", "-sys", "x", "--",
		"-ctk"}), " ")
	if want := "model inspect --cache-type-k q8_0 --cache-type-v=q4_0 --system x -- -ctk"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFlagNames: the names that users of other programs type reach the same flag.
func TestFlagNames(t *testing.T) {
	root := newRoot()
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.ParseFlags([]string{"--temperature", "0.5", "--max-tokens", "7", "--top_k=3", "-s", "9",
		"--system-prompt", "s", "--stop", "a", "--stop", "b"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"temp": "0.5", "predict": "7", "top-k": "3", "seed": "9", "system": "s",
		"stop": "[a,b]"} {
		if got := run.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", name, got, want)
		}
	}
	if err := run.ParseFlags([]string{"--seed", "-1"}); err != nil ||
		run.Flags().Lookup("seed").Value.String() != "-1" {
		t.Errorf("--seed -1: %v", err)
	}
}

// TestHelp compares every help text with testdata/help.
func TestHelp(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		var b bytes.Buffer
		cmd.SetOut(&b)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("testdata", "help", strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".txt")
		if *rewrite {
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, b.Bytes()) {
			t.Errorf("%s: the help is\n%s", name, b.Bytes())
		}
	}
	walk(newRoot())
}

// TestInterrupt: Ctrl-C during a question cancels it on the daemon, keeps what was printed, and exits with 130.
func TestInterrupt(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	cmd := program(t, server.Path, "run", "wait for cancel")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("started"))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || string(rest) != "\n" {
		t.Errorf("exit status %d, rest %q", code, rest)
	}
}

// TestEndThinking: Ctrl-\ (SIGQUIT) ends the thinking, not the program.
func TestEndThinking(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	cmd := program(t, server.Path, "run", "ponder")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || string(rest) != "ended\n" {
		t.Errorf("%v, rest %q", err, rest)
	}
}

// TestBrokenPipe: a reader that has seen enough ends the program without a word.
func TestBrokenPipe(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	cmd := program(t, server.Path, "run", "flood")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	err = cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
}

// TestLoading: a question to a daemon that still loads waits and is then answered; health says what is going on.
func TestLoading(t *testing.T) {
	var asked atomic.Int32
	server := &clienttest.Server{Health: `{"status":"loading","load_progress":0.5}`}
	server.Answer = func(c *clienttest.Conn, r *clienttest.Request) {
		if asked.Add(1) == 1 {
			c.Error(wire.Error{ID: r.ID, Code: wire.ModelUnready, Message: "the model is loading"})
			server.SetHealth(clienttest.HealthOK)
			return
		}
		answers(c, r)
	}
	server.Start(t)
	for args, want := range map[string]int{"health": 1, "health --live": 0} {
		cmd := program(t, server.Path, strings.Fields(args)...)
		out, _ := cmd.Output()
		if cmd.ProcessState.ExitCode() != want || !strings.Contains(string(out), "loading 50 %") {
			t.Errorf("%s: exit status %d, %q", args, cmd.ProcessState.ExitCode(), out)
		}
	}
	out, err := program(t, server.Path, "run", "x").Output()
	if string(out) != "user:x;\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestWatch: a watch goes on until Ctrl-C, which is its ordinary end.
func TestWatch(t *testing.T) {
	server := (&clienttest.Server{Metrics: `{"prompts_total":1}`}).Start(t)
	for flags, want := range map[string]string{"--json": `{"prompts_total":1}` + "\n",
		"": "requests  0 running, 0 queued, 1 so far\n"} {
		cmd := program(t, server.Path, append([]string{"metrics", "--watch", "--interval", "100ms"},
			strings.Fields(flags)...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len(want))
		if _, err := io.ReadFull(out, first); err != nil || string(first) != want {
			t.Errorf("%q, %v, want %q", first, err, want)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", flags, err)
		}
	}
}
