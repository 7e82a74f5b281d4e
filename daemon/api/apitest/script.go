package apitest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/runtime"
)

// RunScripts runs the scripts of testdata against an API, each with a new server:
//
//	answer                   the events of answers from now on, one per line:
//	think TEXT               text TEXT             (quoted as Go does)
//	call INDEX ID NAME PART…                       the parts of the arguments, quoted
//	progress N               eos REASON [STOP]     error CODE MESSAGE
//	----
//
//	post PATH [owner=N] [strict]     also get, delete; the body follows. strict: as with --strict-fields
//	----
//	the status, X-Uma-Ignored if there is one, and the answer with its random ids as ID1, ID2, …
//
//	requests                 the requests since the last "requests", as frames; embeds: those for embeddings
//	----
//
//	embedder [pooling=NAME] [no] [code=CODE]     what becomes of requests for embeddings; the error's text follows
//	----
func RunScripts(t *testing.T, routes func(*api.Server) []api.Route) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			b := &Backend{}
			url := Serve(t, b, routes)
			ids := &idNames{}
			told, toldEmbeds := 0, 0
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "answer":
					events, err := parseEvents(d.Input)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					b.Answer = func(*wire.Request) []wire.Event { return append([]wire.Event(nil), events...) }
					return ""
				case "post", "get", "delete":
					owner := 0
					if d.HasArg("owner") {
						d.ScanArgs(t, "owner", &owner)
					}
					status, head, body := do(t, strings.ToUpper(d.Cmd), url+ids.back(d.CmdArgs[0].String()),
						ids.back(d.Input), owner, d.HasArg("strict"))
					out := fmt.Sprintf("%d %s", status, head.Get("Content-Type"))
					if after := head.Get("Retry-After"); after != "" {
						out += ", retry after " + after
					}
					if left := head.Get(api.HeaderIgnored); left != "" {
						out += ", ignored: " + left
					}
					if status == http.StatusOK && head.Get("Content-Type") == "text/event-stream" {
						for _, ev := range Events(t, body) {
							out += "\n" + strings.TrimSpace(ev.Name+" "+ev.Data)
						}
					} else {
						out += "\n" + strings.TrimSpace(body)
					}
					return ids.forth(out) + "\n"
				case "embedder":
					var pool, code string
					if d.HasArg("pooling") {
						d.ScanArgs(t, "pooling", &pool)
					}
					b.Pooling, b.NoEmbeddings, b.EmbedError = runtime.Pooling(pool), d.HasArg("no"), nil
					if d.HasArg("code") {
						d.ScanArgs(t, "code", &code)
						b.EmbedError = &wire.Error{Code: wire.Code(code), Message: d.Input, NPrompt: 9, NCtx: 8}
					}
					return ""
				case "embeds":
					var out strings.Builder
					for _, e := range b.Embeds()[toldEmbeds:] {
						out.Write(frames.AppendEmbed(nil, e)[4:])
						out.WriteByte('\n')
						toldEmbeds++
					}
					return ids.forth(out.String())
				case "requests":
					var out strings.Builder
					def := wire.DefaultRequest()
					for _, r := range b.Requests()[told:] {
						out.Write(frames.AppendRequest(nil, r, &def)[4:])
						out.WriteByte('\n')
						told++
					}
					return ids.forth(out.String())
				}
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			})
		})
	}
}

// idNames replaces random ids by short names, in order of appearance.
type idNames struct{ known []string }

var randomID = regexp.MustCompile(`\b(?:[a-z]+[-_])?[0-9a-f]{24}\b`)

func (n *idNames) forth(text string) string {
	return randomID.ReplaceAllStringFunc(text, func(id string) string {
		for i, k := range n.known {
			if k == id {
				return fmt.Sprintf("ID%d", i+1)
			}
		}
		n.known = append(n.known, id)
		return fmt.Sprintf("ID%d", len(n.known))
	})
}

var shortID = regexp.MustCompile(`\bID(\d+)\b`)

func (n *idNames) back(text string) string {
	return shortID.ReplaceAllStringFunc(text, func(short string) string {
		if i, err := strconv.Atoi(short[2:]); err == nil && i >= 1 && i <= len(n.known) {
			return n.known[i-1]
		}
		return short
	})
}

// Replay gives do the HTTP requests of the scripts of a folder, in order. Ids of answers before, which scripts name
// ID1, ID2, …, are those of the server: its answers go to Seen. What the scripts expect is not compared.
func Replay(t *testing.T, folder string, do func(r *Replayed, method, path, body string)) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			r := &Replayed{T: t}
			datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "post", "get", "delete":
					do(r, strings.ToUpper(d.Cmd), d.CmdArgs[0].String(), d.Input)
				}
				return d.Expected
			})
		})
	}
}

// Replayed is a script that is replayed against servers.
type Replayed struct {
	T   *testing.T
	ids map[string]*idNames
}

// names returns the ids of a server.
func (r *Replayed) names(server string) *idNames {
	if r.ids == nil {
		r.ids = map[string]*idNames{}
	}
	if r.ids[server] == nil {
		r.ids[server] = &idNames{}
	}
	return r.ids[server]
}

// Ask puts the ids of a server into a text of the script.
func (r *Replayed) Ask(server, text string) string { return r.names(server).back(text) }

// Seen names the ids in an answer of a server as scripts do.
func (r *Replayed) Seen(server, text string) string { return r.names(server).forth(text) }

// parseEvents parses the lines of "answer".
func parseEvents(input string) (events []wire.Event, err error) {
	for line := range strings.Lines(input) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words, err := fieldsOf(rest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		switch {
		case kind == "text" && len(words) == 1:
			events = append(events, Text(words[0]))
		case kind == "think" && len(words) == 1:
			events = append(events, Think(words[0]))
		case kind == "logprob" && len(words) == 1:
			ev := Text(words[0])
			ev.Token.HasLogprob, ev.Token.Logprob = true, -0.5
			ev.Token.Top = []wire.TokenLogprob{{Text: []byte(words[0]), Logprob: -0.5}}
			events = append(events, ev)
		case kind == "call" && len(words) >= 3:
			index, err := strconv.Atoi(words[0])
			if err != nil {
				return nil, err
			}
			events = append(events, Call(index, words[1], words[2], words[3:]...)...)
		case kind == "progress" && len(words) == 1:
			n, err := strconv.Atoi(words[0])
			if err != nil {
				return nil, err
			}
			events = append(events, Progress(n))
		case kind == "eos" && len(words) >= 1:
			ev := EOS(wire.Reason(words[0]))
			if len(words) > 1 {
				ev.EOS.StopText = words[1]
			}
			events = append(events, ev)
		case kind == "error" && len(words) == 2:
			events = append(events,
				wire.Event{Kind: wire.EventError, Error: wire.Error{Code: wire.Code(words[0]), Message: words[1]}})
		default:
			return nil, fmt.Errorf("not an event: %q", line)
		}
	}
	return events, nil
}

// fieldsOf splits words, some of which are quoted as Go does.
func fieldsOf(s string) (words []string, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		if s[0] != '"' && s[0] != '`' {
			word, rest, _ := strings.Cut(s, " ")
			words, s = append(words, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		words, s = append(words, word), s[len(quoted):]
	}
	return words, nil
}
