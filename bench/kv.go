package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// KVConfig is what the measurements of KV memory run with.
type KVConfig struct {
	// Start runs a daemon with these arguments on the model that is measured, StartTiny on one that starts at once.
	Start, StartTiny func(args ...string) (*daemonproc.Proc, error)

	Prefix   int // tokens of a shared or restored prompt, about
	Unique   int // tokens of each request's own
	Rounds   int // prefixes that are shared, one after the other
	Requests int // that share a prefix
	AtOnce   int // of them
	Prompts  int // that are restored from each tier
	Sessions int // of the oversubscription
	Answer   int // tokens of each of their answers
	Chat     time.Duration
	Kills    int
	Log      io.Writer // progress lines; nil = none
}

// KVRow is one line of what was measured: a figure and what it must be.
type KVRow struct {
	Row      string  `json:"row"`
	What     string  `json:"what"`
	Measured string  `json:"measured"`
	Against  string  `json:"against"` // what the ratio is to; "" = nothing
	Value    float64 `json:"value"`
	Required string  `json:"required"`
	Met      bool    `json:"met"`
}

// atMost is a row that must not exceed limit.
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
	ttft, total time.Duration
	gaps        []float64 // between its tokens, in ms
	text        string
	eos         wire.EOS
	tokens      int
}

