package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config selects the models and programs of an examination.
type Config struct {
	Bin     string   // folder of uma-serve and of the libraries of back ends
	Backend string   // "cuda", "vulkan", or "cpu": the processor in the accelerator's place
	Llama   string   // llama-server; "" = it is left out
	Models  []string // GGUF files
	Build   []string // a command that is run first and makes the back end; nil = none
	Scratch string   // a folder for snapshots
	Tokens  int      // of an answer
	Prompts int      // whose answers are compared
	Pasted  int      // prompts of a storm
	Light   bool     // for a processor in a device's place: a quarter of the prompts' tokens, 16 streams, lightRows
	Near    float64  // limit of the gap between two tokens of a near tie, in nats
	Decode  Decoder  // makes the F32 weights that the processor computes with; nil = it uses the file's own
	Limit   time.Duration
	StepMax time.Duration // limit of a step; that of Build is Limit
	Log     io.Writer
}

// values are the results of a step, by name.
type values map[string]any

// Step is one examination. Without Error it passed.
type Step struct {
	Name    string  `json:"name"`
	Model   string  `json:"model,omitempty"`
	Server  string  `json:"server,omitempty"` // uma-serve or llama-server
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
	Values  values  `json:"values,omitempty"`
}

// Report is the result of a run.
type Report struct {
	Backend string  `json:"backend"`
	Device  string  `json:"device"` // as the engine names it; "" = no server started
	Engine  string  `json:"engine"`
	Started string  `json:"started"` // RFC 3339
	Seconds float64 `json:"seconds"`
	Steps   []Step  `json:"steps"`
}

// Failed returns the number of steps that did not pass.
func (r *Report) Failed() (n int) {
	for _, s := range r.Steps {
		if s.Error != "" {
			n++
		}
	}
	return n
}

// run is the state of an examination.
type run struct {
	*Config
	ctx    context.Context
	report *Report
	// saved is called after each step, so that the results so far survive the loss of the machine.
	saved func(*Report)

	// The start of a server is not part of a step, but of its model's.
	umaStart, llamaStart func(args ...string) (*server, error)
}

// Run examines everything that Limit leaves time for. The report is complete in any case; its steps have the errors.
func Run(ctx context.Context, cfg Config, saved func(*Report)) *Report {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, cfg.Limit)
	defer cancel()
	r := &run{Config: &cfg, ctx: ctx, saved: saved,
		report: &Report{Backend: cfg.Backend, Started: begin.UTC().Format(time.RFC3339)}}
	r.umaStart = func(args ...string) (*server, error) {
		return startUMA(filepath.Join(cfg.Bin, "uma-serve"), r.StepMax, args...)
	}
	if cfg.Llama != "" {
		r.llamaStart = func(args ...string) (*server, error) {
			return startLlama(cfg.Llama, cfg.Bin, r.StepMax, args...)
		}
	}
	if len(cfg.Build) > 0 {
		r.step("build", "", "", cfg.Limit, func(ctx context.Context, v values) error {
			return build(ctx, cfg.Build, v)
		})
	}
	for _, m := range cfg.Models {
		r.model(m)
	}
	r.report.Seconds = time.Since(begin).Seconds()
	saved(r.report)
	return r.report
}

// step runs fn within a limit and records its results. It reports whether fn succeeded.
func (r *run) step(name, model, server string, limit time.Duration,
	fn func(ctx context.Context, values values) error) bool {
	found := values{}
	begin := time.Now()
	err := r.ctx.Err()
	switch {
	case err != nil:
		err = fmt.Errorf("not run: the %v of the whole examination are over", r.Limit)
	default:
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		err = fn(ctx, found)
		if errors.Is(err, context.DeadlineExceeded) || err != nil && ctx.Err() != nil {
			err = fmt.Errorf("not done within %v: %w", min(limit, r.Limit), err)
		}
		cancel()
	}
	r.record(name, model, server, begin, err, found)
	return err == nil
}

// record adds a step that has ended to the report, and saves it.
func (r *run) record(name, model, server string, begin time.Time, err error, found values) {
	s := Step{Name: name, Server: server, Seconds: time.Since(begin).Seconds(), Values: found}
	if model != "" {
		s.Model = strings.TrimSuffix(filepath.Base(model), ".gguf")
	}
	result := "passed"
	if err != nil {
		s.Error = err.Error()
		result = "FAILED: " + s.Error
	}
	fmt.Fprintf(r.Log, "%6.1f s  %s %s %s: %s\n", s.Seconds, s.Name, s.Model, s.Server, result)
	r.report.Steps = append(r.report.Steps, s)
	r.saved(r.report)
}

// model examines one file: the processor's answers, then uma-serve's and llama-server's on the accelerator.
func (r *run) model(file string) {
	var gpu []answer
	cpu, own := r.reference(file)
	store := filepath.Join(r.Scratch, "kv-"+filepath.Base(file))
	args := append(r.umaArgs(file, false), "--cache-dir", filepath.Join(store, "cells"),
		"--slot-save-path", filepath.Join(store, "slots"))
	var kept *conversation
	r.serve(file, "uma-serve", r.umaStart, args, func(s *server, name string) {
		r.step("device", file, name, r.StepMax, func(ctx context.Context, v values) error {
			return r.device(ctx, s, v)
		})
		r.step("answers", file, name, r.StepMax, func(ctx context.Context, v values) (err error) {
			if gpu, err = r.answers(ctx, s); err != nil {
				return err
			}
			return r.judge(cpu, gpu, own, v)
		})
		r.loads(file, name, s)
		r.step("snapshot, save", file, name, r.StepMax, func(ctx context.Context, v values) (err error) {
			kept, err = r.save(ctx, s, v)
			return err
		})
		r.step("cancel", file, name, r.StepMax, func(ctx context.Context, v values) error {
			return r.cancel(ctx, s, v)
		})
	})
	if kept != nil {
		r.serve(file, "uma-serve", r.umaStart, args, func(s *server, name string) {
			r.step("snapshot, restore", file, name, r.StepMax, func(ctx context.Context, v values) error {
				return r.restore(ctx, s, kept, v)
			})
		})
	}
	if r.llamaStart != nil {
		r.serve(file, "llama-server", r.llamaStart, r.llamaArgs(file), func(s *server, name string) {
			r.step("answers", file, name, r.StepMax, func(ctx context.Context, v values) error {
				its, err := r.answers(ctx, s)
				if err != nil {
					return err
				}
				return r.judge(its, gpu, nil, v)
			})
			r.loads(file, name, s)
		})
	}
}

