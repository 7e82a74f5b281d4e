//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// deviceWait is the longest wait for a device that computes on the processor and compiles its kernels first.
const deviceWait = 15 * time.Minute

// oneRow is --ubatch-size of these daemons: ggml multiplies a row with its kernels for vectors. LLVM 15 compiles one
// for matrices for minutes, on busy cores for longer than a step may take. The engine's contract has graphs of many
// rows.
const oneRow = "1"

// deviceTie is the largest difference of two tokens' log-probabilities at which a device may choose the other one than
// the processor. Their F32 logits of a small random model are less than 0.08 apart, see runtime/llama's TestSplit.
const deviceTie = 0.16

// onDevice returns --gpu-layers of UMA_TEST_GPU_LAYERS, see scripts/device-check.sh. The test is skipped where that
// names no device.
func onDevice(t *testing.T) string {
	t.Helper()
	text := os.Getenv("UMA_TEST_GPU_LAYERS")
	if text == "" || text == "0" {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if n < 0 {
		return "all"
	}
	return text
}

// deviceModel is a model with F32 weights, which the processor does not round.
func deviceModel(t *testing.T) string {
	t.Helper()
	cfg := ggufgen.Tiny()
	cfg.Name, cfg.Type = "ggufgen-tiny-f32", ggufgen.F32
	return ggufgen.Cached(t, cfg)
}

// startLayers starts a daemon with so many layers on the device, its engine process in the sandbox. stop ends it.
func startLayers(t *testing.T, layers string, args ...string) (s *server, stop func()) {
	t.Helper()
	return startThere(t, deviceModel(t), layers, args...)
}

// startThere is startLayers with another model. auto leaves flash attention out where a part of the layers is on the
// device; then ggml takes a kernel for the scores of more than 1,024 cells that LLVM 15 compiles for longer than a step
// may take.
func startThere(t *testing.T, model, layers string, args ...string) (s *server, stop func()) {
	t.Helper()
	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), deviceWait, nil, append([]string{"-m", model, "-t", "1",
		"--gpu-layers", layers, "--flash-attn", "on", "--serve-found=false", "--speculate", "0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := p.Stop(time.Minute); err != nil {
			t.Errorf("the daemon did not stop in order: %v\n%s", err, p.Log())
		}
		if t.Failed() {
			t.Logf("log of the daemon with --gpu-layers %s:\n%s", layers, p.Log())
		}
	})
	t.Cleanup(stop)
	return &server{Proc: p, t: t}, stop
}

