package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TwoModelsConfig configures the measurement of two models behind one front: an answer of the first one beside a storm
// of prompts for the second.
type TwoModelsConfig struct {
	Chat, Prompts string        // model files
	TargetMs      float64       // ITL target of the answer
	Clients       int           // that submit prompts, each the next one as soon as the one before is computed
	Prompt        int           // tokens of each, about
	Alone         time.Duration // that each model is measured alone
	Storm         time.Duration // that both run
	Args          []string      // of every daemon, before the side's
	Start         func(args ...string) (*daemonproc.Proc, error)
	Log           io.Writer
}

// TwoModels is a side: with or without the arbiter, or figures of another server.
type TwoModels struct {
	Side       string  `json:"side"`
	ChatAlone  Latency `json:"chat_alone"`
	Chat       Latency `json:"chat"`                            // ITL of the answer in the storm
	Alone      float64 `json:"prompt_tokens_per_second_alone"`  // of the second model
	Prompts    float64 `json:"prompt_tokens_per_second"`        // in the storm
	Ratio      float64 `json:"ratio"`                           // Prompts / Alone
	Yields     float64 `json:"prompt_steps_cut_for_the_answer"` // of the second model, in the storm
	Load       string  `json:"load_average,omitempty"`          // of the machine, before the side
	FromFlags  bool    `json:"from_flags,omitempty"`            // figures that were given, not measured
	TargetMs   float64 `json:"target_ms"`
	MeetsChat  bool    `json:"meets_target"`
	MeetsRatio bool    `json:"meets_ratio"`
}

// MinPromptRatio is the least prompt throughput of the second model in the storm, relative to its throughput alone.
const MinPromptRatio = 0.55

// Judge compares a side with its requirements.
func (s *TwoModels) Judge(targetMs float64) {
	s.TargetMs, s.MeetsChat, s.MeetsRatio = targetMs, s.Chat.P95 <= targetMs, s.Ratio >= MinPromptRatio
}

// RunTwoModels measures with the arbiter and without it.
func RunTwoModels(cfg TwoModelsConfig) (out []TwoModels, err error) {
	for _, on := range []bool{true, false} {
		side, err := cfg.side(on)
		if err != nil {
			return out, fmt.Errorf("arbiter %v: %w", on, err)
		}
		say(cfg.Log, "%s: ITL p95 %.1f ms, prompts %.0f of %.0f tokens/s", side.Side, side.Chat.P95, side.Prompts,
			side.Alone)
		out = append(out, side)
	}
	return out, nil
}

const (
	chatModel    = "chat"
	promptsModel = "prompts"
)

// side starts a front with both models and measures.
func (cfg *TwoModelsConfig) side(arbiter bool) (out TwoModels, err error) {
	dir, err := os.MkdirTemp("", "uma-two")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "uma-serve.toml")
	text := ""
	for _, m := range [][2]string{{chatModel, cfg.Chat}, {promptsModel, cfg.Prompts}} {
		text += fmt.Sprintf("[models.%s]\nmodel = '%s'\npinned = true\n", m[0], m[1])
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return out, err
	}
	out = TwoModels{Side: "uma-serve", Load: loadAverage()}
	if !arbiter {
		out.Side = "uma-serve, --arbiter=false"
	}
	args := append([]string{"--config", file, "--idle-unload", "0", "--no-prefix-cache", "--cache-ram", "0",
		fmt.Sprintf("--arbiter=%v", arbiter), fmt.Sprintf("--itl-target-ms=%g", cfg.TargetMs)}, cfg.Args...)
	err = with(cfg.Start, args, func(p *daemonproc.Proc) error {
		s := twoModelsRun{cfg: cfg, p: p}
		return s.run(&out)
	})
	out.Judge(cfg.TargetMs)
	return out, err
}

// loadAverage returns the first number of /proc/loadavg, "" where there is none.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// twoModelsRun is one side's measurement.
type twoModelsRun struct {
	cfg *TwoModelsConfig
	p   *daemonproc.Proc

	mu   sync.Mutex
	gaps []float64 // of the chat, in ms, since they were taken last
	next int       // number of the next prompt
}

