package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// build runs a command whose last line of output tells what it made.
func build(ctx context.Context, command []string, v values) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// Compilers are children of children: all of the group ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	text := string(out[max(0, len(out)-2000):])
	lines := strings.Split(strings.TrimSpace(text), "\n")
	v["made"] = lines[len(lines)-1]
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, text)
	}
	return nil
}

// device checks that the engine computes on the accelerator.
func (r *run) device(ctx context.Context, s *server, v values) error {
	var info struct {
		Engine       string
		Capabilities struct {
			Device string
			Name   string `json:"device_name"`
		}
	}
	if err := s.get(ctx, "/info", &info); err != nil {
		return err
	}
	r.report.Device, r.report.Engine = info.Capabilities.Name, info.Engine
	v["device"], v["name"] = info.Capabilities.Device, info.Capabilities.Name
	if r.Backend != "cpu" && info.Capabilities.Device == "cpu" {
		return fmt.Errorf("the engine computes on the processor (%s): the library of the %s back end is not found or "+
			"finds no device", info.Capabilities.Name, r.Backend)
	}
	return nil
}

// answers asks the first Prompts prompts, four at a time.
func (r *run) answers(ctx context.Context, s *server) ([]answer, error) {
	texts := prompts[:min(r.Prompts, len(prompts))]
	ids := make([][]int, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = s.tokens(ctx, text); err != nil {
			return nil, err
		}
	}
	return together(len(ids), 4, func(i int) (answer, error) {
		return s.ask(ctx, request{prompt: ids[i], tokens: r.Tokens, probs: 10, cold: true})
	})
}

// compare records how two sides agree.
func (r *run) compare(first, other []answer, v values) (*Agreement, error) {
	if len(first) == 0 || len(first) != len(other) {
		return nil, errors.New("there is nothing to compare with: the other side gave no answers")
	}
	a := agree(first, other, r.Near)
	v["answers"], v["equal"], v["near_ties"], v["different"] = a.Answers, a.Equal, a.Near, a.Different
	v["worst_gap"], v["drift"], v["mean_drift"] = a.WorstGap, a.Drift, a.MeanDrift
	return &a, nil
}

// worse is the largest ratio of a device's distance from the F32 answers to that of the processor with the same
// quantised weights. A device that rounds activations as the processor does, such as CUDA's, leaves them elsewhere.
const worse = 1.5

// judge records how two sides agree, and fails where they part by more than a near tie. own is how the processor with
// other's weights agrees with first, which excuses a device that is as near; nil excuses nothing.
func (r *run) judge(first, other []answer, own *Agreement, v values) error {
	a, err := r.compare(first, other, v)
	if err != nil || a.Different == 0 {
		return err
	}
	err = fmt.Errorf("%d of %d answers part by more than %g nats: the worst gap is %.3f", a.Different, a.Answers,
		r.Near, a.WorstGap)
	if own == nil {
		return err
	}
	if float64(a.Different) > worse*float64(own.Different) || a.MeanDrift > worse*own.MeanDrift {
		return fmt.Errorf("%w, the mean drift %.4f; the processor's with the same weights, of which %g times are "+
			"allowed: %d answers, %.4f", err, a.MeanDrift, worse, own.Different, own.MeanDrift)
	}
	return nil
}

// length returns the tokens of a prompt that has so many in a run that is not Light.
func (r *run) length(tokens int) int {
	if r.Light {
		return tokens / 4
	}
	return tokens
}

// streams asks n answers at once, each to its own prompt.
func (r *run) streams(ctx context.Context, s *server, n int, v values) error {
	length := r.length(64)
	text, err := s.text(ctx, n*length)
	if err != nil {
		return err
	}
	all, err := together(n, n, func(i int) (answer, error) {
		return s.ask(ctx, request{prompt: text[i*length : (i+1)*length], tokens: r.Tokens, cold: true})
	})
	record(v, latencyOf(all))
	return err
}

// storm has four chats answer while clients submit long prompts.
func (r *run) storm(ctx context.Context, s *server, v values) error {
	const chats = 4
	long, length, short := r.Pasted, r.length(1024), r.length(64)
	text, err := s.text(ctx, long*length)
	if err != nil {
		return err
	}
	var pasted []answer
	var pastedErr error
	var wg sync.WaitGroup
	begin := sync.OnceFunc(func() { // once a chat has its first token
		wg.Go(func() {
			pasted, pastedErr = together(long, 4, func(i int) (answer, error) {
				return s.ask(ctx, request{prompt: text[i*length : (i+1)*length], tokens: 1, cold: true})
			})
		})
	})
	chat, err := together(chats, chats, func(i int) (answer, error) {
		return s.ask(ctx, request{prompt: text[i*short : (i+1)*short], tokens: 4 * r.Tokens, cold: true, first: begin})
	})
	wg.Wait()
	record(v, latencyOf(chat))
	v["pasted_ttft_ms"] = latencyOf(pasted).TTFT
	return errors.Join(err, pastedErr)
}

