package bench

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// oversubscription compares sessions that need three times the pool with the same sessions and room for all.
func (cfg *KVConfig) oversubscription() (rows []KVRow, err error) {
	const promptTokens = 64
	live := kvSessions * (promptTokens + kvAnswer)
	type side struct {
		replies []reply
		speed   float64
		m       func(string) float64
	}
	run := func(cells int) (s side, err error) {
		args := []string{"--ctx-size", fmt.Sprint(cells), "--parallel", fmt.Sprint(kvSessions), "--cache-ram", "1GiB"}
		err = with(cfg.Start, args, func(p *daemonproc.Proc) error {
			w, err := newWriter(p.Socket)
			if err != nil {
				return err
			}
			s.replies = make([]reply, kvSessions)
			errs := make([]error, kvSessions)
			begin := time.Now()
			var wg sync.WaitGroup
			for i := range s.replies {
				wg.Go(func() {
					s.replies[i], errs[i] = askKV(p.Socket, "", kvAnswer, func(r *wire.Request) {
						r.Prompt, r.Messages = "", []wire.Message{{Role: "user",
							Content: w.text(i, 920, promptTokens-8)}}
						if i%2 == 0 {
							r.Think.Mode, r.Think.BudgetTokens = wire.ThinkOn, kvAnswer/2
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
		if r.eos.Usage.CompletionTokens == kvAnswer {
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
		{"oversubscription", fmt.Sprintf("sessions complete (%d of them thought)", thought),
			fmt.Sprintf("%d (%d identical to those with room)", complete, same),
			fmt.Sprintf("%d sessions", kvSessions), float64(complete) / float64(kvSessions), "1",
			complete == kvSessions},
		{"oversubscription", "tokens/s",
			fmt.Sprintf("%.0f (%.0f preemptions)", tight.speed, tight.m("preemptions_total")),
			fmt.Sprintf("with room for all, %.0f", free.speed), tight.speed / free.speed, "≥ 0.7",
			tight.speed >= 0.7*free.speed},
		atMost("oversubscription", "blocks of answers evicted while lower tiers had some",
			fmt.Sprintf("%.0f (of %.0f)", tight.m("output_critical_avoidable"), tight.m("output_critical_eviction")),
			"", tight.m("output_critical_avoidable"), 0, ""),
	}, nil
}