// The processor's servers, as the report names them.
const (
	onProcessor = "uma-serve, processor"
	inFloats    = onProcessor + ", F32"
)

// reference returns the answers that the accelerator's are compared with: the processor's with the model's weights in
// F32. own is how far from them the processor's are with the file's own weights; nil where these are F32, or are to be
// the reference.
func (r *run) reference(file string) (truth []answer, own *Agreement) {
	ask := func(file, title string, got func(v values, its []answer) error) {
		r.serve(file, title, r.umaStart, r.umaArgs(file, true), func(s *server, name string) {
			r.step("answers of the processor", file, name, r.StepMax, func(ctx context.Context, v values) error {
				its, err := r.answers(ctx, s)
				v["answers"] = len(its)
				if err != nil {
					return err
				}
				return got(v, its)
			})
		})
	}
	keep := func(_ values, its []answer) error {
		truth = its
		return nil
	}
	if r.Decode == nil {
		ask(file, onProcessor, keep)
		return truth, nil
	}
	floats, quantised := filepath.Join(r.Scratch, filepath.Base(file)), false
	defer os.Remove(floats) // the next model may need the room
	if !r.step("F32 weights", file, "", r.StepMax, func(ctx context.Context, v values) (err error) {
		if quantised, err = hasRounded(file); err != nil || !quantised {
			v["tensors"] = 0
			return err
		}
		return writeFloats(ctx, file, floats, r.Decode, v)
	}) {
		return nil, nil
	}
	if !quantised {
		ask(file, onProcessor, keep)
		return truth, nil
	}
	ask(floats, inFloats, keep)
	if len(truth) > 0 {
		ask(file, onProcessor, func(v values, its []answer) (err error) {
			own, err = r.compare(truth, its, v)
			return err
		})
	}
	return truth, own
}

// loads are the steps that both servers are measured by.
func (r *run) loads(file, name string, s *server) {
	for _, n := range []int{1, 4, 16, 64} {
		if r.Light && n > 16 {
			break
		}
		title := fmt.Sprintf("%d streams", n)
		if n == 1 {
			title = "1 stream"
		}
		r.step(title, file, name, r.StepMax, func(ctx context.Context, v values) error {
			return r.streams(ctx, s, n, v)
		})
	}
	r.step("storm", file, name, r.StepMax, func(ctx context.Context, v values) error { return r.storm(ctx, s, v) })
	r.step("prefix", file, name, r.StepMax, func(ctx context.Context, v values) error { return r.prefix(ctx, s, v) })
}

// serve starts a server, hands it to fn and stops it. A server that does not start is a failed step.
func (r *run) serve(file, name string, start func(args ...string) (*server, error), args []string,
	fn func(s *server, name string)) {
	var s *server
	if !r.step("start", file, name, r.StepMax, func(context.Context, values) (err error) {
		s, err = start(args...)
		return err
	}) {
		return
	}
	before := len(r.report.Steps)
	fn(s, name)
	for i := range r.report.Steps[before:] {
		// The clients learn that an engine process has ended; the server's log has the reason.
		if step := &r.report.Steps[before+i]; step.Error != "" && s.log != nil {
			step.Values["log"] = s.log()
			r.saved(r.report)
			break
		}
	}
	begin := time.Now()
	if err := s.stop(); err != nil {
		r.record("stop", file, name, begin, err, nil) // a step would not be run once the time is over
	}
}

// contextTokens hold 64 streams at once, and a storm's prompts.
const contextTokens = "32768"

// lightRows returns the rows of a graph in a run that is Light, as an argument. ggml's Vulkan back end multiplies up to
// eight with kernels for vectors, one for each number of rows. LLVM 15, of Mesa's llvmpipe in Debian 12's backports,
// compiles an unrolled one for matrices for minutes. Rows that are computed together share the reading of the weights,
// which saves more than the further kernels cost where the model is not a tiny one.
func lightRows(file string) string {
	const tiny = 64 << 20 // bytes
	if st, err := os.Stat(file); err == nil && st.Size() > tiny {
		return "8"
	}
	return "1"
}

func (r *run) umaArgs(file string, processor bool) []string {
	args := []string{"-m", file, "--ctx-size", contextTokens, "--parallel", "64", "--speculate", "0"}
	if r.Light {
		args = append(args, "--ubatch-size", lightRows(file))
	}
	if processor || r.Backend == "cpu" {
		return append(args, "--gpu-layers", "0")
	}
	return append(args, "--gpu-layers", "999") // without a device the start fails
}

func (r *run) llamaArgs(file string) []string {
	layers := "999"
	if r.Backend == "cpu" {
		layers = "0"
	}
	args := []string{"-m", file, "-c", contextTokens, "-np", "64", "--kv-unified", "-ngl", layers}
	if r.Light {
		args = append(args, "-ub", lightRows(file))
	}
	return args
}