// askKV sends one request on a connection of its own.
func askKV(socket, text string, tokens int, edit func(*wire.Request)) (out reply, err error) {
	c, err := dial(socket)
	if err != nil {
		return out, err
	}
	defer c.Close()
	r := defaults
	r.ID, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS, r.Sampling.Temperature = "kv", text, tokens, true, true, 0
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
			out.total, out.text, out.eos = now.Sub(begin), string(b), ev.EOS
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

// sharing: requests with a common prefix, some at a time.
func (cfg *KVConfig) sharing() (rows []KVRow, err error) {
	args := []string{"--ctx-size", "8192", "--parallel", fmt.Sprint(cfg.AtOnce)}
	err = with(cfg.Start, args, func(p *daemonproc.Proc) error {
		w, err := newWriter(p.Socket)
		if err != nil {
			return err
		}
		var all []sharingRound
		for i := range cfg.Rounds {
			r, err := cfg.shareOnce(p, w, i)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		each := func(of func(r *sharingRound) float64) (x []float64) {
			for i := range all {
				x = append(x, of(&all[i]))
			}
			return x
		}
		against := fmt.Sprintf("a lone cold request, %.0f ms", median(each(func(r *sharingRound) float64 { return r.cold })))
		// Worst of a round, median of the rounds: a lone request and those it is held against are seconds apart, in which this
		// kind of machine changes its speed by a tenth.
		times := func(of func(r *sharingRound) []float64) (text string, ratio float64) {
			worst := each(func(r *sharingRound) float64 { return slices.Max(of(r)) })
			ratios := each(func(r *sharingRound) float64 { return slices.Max(of(r)) / r.cold })
			return fmt.Sprintf("%.0f ms, of %d rounds %.3f … %.3f (median request %.0f)", median(worst), len(all), slices.Min(ratios), slices.Max(ratios),
				median(each(func(r *sharingRound) float64 { return median(of(r)) }))), median(ratios)
		}
		var computed, needed float64
		for i := range all {
			computed, needed = computed+all[i].computed, needed+all[i].needed
		}
		n := float64(len(all))
		rows = append(rows, KVRow{"sharing", "prompt tokens computed", fmt.Sprintf("%.0f", computed/n), fmt.Sprintf("the prefix once, %.0f", needed/n), computed / needed, "≤ 1.02", computed <= 1.02*needed})
		text, ratio := times(func(r *sharingRound) []float64 { return []float64{r.first} })
		rows = append(rows, KVRow{"sharing", "first request", text, against, ratio, "–", true})
		text, ratio = times(func(r *sharingRound) []float64 { return r.joiners })
		rows = append(rows, atMost("sharing", fmt.Sprintf("the %d beside it, worst", cfg.AtOnce-1), text, against, ratio, 1.2, ""))
		text, ratio = times(func(r *sharingRound) []float64 { return r.later })
		rows = append(rows, atMost("sharing", fmt.Sprintf("the %d later ones, worst", cfg.Requests-cfg.AtOnce), text, against, ratio, 0.2, ""))
		return nil
	})
	return rows, err
}

// sharingRound is what one prefix showed: times to first tokens in milliseconds, and prompt tokens.
type sharingRound struct {
	cold, first      float64
	joiners, later   []float64
	computed, needed float64
}

// shareOnce asks a lone cold request, and then cfg.Requests that share a prefix which nobody has asked before.
func (cfg *KVConfig) shareOnce(p *daemonproc.Proc, w writer, round int) (out sharingRound, err error) {
	lone, err := askKV(p.Socket, w.text(round, 901, cfg.Prefix+cfg.Unique), 8, nil)
	if err != nil {
		return out, err
	}
	out.cold = ms(lone.ttft)
	// How many tokens the prefix has is the tokenizer's to say; then nothing of it is cached.
	shared := w.text(round, 902, cfg.Prefix)
	alone, err := askKV(p.Socket, shared, 1, nil)
	if err != nil {
		return out, err
	}
	if err := dropAll(p.Socket); err != nil {
		return out, err
	}
	before, err := counters(p)
	if err != nil {
		return out, err
	}
	replies := make([]reply, cfg.Requests)
	errs := make([]error, cfg.Requests)
	next := make(chan int, cfg.Requests)
	for i := range cfg.Requests {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for k := range cfg.AtOnce {
		wg.Go(func() {
			time.Sleep(time.Duration(k) * 2 * time.Millisecond) // so that the first is the first
			for i := range next {
				replies[i], errs[i] = askKV(p.Socket, shared+w.text(i, 903, cfg.Unique), 8, nil)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	after, err := counters(p)
	if err != nil {
		return out, err
	}
	// Where the tokenizer joins the end of the prefix to what follows, a token of it is each request's own.
	out.needed = float64(alone.eos.Usage.PromptTokens)
	out.computed = after("prefill_tokens_merged_total") - before("prefill_tokens_merged_total")
	for i, r := range replies {
		out.needed += float64(r.eos.Usage.PromptTokens - alone.eos.Usage.PromptTokens)
		switch {
		case i == 0:
			out.first = ms(r.ttft)
		case i < cfg.AtOnce:
			out.joiners = append(out.joiners, ms(r.ttft))
		default:
			out.later = append(out.later, ms(r.ttft))
		}
	}
	return out, nil
}

// dropAll takes cached prefixes out of the pool, and their copies out of the tiers below.
func dropAll(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.KVDo(ctx, wire.KVDrop, "all")
	return err
}

// oversubscription: sessions that want three times the pool, against the same ones with room for all.
func (cfg *KVConfig) oversubscription() (rows []KVRow, err error) {
	const promptTokens = 64
	live := cfg.Sessions * (promptTokens + cfg.Answer)
	type side struct {
		replies []reply
		speed   float64
		m       func(string) float64
	}
	run := func(cells int) (s side, err error) {
		args := []string{"--ctx-size", fmt.Sprint(cells), "--parallel", fmt.Sprint(cfg.Sessions), "--cache-ram", "1GiB"}
		err = with(cfg.Start, args, func(p *daemonproc.Proc) error {
			w, err := newWriter(p.Socket)
			if err != nil {
				return err
			}
			s.replies = make([]reply, cfg.Sessions)
			errs := make([]error, cfg.Sessions)
			begin := time.Now()
			var wg sync.WaitGroup
			for i := range s.replies {
				wg.Go(func() {
					s.replies[i], errs[i] = askKV(p.Socket, "", cfg.Answer, func(r *wire.Request) {
						r.Prompt, r.Messages = "", []wire.Message{{Role: "user", Content: w.text(i, 920, promptTokens-8)}}
						if i%2 == 0 {
							r.Think.Mode, r.Think.BudgetTokens = wire.ThinkOn, cfg.Answer/2
						}
					})
				})
			}
			wg.Wait()
			took := time.Since(begin)
			tokens := 0
			for _, r := range s.replies {
				tokens += r.tokens
			}
			s.speed = float64(tokens) / took.Seconds()
			s.m, err = counters(p)
			return errors.Join(append(errs, err)...)
		})
		return s, err
	}
	free, err := run(live * 5 / 4)
	if err != nil {
		return nil, err
	}
	tight, err := run(live / 3)
	if err != nil {
		return nil, err
	}
	complete, same, thought := 0, 0, 0
	for i, r := range tight.replies {
		if r.eos.Usage.CompletionTokens == cfg.Answer {
			complete++
		}
		if r.text == free.replies[i].text {
			same++
		}
		if r.eos.Thought.Tokens > 0 {
			thought++
		}
	}
	return []KVRow{
		{"oversubscription", fmt.Sprintf("sessions complete (%d of them thought)", thought), fmt.Sprintf("%d (%d to the letter as with room)", complete, same), fmt.Sprintf("%d sessions", cfg.Sessions), float64(complete) / float64(cfg.Sessions), "1", complete == cfg.Sessions},
		{"oversubscription", "tokens/s", fmt.Sprintf("%.0f (%.0f preemptions)", tight.speed, tight.m("preemptions_total")), fmt.Sprintf("with room for all, %.0f", free.speed), tight.speed / free.speed, "≥ 0.7", tight.speed >= 0.7*free.speed},
		atMost("oversubscription", "blocks of answers evicted while lower tiers had some", fmt.Sprintf("%.0f (of %.0f)", tight.m("output_critical_avoidable"), tight.m("output_critical_eviction")), "", tight.m("output_critical_avoidable"), 0, ""),
	}, nil
}
