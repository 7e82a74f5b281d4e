package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// KVConfig configures the measurements of KV memory.
type KVConfig struct {
	// Start runs a daemon with these arguments on the model that is measured, StartTiny on one that starts at once.
	Start, StartTiny func(args ...string) (*daemonproc.Proc, error)

	Kills int       // of the daemon while it writes
	Log   io.Writer // progress lines; nil = none
}

const (
	kvPrefix   = 1024 // tokens of a shared or restored prompt, about
	kvUnique   = 32   // tokens of a request that it does not share
	kvRounds   = 5    // prefixes that are shared, one after the other
	kvRequests = 16   // that share a prefix
	kvAtOnce   = 4    // of them
	kvPrompts  = 5    // that are restored from each tier
	kvSessions = 32   // of the oversubscription
	kvAnswer   = 128  // tokens of each of their answers

	kvChat = 10 * time.Second // of the chat, alone and next to restores
)

// KVRow is one result and its requirement.
type KVRow struct {
	Row      string  `json:"row"`
	What     string  `json:"what"`
	Measured string  `json:"measured"`
	Against  string  `json:"against"` // the denominator of the ratio; "" = there is none
	Value    float64 `json:"value"`
	Required string  `json:"required"`
	Met      bool    `json:"met"`
}

// atMost returns a row that must not exceed limit.
func atMost(row, what, measured, against string, value, limit float64, unit string) KVRow {
	return KVRow{row, what, measured, against, value, fmt.Sprintf("≤ %g%s", limit, unit), value <= limit}
}

// KVRows are the names of the rows, in order.
var KVRows = []string{"sharing", "restore", "oversubscription", "inter-token", "restart"}

// RunKV measures one of KVRows.
func RunKV(cfg *KVConfig, row string) ([]KVRow, error) {
	say(cfg.Log, "%s", row)
	switch row {
	case "sharing":
		return cfg.sharing()
	case "restore":
		return cfg.restore()
	case "oversubscription":
		return cfg.oversubscription()
	case "inter-token":
		return cfg.interToken()
	case "restart":
		return cfg.restart()
	}
	return nil, fmt.Errorf("row %q is none of %s", row, strings.Join(KVRows, ", "))
}

// reply is one request as its client saw it.
type reply struct {
	ttft   time.Duration
	gaps   []float64 // between its tokens, in ms
	text   string
	eos    wire.EOS
	tokens int
}

// askKV sends one request on a new connection.
func askKV(socket, text string, tokens int, edit func(*wire.Request)) (out reply, err error) {
	c, err := dial(socket)
	if err != nil {
		return out, err
	}
	defer c.Close()
	r := defaults
	r.ID, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS, r.Sampling.Temperature = "kv", text, tokens, true,
		true, 0
	if edit != nil {
		edit(&r)
	}
	begin := time.Now()
	if err := c.send(&r); err != nil {
		return out, err
	}
	last := begin
	var b []byte
	for {
		ev, err := c.next()
		now := time.Now()
		switch {
		case err != nil:
			return out, err
		case ev.Kind == wire.EventToken:
			if out.tokens++; out.tokens == 1 {
				out.ttft = now.Sub(begin)
			} else {
				out.gaps = append(out.gaps, ms(now.Sub(last)))
			}
			last = now
			b = append(b, ev.Token.Text...)
		case ev.Kind == wire.EventError:
			return out, fmt.Errorf("the daemon answered %s: %s", ev.Error.Code, ev.Error.Message)
		case ev.Kind == wire.EventEOS:
			out.text, out.eos = string(b), ev.EOS
			return out, nil
		}
	}
}

// writer makes prompts of so many tokens of the daemon's model.
type writer struct{ bytesPerToken float64 }

func newWriter(socket string) (writer, error) {
	text := prompt(0, 900, 100)
	r, err := askKV(socket, text, 1, nil)
	if err != nil {
		return writer{}, err
	}
	return writer{float64(len(text)) / float64(r.eos.Usage.PromptTokens)}, nil
}

// text is about n tokens that no other i and salt begin with.
func (w writer) text(i, salt, n int) string {
	size := int(float64(n) * w.bytesPerToken)
	return prompt(i, salt, size/3+10)[:size]
}

// counters reads the daemon's metrics; vector elements are "name.label".
func counters(p *daemonproc.Proc) (func(string) float64, error) {
	text, err := p.Ask("metrics")
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return func(path string) float64 {
		var v any = m
		for _, k := range strings.Split(path, ".") {
			t, _ := v.(map[string]any)
			v = t[k]
		}
		f, _ := v.(float64)
		return f
	}, nil
}

// with runs fn against a daemon and stops it.
func with(start func(...string) (*daemonproc.Proc, error), args []string, fn func(*daemonproc.Proc) error) error {
	p, err := start(args...)
	if err != nil {
		return err
	}
	return errors.Join(fn(p), p.Stop(20*time.Second))
}