// prefix asks the same long prompt twice: the second time it is not computed.
func (r *run) prefix(ctx context.Context, s *server, v values) error {
	length := r.length(768)
	text, err := s.text(ctx, length)
	if err != nil {
		return err
	}
	var got [2]answer
	for i := range got {
		if got[i], err = s.ask(ctx, request{prompt: text, tokens: r.Tokens, probs: 10}); err != nil {
			return err
		}
	}
	v["prompt"], v["cached"] = length, got[1].cached
	v["ttft_ms"], v["ttft_again_ms"] = ms(got[0].times[0]), ms(got[1].times[0])
	if got[1].cached < length*9/10 {
		return fmt.Errorf("%d of %d tokens were used again", got[1].cached, length)
	}
	return r.judge(got[:1], got[1:], nil, v)
}

// conversation is an answer that a later process continues from its snapshot.
type conversation struct {
	prompt []int
	answer answer
}

const (
	slotID   = 1
	slotFile = "gpu-check"
)

// save stores a conversation's tokens and cells.
func (r *run) save(ctx context.Context, s *server, v values) (*conversation, error) {
	text, err := s.text(ctx, r.length(512))
	if err != nil {
		return nil, err
	}
	c := &conversation{prompt: text}
	if c.answer, err = s.ask(ctx, request{prompt: text, tokens: r.Tokens, probs: 10, slot: slotID}); err != nil {
		return nil, err
	}
	var out struct {
		Saved int `json:"n_saved"`
	}
	err = s.post(ctx, fmt.Sprintf("/slots/%d?action=save", slotID), map[string]any{"filename": slotFile}, &out)
	if err != nil {
		return nil, err
	}
	if v["saved"] = out.Saved; out.Saved < len(text) {
		return nil, fmt.Errorf("%d tokens were saved of a conversation of %d", out.Saved, len(text)+r.Tokens)
	}
	return c, nil
}

// restore loads the conversation in a new process and asks the same again.
func (r *run) restore(ctx context.Context, s *server, c *conversation, v values) error {
	var out struct {
		Restored int `json:"n_restored"`
	}
	err := s.post(ctx, fmt.Sprintf("/slots/%d?action=restore", slotID), map[string]any{"filename": slotFile}, &out)
	if err != nil {
		return err
	}
	again, err := s.ask(ctx, request{prompt: c.prompt, tokens: r.Tokens, probs: 10, slot: slotID})
	if err != nil {
		return err
	}
	v["restored"], v["cached"], v["ttft_ms"] = out.Restored, again.cached, ms(again.times[0])
	if again.cached < len(c.prompt)*9/10 {
		return fmt.Errorf("%d of %d tokens were used again", again.cached, len(c.prompt))
	}
	return r.judge([]answer{c.answer}, []answer{again}, nil, v)
}

// cancel has clients disconnect while they are answered. The server ends those answers and continues.
func (r *run) cancel(ctx context.Context, s *server, v values) error {
	text, err := s.text(ctx, 8*64)
	if err != nil {
		return err
	}
	if _, err := together(8, 8, func(i int) (answer, error) {
		return s.ask(ctx, request{prompt: text[i*64 : (i+1)*64], tokens: 1500, cut: 4, cold: true})
	}); err != nil {
		return err
	}
	begin := time.Now()
	for {
		var slots []struct {
			Busy bool `json:"is_processing"`
		}
		if err := s.get(ctx, "/slots", &slots); err != nil {
			return err
		}
		busy := 0
		for _, slot := range slots {
			if slot.Busy {
				busy++
			}
		}
		if busy == 0 {
			break
		}
		if time.Since(begin) > 10*time.Second {
			return fmt.Errorf("%d answers still ran 10 s after their clients had disconnected", busy)
		}
		time.Sleep(10 * time.Millisecond)
	}
	v["ended_after_ms"] = ms(time.Since(begin))
	_, err = s.ask(ctx, request{prompt: text[:64], tokens: r.Tokens, cold: true})
	return err
}

func record(v values, l latency) {
	v["tokens"], v["tokens_per_second"], v["ttft_p50_ms"], v["itl_p95_ms"] = l.Tokens, l.Rate, l.TTFT, l.ITL95
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// together calls ask for 0 … n-1, at most atOnce at a time.
func together(n, atOnce int, ask func(i int) (answer, error)) ([]answer, error) {
	out, errs := make([]answer, n), make([]error, n)
	free := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			out[i], errs[i] = ask(i)
			<-free
		})
	}
	wg.Wait()
	return out, errors.Join(slices.DeleteFunc(errs, func(e error) bool { return e == nil })...)
}

// tokens returns the ids of a text, with the mark of a beginning where the model has one.
func (s *server) tokens(ctx context.Context, text string) ([]int, error) {
	var out struct{ Tokens []int }
	err := s.post(ctx, "/tokenize", map[string]any{"content": text, "add_special": true}, &out)
	if err == nil && len(out.Tokens) == 0 {
		err = fmt.Errorf("no token in %q", text)
	}
	return out.Tokens, err
}

// text is n tokens of prose that does not repeat itself.
func (s *server) text(ctx context.Context, n int) ([]int, error) {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %d. ", prompts[i%len(prompts)], i*7919%10007)
		if i > 64 && b.Len() > 16*n { // no tokenizer makes a token of so many bytes here
			break
		}
	}
	ids, err := s.tokens(ctx, b.String())
	if err == nil && len(ids) < n {
		err = fmt.Errorf("a text of %d bytes has %d tokens, want %d", b.Len(), len(ids), n)
	}
	if err != nil {
		return nil, err
	}
	return ids[:n], nil
}