func (s *twoModelsRun) run(out *TwoModels) error {
	// Both models learn what their steps cost before anything counts.
	for range 3 {
		if err := s.ask(promptsModel, s.text(), 1); err != nil {
			return err
		}
		if err := s.ask(chatModel, "warm up", 64); err != nil {
			return err
		}
	}
	var err error
	if out.Alone, _, err = s.storm(s.cfg.Alone); err != nil {
		return err
	}
	stop, err := s.chat()
	if err != nil {
		return err
	}
	time.Sleep(s.cfg.Alone)
	out.ChatAlone = latency(s.take())
	if out.Prompts, out.Yields, err = s.storm(s.cfg.Storm); err != nil {
		return errors.Join(err, stop())
	}
	out.Chat = latency(s.take())
	if err := stop(); err != nil {
		return err
	}
	if out.Chat.Tokens == 0 || out.Alone == 0 {
		return fmt.Errorf("the chat had %d tokens in the storm, the prompts alone %.0f tokens/s: nothing was measured",
			out.Chat.Tokens, out.Alone)
	}
	out.Ratio = out.Prompts / out.Alone
	return nil
}

// take returns the chat's gaps since the last call.
func (s *twoModelsRun) take() (out []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, s.gaps = s.gaps, nil
	return out
}

// text returns a prompt that begins like no other.
func (s *twoModelsRun) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return prompt(s.next, 940, s.cfg.Prompt)
}

// ask asks a model for n tokens.
func (s *twoModelsRun) ask(model, text string, n int) error {
	c, err := dial(s.p.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return askOf(c, model, text, n)
}

// askOf asks a model for n tokens and waits for the end of its answer.
func askOf(c *conn, model, text string, n int) error {
	r := defaults
	r.ID, r.Model, r.Prompt, r.MaxTokens, r.Sampling.IgnoreEOS = "q", model, text, n, true
	if err := c.send(&r); err != nil {
		return err
	}
	for {
		ev, err := c.next()
		switch {
		case err != nil:
			return err
		case ev.Kind == wire.EventError:
			return fmt.Errorf("model %s: %s", model, ev.Error.Message)
		case ev.Kind == wire.EventEOS:
			return nil
		}
	}
}

// storm submits prompts for the second model for length, and returns how many of their tokens were computed in a
// second, by the model's own count, and the number of its steps that were cut for the chat.
func (s *twoModelsRun) storm(length time.Duration) (perSecond, yields float64, err error) {
	var clients sync.WaitGroup
	stop := make(chan struct{})
	failed := make(chan error, s.cfg.Clients)
	for range s.cfg.Clients {
		c, err := dial(s.p.Socket)
		if err != nil {
			return 0, 0, err
		}
		defer c.Close()
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := askOf(c, promptsModel, s.text(), 1); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	time.Sleep(min(length/10, time.Second)) // until all of them wait
	s.take()
	begin := time.Now()
	before, err := counters(s.p)
	if err == nil {
		time.Sleep(length)
	}
	after, aerr := counters(s.p)
	took := time.Since(begin).Seconds()
	close(stop)
	if err = errors.Join(err, aerr); err == nil {
		count := func(name string) float64 {
			name = "models." + promptsModel + "." + name
			return after(name) - before(name)
		}
		perSecond, yields = count("prefill_tokens_merged_total")/took, count("device_yields_total")
	}
	gaps := s.take()
	clients.Wait()
	s.mu.Lock()
	s.gaps = gaps // without those after the storm
	s.mu.Unlock()
	select {
	case e := <-failed:
		err = errors.Join(err, e)
	default:
	}
	return perSecond, yields, err
}

// chat begins an answer of the first model that is asked anew when it ends, and collects its gaps. stop ends it.
func (s *twoModelsRun) chat() (stop func() error, err error) {
	c, err := dial(s.p.Socket)
	if err != nil {
		return nil, err
	}
	r := defaults
	r.ID, r.Model, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS = "chat", chatModel, "tell on and on",
		chatTokens, true, true
	if err := c.send(&r); err != nil {
		c.Close()
		return nil, err
	}
	ended := make(chan error, 1)
	begun := make(chan struct{}, 1)
	go func() {
		for last := (time.Time{}); ; {
			ev, err := c.next()
			now := time.Now()
			switch {
			case err == nil && ev.Kind == wire.EventToken:
				if !last.IsZero() {
					s.mu.Lock()
					s.gaps = append(s.gaps, ms(now.Sub(last)))
					s.mu.Unlock()
				}
				last = now
				select {
				case begun <- struct{}{}:
				default:
				}
			case err == nil && ev.Kind == wire.EventEOS: // again
				last, err = time.Time{}, c.send(&r)
			case err == nil && ev.Kind == wire.EventError:
				err = fmt.Errorf("the chat ended: %s", ev.Error.Message)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-begun:
	case err := <-ended:
		c.Close()
		return nil, err
	}
	return func() error {
		select {
		case err := <-ended:
			c.Close()
			return err
		default:
		}
		c.Close() // cancels the answer
		<-ended
		return nil
	}, nil
}