// patient is dial for a device that compiles its kernels.
func (s *server) patient() *client {
	s.t.Helper()
	c := s.dial()
	if err := c.SetDeadline(time.Now().Add(deviceWait)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// sampleOf returns a metric of a scrape by its name and one of its labels, such as tier="host"; 0 where it has none.
func (s *server) sampleOf(name, label string) (sum float64) {
	s.t.Helper()
	for line := range strings.Lines(get(s.t, s, "/metrics", "*/*")) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') &&
			strings.Contains(rest, label) {
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:len(rest)-1], 64)
			if err != nil {
				s.t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// weights returns the bytes of weights on devices.
func (s *server) weights() (bytes uint64) {
	s.t.Helper()
	for _, d := range s.info().Devices {
		if d.Backend != "" && d.Name != "CPU" {
			bytes += d.Weights
		}
	}
	return bytes
}

// usesDevice checks that a daemon has computed on its device, within the sandbox.
func (s *server) usesDevice() {
	s.t.Helper()
	in, weights := s.info(), s.weights()
	graphs := s.sampleOf("uma_device_graphs_total", "")
	if graphs == 0 || weights == 0 || in.Capabilities.Device == "cpu" {
		s.t.Errorf("%v graphs were computed on a device, which has %d bytes of weights: %+v, %+v", graphs, weights,
			in.Devices, in.Capabilities)
	}
	if b := in.Sandbox; b == nil || !b.Seccomp || !b.NoNewPrivs {
		s.t.Errorf("the sandbox: %+v", b)
	}
	s.t.Logf("%v graphs on %s, %d bytes of weights there, sandbox %+v", graphs, in.Capabilities.DeviceName, weights,
		in.Sandbox)
}

// answer asks for n tokens and returns them, and how many tokens of the prompt were cached.
func (s *server) answer(prompt string, n int) (said, wire.Usage) {
	s.t.Helper()
	c := s.patient()
	defer c.Close()
	c.request(compared("a", prompt, n))
	end := c.mustEnd("a", wire.Length)
	return c.said["a"], end.Usage
}

// TestDeviceStorm: chats are answered on a device as on the processor, also while long prompts are pasted and clients
// disconnect in the middle of their answers.
func TestDeviceStorm(t *testing.T) {
	layers := onDevice(t)
	const chats, tokens = 8, 48
	prompt := func(i int) string {
		return fmt.Sprintf("story %d about %s: ", i, strings.Repeat(string(rune('a'+i)), 5+i))
	}
	args := []string{"-c", "8192", "--ubatch-size", oneRow}
	host, stop := startLayers(t, "0", args...)
	var want [chats]said
	for i := range want {
		want[i], _ = host.answer(prompt(i), tokens)
	}
	stop()
	s, _ := startLayers(t, layers, args...)
	s.answer("a", 2) // its kernels are compiled
	var wg sync.WaitGroup
	for i := range want {
		wg.Go(func() {
			c := s.patient()
			defer c.Close()
			for round := range 3 {
				id := fmt.Sprint(i, "/", round)
				c.request(compared(id, prompt(i), tokens))
				if ev, err := c.end(id); err != nil || ev.Kind != wire.EventEOS {
					t.Errorf("client %d: %+v %v", i, ev, err)
					return
				}
				if err := likeWithin(want[i], c.said[id], tokens, deviceTie); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	for i := range 4 {
		wg.Go(func() { // pasted prompts
			c := s.patient()
			defer c.Close()
			for round := range 2 {
				id := fmt.Sprint("pasted", i, "/", round)
				c.request(greedy(id, fmt.Sprint(i, round, " ")+long(300), 1))
				if ev, err := c.end(id); err != nil || ev.Kind != wire.EventEOS {
					t.Errorf("%s: %+v %v", id, ev, err)
				}
			}
		})
		wg.Go(func() { // clients that disconnect
			for round := range 3 {
				c := s.patient()
				c.request(greedy("gone", fmt.Sprint("gone ", i, round), 2000))
				for n := 0; n < 3; {
					ev, err := c.next()
					if err != nil || ev.Kind == wire.EventError {
						t.Errorf("%+v %v", ev, err)
						break
					}
					if ev.Kind == wire.EventToken {
						n++
					}
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	s.settle(func(in reports.Info) error {
		if l := in.Live; l.Requests != 0 || l.InFlight != 0 || l.LiveCells != 0 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	s.usesDevice()
}

// TestDeviceTiers: cells of a device that were evicted to the host's memory, and those that a later process finds on
// disk, come back to the device: the answers are the processor's, and the prompts are not computed again.
func TestDeviceTiers(t *testing.T) {
	layers := onDevice(t)
	const prompts, tokens = 5, 24
	args := []string{"-c", "1024", "--parallel", "2", "--ubatch-size", oneRow}
	prompt := func(i int) string { return fmt.Sprintf("part %d %c: ", i, 'a'+i) + long(400) }
	host, stop := startLayers(t, "0", args...)
	var want [prompts]said
	for i := range want {
		want[i], _ = host.answer(prompt(i), tokens)
	}
	stop()
	dir := filepath.Join(t.TempDir(), "cells")
	args = append(args, "--cache-ram", "64MiB", "--cache-dir", dir)
	s, stop := startLayers(t, layers, args...)
	ask := func(what string, tier wire.CacheTier, i int) {
		t.Helper()
		got, use := s.answer(prompt(i), tokens)
		if err := likeWithin(want[i], got, tokens, deviceTie); err != nil {
			t.Errorf("%s: prompt %d: %v", what, i, err)
		}
		if tier != wire.TierNone && (use.CacheTier != tier || use.CachedTokens < use.PromptTokens*9/10) {
			t.Errorf("%s: prompt %d: %d of %d tokens were cached, in tier %s", what, i, use.CachedTokens,
				use.PromptTokens, use.CacheTier)
		}
	}
	// moved waits until a tier's counter is that of all prompts: a scrape may be that of 100 ms ago.
	moved := func(tier wire.CacheTier) {
		t.Helper()
		const name = "uma_kv_pages_in_total"
		waitfor.True(t, fmt.Sprintf("%s counts %d prompts of tier %s", name, prompts, tier), func() bool {
			return s.sampleOf(name, fmt.Sprintf("tier=%q", tier)) >= prompts*400
		})
	}
	for i := range prompts { // the pool has room for two
		ask("computed", wire.TierNone, i)
	}
	for i := range prompts {
		ask("restored", wire.TierHost, i)
	}
	moved(wire.TierHost)
	s.usesDevice()
	stop()
	s, _ = startLayers(t, layers, args...)
	for i := range prompts {
		ask("restored by another process", wire.TierDisk, i)
	}
	moved(wire.TierDisk)
	s.usesDevice()
}

// TestDeviceEAT: thoughts of a device are the processor's, with EAT and without. With a threshold that every thought is
// below, EAT ends it, as stalled because a random model is never sure; with one that none is below, its probes change
// no token. Where the output layer is on the device, the rows of the probes stay there.
func TestDeviceEAT(t *testing.T) {
	layers := onDevice(t)
	const budget, tokens = 400, 440 // a random text ends few lines and sentences, where probes are
	type thought struct {
		said   said
		ended  string
		tokens int
		probes int
	}
	think := func(layers, exit, delta string) (out thought) {
		s, stop := startLayers(t, layers, "-c", "4096", "--ubatch-size", oneRow,
			"--meridian", "eat_probe_interval_tokens=4", "--meridian", "eat_probe_max_interval_tokens=8",
			"--meridian", "eat_warmup_probes=1", "--meridian", "min_think_tokens=0",
			"--meridian", "eat_ema_variance_threshold="+delta)
		defer stop()
		c := s.patient()
		defer c.Close()
		c.request(fmt.Sprintf(`{"id":"a","messages":[{"role":"user","content":"think of it"}],"max_tokens":%d,`+
			`"temperature":0,"ignore_eos":true,"stream":true,"logprobs":20,"think":{"mode":"on","budget_tokens":%d,`+
			`"early_exit":%q}}`, tokens, budget, exit))
		end := c.mustEnd("a", wire.Length)
		out = thought{c.said["a"], string(end.Thought.Ended), end.Thought.Tokens, end.Thought.Probes}
		if layers != "0" {
			s.usesDevice()
			rows := s.sampleOf("uma_device_probes_total", "")
			logits := s.sampleOf("uma_device_logits_bytes_total", "")
			if rows > 0 && (int(rows) != out.probes || int(logits)%(4*512) != 0) {
				t.Errorf("%v rows of %d probes were probed on the device; %v bytes of logits", rows, out.probes, logits)
			}
			t.Logf("%s, δ = %s: ended by %s after %d tokens, %d probes, %v of them on the device, %v bytes of logits "+
				"for %d tokens", exit, delta, out.ended, out.tokens, out.probes, rows, logits, tokens)
		}
		return out
	}
	for _, c := range []struct{ exit, delta, ended string }{{"off", "1e-9", "hard_cap"}, {"eat", "1e-9", "hard_cap"},
		{"eat", "1000", "stalled"}} {
		want, got := think("0", c.exit, c.delta), think(layers, c.exit, c.delta)
		if err := likeWithin(want.said, got.said, len(got.said), deviceTie); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		for _, th := range []thought{want, got} {
			if th.ended != c.ended || (th.probes > 0) != (c.exit == "eat") {
				t.Errorf("%+v: the thought ended by %s after %d tokens with %d probes", c, th.ended, th.tokens,
					th.probes)
			}
		}
	}
}

// TestDeviceExperts: with the experts of some layers, or of all, in the host's memory, a daemon on a device answers as
// the processor does, and has that much less on the device.
func TestDeviceExperts(t *testing.T) {
	layers := onDevice(t)
	const prompts, tokens = 2, 24
	cfg := ggufgen.TinyExperts()
	cfg.Name, cfg.Type = "ggufgen-tiny-experts-f32", ggufgen.F32
	model := ggufgen.Cached(t, cfg)
	prompt := func(i int) string { return fmt.Sprintf("layer %d and expert %c: ", i, 'a'+i) }
	host, stop := startThere(t, model, "0", "-c", "1024", "--ubatch-size", oneRow)
	var want [prompts]said
	for i := range want {
		want[i], _ = host.answer(prompt(i), tokens)
	}
	stop()
	layer := uint64(cfg.Experts * 3 * cfg.Embedding * cfg.FFN * 4) // bytes of its experts
	on := cfg.Layers + 1                                           // layers on the device, the output is one
	if n, err := strconv.Atoi(layers); err == nil {
		on = min(n, on)
	}
	var all uint64
	for _, moe := range []int{0, 1, -1} {
		s, stop := startThere(t, model, layers, "-c", "1024", "--ubatch-size", oneRow, "--n-cpu-moe",
			strconv.Itoa(moe))
		for i := range want {
			got, _ := s.answer(prompt(i), tokens)
			if err := likeWithin(want[i], got, tokens, deviceTie); err != nil {
				t.Errorf("--n-cpu-moe %d: prompt %d: %v", moe, i, err)
			}
		}
		s.usesDevice()
		there := s.weights()
		if moe == 0 {
			all = there
		}
		if want := all - layer*uint64(runtime.HostExperts(cfg.Layers, on, moe)); there != want {
			t.Errorf("--n-cpu-moe %d: %d bytes of weights are on the device, want %d", moe, there, want)
		}
		stop()
	}
}

// TestDeviceIsMissing: a daemon with a back end whose driver is hidden, or that finds no card, says so in one line and
// computes on the processor; with --gpu-layers it does not start.
func TestDeviceIsMissing(t *testing.T) {
	onDevice(t)
	if len(os.Getenv("GGML_VK_VISIBLE_DEVICES")) == 0 {
		t.Skip("not a software device of Vulkan")
	}
	for name, c := range map[string]struct{ env, want string }{
		"hidden driver": {"VK_DRIVER_FILES=/nonexistent/driver.json", "VK_DRIVER_FILES"},
		"no card":       {"GGML_VK_VISIBLE_DEVICES=", "no card"},
	} {
		args := []string{"-m", deviceModel(t), "-t", "1", "-c", "512", "--serve-found=false"}
		exe := filepath.Join(bin, "uma-serve")
		p, err := daemonproc.Start(exe, deviceWait, []string{c.env}, args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := &server{Proc: p, t: t}
		if got, _ := s.answer("hello", 4); len(got) != 4 {
			t.Errorf("%s: %v", name, got)
		}
		if n := s.sampleOf("uma_device_graphs_total", ""); n != 0 {
			t.Errorf("%s: %v graphs on a device", name, n)
		}
		if err := p.Stop(time.Minute); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var lines []string
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, "no device is used") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s: the log has %q, want one line with %q in\n%s", name, lines, c.want, p.Log())
		}
		p, err = daemonproc.Start(exe, deviceWait, []string{c.env}, append(args, "--gpu-layers", "all")...)
		if err == nil {
			_ = p.Stop(time.Minute)
			t.Errorf("%s: --gpu-layers all starts", name)
		} else if !strings.Contains(err.Error(), "no device can be used: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		t.Logf("%s: %s\n%v", name, lines, err)
	}
}
