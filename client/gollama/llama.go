package llama

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/client"
)

// LLama is a connection to the daemon. Its methods may be called by several goroutines at the same time.
type LLama struct {
	c          *client.Client
	info       info
	embeddings bool

	mu       sync.Mutex
	callback func(string) bool
	newest   string // the prompt of the newest Predict or Eval and its answer, for SaveState
}

// info has the members of the daemon's report that LLama needs.
type info struct {
	Model *struct {
		Path    string `json:"path"`
		Name    string `json:"name"`
		KVTypeK string `json:"kv_type_k"`
		KVTypeV string `json:"kv_type_v"`
	} `json:"model"`
	Capabilities *struct {
		ContextTokens int `json:"n_ctx"`
	} `json:"capabilities"`
	Config struct {
		MaxTokens int `json:"max_tokens"`
	} `json:"config"`
}

// New connects to the daemon, waits until its model is loaded, and checks that it serves the model: a file's path, a
// name, or "" for any. The caller calls Free.
func New(model string, opts ...ModelOption) (*LLama, error) {
	mo := NewModelOptions(opts...)
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		return nil, err
	}
	l := &LLama{c: c, embeddings: mo.Embeddings}
	if err := c.WaitReady(ctx, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	about, err := c.Info(ctx)
	if err == nil {
		err = about.Decode(&l.info)
	}
	if err == nil {
		err = l.check(model, &mo)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return l, nil
}

// check returns why the daemon cannot stand for what New was asked for; nil: it can.
func (l *LLama) check(model string, mo *ModelOptions) error {
	m := l.info.Model
	if m == nil || l.info.Capabilities == nil {
		return errors.New("the daemon does not say which model it serves; uma-cli info shows its state")
	}
	if !serves(m.Path, m.Name, model) {
		return fmt.Errorf(`the daemon serves %s (%s), not %s; start uma-serve -m %s, or name "" for the model that `+
			`it serves`,
			m.Name, m.Path, model, model)
	}
	switch {
	case mo.ContextSize > l.info.Capabilities.ContextTokens:
		return fmt.Errorf("SetContext is %d; the daemon's context has %d tokens: start uma-serve with --ctx-size %d",
			mo.ContextSize, l.info.Capabilities.ContextTokens, mo.ContextSize)
	case mo.LoraBase != "" || mo.LoraAdapter != "":
		return errors.New("SetLoraAdapter and SetLoraBase are not supported by the daemon")
	}
	return l.checkCache(mo.F16Memory, "EnableF16Memory", mo.FreqRopeBase, mo.FreqRopeScale)
}

// serves reports whether the daemon's model, a file with a name, is the one asked for.
func serves(path, name, asked string) bool {
	if asked == "" || asked == name || asked == path {
		return true
	}
	a, err1 := os.Stat(asked)
	b, err2 := os.Stat(path)
	if err1 == nil && err2 == nil {
		return os.SameFile(a, b)
	}
	return err1 != nil && !strings.ContainsRune(asked, filepath.Separator) &&
		asked == strings.TrimSuffix(filepath.Base(path), ".gguf")
}

func (l *LLama) checkCache(f16 bool, option string, ropeBase, ropeScale float32) error {
	m := l.info.Model
	switch {
	case f16 && (m.KVTypeK != "f16" || m.KVTypeV != "f16"):
		return fmt.Errorf("%s wants a KV cache of f16; the daemon's is %s and %s (--cache-type-k, --cache-type-v)",
			option, m.KVTypeK, m.KVTypeV)
	case ropeBase != 0 && ropeBase != DefaultModelOptions.FreqRopeBase:
		return fmt.Errorf("the RoPE base is %g; the daemon takes the model's own: leave it out", ropeBase)
	case ropeScale != 0 && ropeScale != DefaultModelOptions.FreqRopeScale:
		return fmt.Errorf("the RoPE scale is %g; the daemon takes the model's own: leave it out", ropeScale)
	}
	return nil
}

// Free closes the connection and cancels what still runs on it. The model stays with the daemon.
func (l *LLama) Free() { l.c.Close() }

// SetTokenCallback sets the callback of each Predict that sets none; nil removes it.
func (l *LLama) SetTokenCallback(callback func(token string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callback = callback
}

// Predict continues text and returns the answer, without text and without its first space or line break.
func (l *LLama) Predict(text string, opts ...PredictOption) (string, error) {
	po := NewPredictOptions(opts...)
	r, err := l.request(text, &po)
	if err != nil {
		return "", err
	}
	s, err := l.c.Stream(context.Background(), r)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var out strings.Builder
	for token, err := range s.Tokens() {
		if err != nil {
			return "", err
		}
		if token.Phase == client.Thinking {
			continue
		}
		out.Write(token.Text)
		if !l.tell(&po, string(token.Text)) {
			if err := s.Cancel(); err != nil {
				return "", err
			}
			break
		}
	}
	l.mu.Lock()
	l.newest = text + out.String()
	l.mu.Unlock()
	if end := s.End(); po.DebugMode && end != nil {
		fmt.Fprintf(os.Stderr, "prompt: %d tokens, %d of them cached; answer: %d tokens (%s); first token after %.1f "+
			"ms, %.1f tokens/s\n",
			end.Usage.PromptTokens, end.Usage.CachedTokens, end.Usage.CompletionTokens, end.Reason,
			end.Timings.TTFT.Seconds()*1000, end.TokensPerSecond())
	}
	return strings.TrimPrefix(strings.TrimPrefix(out.String(), " "), "\n"), nil
}

// tell calls the callback of this call, or else of l, and reports whether the answer shall go on.
func (l *LLama) tell(po *PredictOptions, piece string) bool {
	f := po.TokenCallback
	if f == nil {
		l.mu.Lock()
		f = l.callback
		l.mu.Unlock()
	}
	return f == nil || f(piece)
}

// Eval computes text, so that a Predict that begins with it starts at once.
func (l *LLama) Eval(text string, opts ...PredictOption) error {
	po := NewPredictOptions(opts...)
	r, err := l.request(text, &po)
	if err != nil {
		return err
	}
	return l.fill(r)
}

// fill computes the prompt of r and generates nothing.
func (l *LLama) fill(r *client.Request) error {
	r.FillOnly, r.Stop, r.Format = true, nil, client.Format{}
	if _, err := l.c.Chat(context.Background(), r); err != nil {
		return err
	}
	l.mu.Lock()
	l.newest = r.Prompt
	l.mu.Unlock()
	return nil
}

// SpeculativeSampling is refused: the daemon decides itself when drafts pay, and no program's model takes part in that.
func (l *LLama) SpeculativeSampling(*LLama, string, ...PredictOption) (string, error) {
	return "", errors.New("SpeculativeSampling is not supported by the daemon; call Predict")
}

// request translates the options. An option that would change the answer and cannot be met is an error.
func (l *LLama) request(text string, po *PredictOptions) (*client.Request, error) {
	if err := l.checkCache(po.F16KV, "EnableF16KV", po.RopeFreqBase, po.RopeFreqScale); err != nil {
		return nil, err
	}
	switch {
	case text == "":
		return nil, errors.New("the prompt is empty")
	case po.TailFreeSamplingZ != 1:
		return nil, fmt.Errorf("SetTailFreeSamplingZ is %g; the daemon has no tail-free sampling: leave it out, or 1",
			po.TailFreeSamplingZ)
	case po.NegativePrompt != "" || po.NegativePromptScale != 0 && po.NegativePromptScale != 1:
		return nil, errors.New("SetNegativePrompt and SetNegativePromptScale are not supported by the daemon")
	}
	r := client.NewRequest()
	r.Prompt, r.ParseSpecial, r.Stop = text, true, po.StopPrompts
	r.MaxTokens = min(max(po.Tokens, 0), l.info.Config.MaxTokens)
	r.Format.Grammar = po.Grammar
	number := func(f float32) *float64 { return new(float64(f)) }
	r.Sampling = client.Sampling{
		Temperature: number(po.Temperature), TopK: new(max(po.TopK, 0)), TopP: number(po.TopP), MinP: new(0.0),
		TypicalP: number(po.TypicalP), RepeatPenalty: number(po.Penalty), PenaltyLastN: &po.Repeat,
		FrequencyPenalty: number(po.FrequencyPenalty), PresencePenalty: number(po.PresencePenalty),
		Mirostat: &po.Mirostat, MirostatTau: number(po.MirostatTAU), MirostatEta: number(po.MirostatETA),
		IgnoreEOS: po.IgnoreEOS,
	}
	if po.Seed > 0 {
		r.Seed = new(uint64(po.Seed))
	}
	if po.LogitBias != "" {
		id, bias, err := logitBias(po.LogitBias)
		if err != nil {
			return nil, err
		}
		r.LogitBias = []client.Bias{{Token: id, Add: float64(bias)}}
	}
	return r, nil
}

// logitBias reads "ID+BIAS" or "ID-BIAS".
func logitBias(text string) (id int32, bias float32, err error) {
	i := strings.IndexAny(text, "+-")
	if i > 0 {
		n, err := strconv.ParseUint(strings.TrimSpace(text[:i]), 10, 31)
		v, err2 := strconv.ParseFloat(strings.TrimSpace(text[i+1:]), 32)
		if err == nil && err2 == nil && !math.IsNaN(v) {
			if text[i] == '-' {
				v = -v
			}
			return int32(n), float32(v), nil
		}
	}
	return 0, 0, fmt.Errorf(`SetLogitBias is %q; it must be a token id, + or -, and a number, as "15043+1"`, text)
}
