package fake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/runtime"
)

// The vocabulary: five markers, then one token per byte.
const (
	tokenEndOfText runtime.Token = iota
	tokenIMStart
	tokenIMEnd
	tokenThinkStart
	tokenThinkEnd
	firstByte
	firstExtra = firstByte + 256
)

var markers = [firstByte]string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"}

// ChatML is the default chat template.
const ChatML = `{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + ` +
	`'<|im_end|>\n' }}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

type vocab struct {
	bytes    [256]byte
	texts    [256]string
	markers  []string // the tokens before the bytes
	extra    []string // control tokens after them
	template string
}

func newVocab(cfg *Config) *vocab {
	v := &vocab{template: cfg.Template, markers: slices.Clone(markers[:]), extra: cfg.Markers}
	if v.template == "" && !cfg.NoTemplate {
		v.template = ChatML
	}
	if cfg.SpelledTags {
		v.markers[tokenThinkStart], v.markers[tokenThinkEnd] = "<|reserved_0|>", "<|reserved_1|>"
	}
	for i := range v.bytes {
		v.bytes[i] = byte(i)
		v.texts[i] = fmt.Sprintf("<0x%02X>", i)
		if i >= ' ' && i < 0x7f {
			v.texts[i] = string(rune(i))
		}
	}
	return v
}

func (v *vocab) Size() int                  { return int(firstByte) + len(v.bytes) + len(v.extra) }
func (v *vocab) known(t runtime.Token) bool { return t >= 0 && int(t) < v.Size() }
func (v *vocab) IsControl(t runtime.Token) bool {
	return t >= 0 && t < firstByte || t >= firstExtra && v.known(t)
}
func (v *vocab) IsEOG(t runtime.Token) bool { return t == tokenEndOfText || t == tokenIMEnd }
func (v *vocab) BOS() runtime.Token         { return runtime.NoToken }
func (v *vocab) EOS() runtime.Token         { return tokenIMEnd }
func (v *vocab) ChatTemplate() string       { return v.template }

func (v *vocab) Tokenize(dst []runtime.Token, text string, _, parseSpecial bool) ([]runtime.Token, error) {
	dst = slices.Grow(dst, len(text))
	for len(text) > 0 {
		t, n := v.first(text, parseSpecial)
		dst, text = append(dst, t), text[n:]
	}
	return dst, nil
}

// first returns the first token of a text that is not empty, and its length.
func (v *vocab) first(text string, parseSpecial bool) (t runtime.Token, n int) {
	if parseSpecial && text[0] == '<' {
		for t, m := range v.markers {
			if strings.HasPrefix(text, m) {
				return runtime.Token(t), len(m)
			}
		}
		for t, m := range v.extra {
			if strings.HasPrefix(text, m) {
				return firstExtra + runtime.Token(t), len(m)
			}
		}
	}
	return firstByte + runtime.Token(text[0]), 1
}

// written returns the text of a script that makes t the next token.
func (v *vocab) written(t runtime.Token) string {
	if i := t - firstByte; i >= 0 && int(i) < len(v.bytes) {
		return string(v.bytes[i : i+1])
	}
	return v.Text(t)
}

func (v *vocab) Piece(t runtime.Token) []byte {
	if t < firstByte || t >= firstExtra || !v.known(t) {
		return nil
	}
	i := t - firstByte
	return v.bytes[i : i+1 : i+1]
}

func (v *vocab) Text(t runtime.Token) string {
	switch {
	case !v.known(t):
		return ""
	case t < firstByte:
		return v.markers[t]
	case t >= firstExtra:
		return v.extra[t-firstExtra]
	}
	return v.texts[t-firstByte]
}

func (v *vocab) Find(text string) runtime.Token {
	for t := range runtime.Token(v.Size()) {
		if v.Text(t) == text {
			return t
		}
	}
	return runtime.NoToken
}

// script is a Script whose After is in tokens.
type script struct {
	after []runtime.Token
	emit  string
}

func newScript(v *vocab, s Script) script {
	if s.After == "" {
		s.After = markers[tokenIMStart] + "assistant\n"
	}
	after, _ := v.Tokenize(nil, s.After, false, true)
	return script{after, s.Emit}
}

// scripted returns the next token of the first script that matches q, or NoToken. spelled is the first byte of the
// marker that tok is.
func (e *Engine) scripted(q *sequence) (tok, spelled runtime.Token) {
	for i := range e.script {
		s := &e.script[i]
		// Try the shortest beginning of emit first: the last occurrence of after wins.
		for n := 0; n <= len(s.emit) && n+len(s.after) <= len(q.cells); n++ {
			if !e.endsWith(q.cells[:len(q.cells)-n], s.after) {
				continue
			}
			rest, ok := s.emit, true
			for _, c := range q.cells[len(q.cells)-n:] {
				if rest, ok = strings.CutPrefix(rest, e.vocab.written(e.cells[c].token)); !ok {
					break
				}
			}
			switch {
			case !ok:
			case rest == "":
				return tokenIMEnd, runtime.NoToken
			default:
				tok, _ = e.vocab.first(rest, true)
				return tok, firstByte + runtime.Token(rest[0])
			}
		}
	}
	return runtime.NoToken, runtime.NoToken
}

func (e *Engine) endsWith(cells []int32, tokens []runtime.Token) bool {
	if len(cells) < len(tokens) {
		return false
	}
	for k, i := range cells[len(cells)-len(tokens):] {
		if e.cells[i].token != tokens[k] {
			return false
		}
	}
	return true
}
