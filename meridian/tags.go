package meridian

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/runtime"
)

// Vocabulary is what tags are resolved against: a part of runtime.Vocab.
type Vocabulary interface {
	Size() int
	Tokenize(dst []runtime.Token, text string, addSpecial, parseSpecial bool) ([]runtime.Token, error)
	Piece(t runtime.Token) []byte
	Text(t runtime.Token) string
	IsControl(t runtime.Token) bool
	Find(text string) runtime.Token
}

// Markers are the texts with which a model opens and closes its thinking. Of several, all are recognised and the
// first is the one that is forced.
type Markers struct {
	Open  []string `toml:"open"`
	Close []string `toml:"close"`
}

const (
	maxMarkerBytes = 128 // of one marker
	maxMarkers     = 8   // of each kind
)

func (m *Markers) validate() error {
	for _, k := range []struct {
		name  string
		texts []string
	}{{"open", m.Open}, {"close", m.Close}} {
		if n := len(k.texts); n < 1 || n > maxMarkers {
			return fmt.Errorf("%s has %d markers; it must have 1…%d", k.name, n, maxMarkers)
		}
		for i, s := range k.texts {
			if len(s) < 1 || len(s) > maxMarkerBytes {
				return fmt.Errorf("%s[%d] has %d bytes; it must have 1…%d", k.name, i, len(s), maxMarkerBytes)
			}
			if !utf8.ValidString(s) {
				return fmt.Errorf("%s[%d] is not UTF-8", k.name, i)
			}
		}
	}
	for _, s := range m.Open {
		if slices.Contains(m.Close, s) {
			return fmt.Errorf("%q opens and closes; one text cannot do both", s)
		}
	}
	return nil
}

// known are the markers in use, in the order in which they are looked for.
var known = []Markers{
	{[]string{"<think>"}, []string{"</think>"}}, // DeepSeek-R1, Qwen3, QwQ and most others
	{[]string{"[THINK]"}, []string{"[/THINK]"}}, // Magistral
	harmony,
	{[]string{"<seed:think>"}, []string{"</seed:think>"}},          // Seed-OSS
	{[]string{"<|START_THINKING|>"}, []string{"<|END_THINKING|>"}}, // Command A
	{[]string{"◁think▷"}, []string{"◁/think▷"}},                    // Kimi
	{[]string{"<|inner_prefix|>"}, []string{"<|inner_suffix|>"}},   // Apertus
	{[]string{"<thought>"}, []string{"</thought>"}},                // several fine-tunes
	{[]string{"<reasoning>"}, []string{"</reasoning>"}},
}

// harmony is gpt-oss's format: thinking is the channel "analysis", the answer the channel "final". The longer forms
// of the close take the end of the old message and the head of the new one out of the text.
var harmony = Markers{
	Open: []string{"<|channel|>analysis<|message|>"},
	Close: []string{
		"<|end|><|start|>assistant<|channel|>final<|message|>",
		"<|start|>assistant<|channel|>final<|message|>",
		"<|channel|>final<|message|>",
	},
}

// Tags are a model's markers as its vocabulary spells them. They come from the loaded model, never from a table:
// published tables of ids have been wrong. Immutable and shared by all requests of the model; nil is a model
// that does not think.
type Tags struct {
	vocab       Vocabulary
	markers     Markers
	open, close []runtime.Token // ids, when every marker is a single token

	// The byte matchers of models whose markers are several tokens; nil for the others. By what a phase must
	// recognise: either kind before the first text, only closes inside a block, only opens in an answer.
	either, closes, opens *matcher
	control               map[runtime.Token][]byte // texts of control tokens, whose pieces are empty; nil without matchers
	turnEnd               map[runtime.Token]bool   // control tokens that are no part of a marker: a turn begins or ends there

	// What is forced.
	openSeq, closeSeq []runtime.Token
	suffix            string           // text between close tag and answer
	finish            [3]runtime.Token // single-byte tokens 0x80, 0x90, 0xA0, or NoToken
}

// Detect finds a model's markers: the configured ones if there are any; else the first known pair that the
// vocabulary has as single tokens (or, for Harmony, whose parts it has); else the first known pair that the chat
// template mentions, recognised over several tokens. A model with none of these does not think: nil, nil.
func Detect(v Vocabulary, configured Markers, template string) (*Tags, error) {
	if len(configured.Open)+len(configured.Close) > 0 {
		return Resolve(v, configured, template)
	}
	single := func(s string) bool { return v.Find(s) != runtime.NoToken }
	for _, m := range known {
		if single(m.Open[0]) && single(m.Close[0]) ||
			m.Open[0] == harmony.Open[0] && single("<|channel|>") && single("<|message|>") && single("<|start|>") {
			return Resolve(v, m, template)
		}
	}
	for _, m := range known {
		if strings.Contains(template, m.Open[0]) && strings.Contains(template, m.Close[0]) {
			return Resolve(v, m, template)
		}
	}
	return nil, nil
}

// Resolve turns markers into tags. template tells what the model writes between close tag and answer; it may be "".
func Resolve(v Vocabulary, m Markers, template string) (*Tags, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("markers: %w", err)
	}
	t := &Tags{vocab: v, markers: m, suffix: suffixOf(template, m.Close[0]), turnEnd: map[runtime.Token]bool{}}
	singles := true
	find := func(texts []string) (ids []runtime.Token) {
		for _, s := range texts {
			id := v.Find(s)
			singles = singles && id != runtime.NoToken
			ids = append(ids, id)
		}
		return ids
	}
	t.open, t.close = find(m.Open), find(m.Close)
	texts := map[runtime.Token][]byte{}
	for id := range runtime.Token(v.Size()) {
		piece := v.Piece(id)
		if len(piece) == 1 {
			if i := slices.Index(finishing[:], piece[0]); i >= 0 && t.finish[i] == 0 {
				t.finish[i] = id + 1
			}
		}
		if !v.IsControl(id) {
			continue
		}
		text := v.Text(id)
		texts[id] = []byte(text)
		if !m.mentions(text) {
			t.turnEnd[id] = true
		}
	}
	for i := range t.finish {
		t.finish[i]-- // 0, none found, becomes NoToken
	}
	if singles {
		t.openSeq, t.closeSeq = t.open[:1], t.close[:1]
		return t, nil
	}
	t.open, t.control = nil, texts
	t.either, t.closes, t.opens = newMatcher(m.Open, m.Close), newMatcher(nil, m.Close), newMatcher(m.Open, nil)
	var err error
	if t.openSeq, err = t.spell(v, m.Open[0]); err != nil {
		return nil, err
	}
	if t.closeSeq, err = t.spell(v, m.Close[0]); err != nil {
		return nil, err
	}
	t.close = t.closeSeq[:1]
	return t, nil
}

// finishing are the bytes that complete a UTF-8 character begun by anything: 0x80 continues every character but those
// whose lead byte narrows what may come second (0xE0: from 0xA0, 0xF0: from 0x90).
var finishing = [3]byte{0x80, 0x90, 0xA0}

// mentions reports whether a control token's text is part of a marker.
func (m *Markers) mentions(text string) bool {
	has := func(s string) bool { return strings.Contains(s, text) }
	return text != "" && (slices.ContainsFunc(m.Open, has) || slices.ContainsFunc(m.Close, has))
}

// spell is a marker as the tokens that are forced for it. They are checked to show up as that marker: a tokenizer
// that normalises text could make something else of it, and a close nobody recognises would be forced for ever.
func (t *Tags) spell(v Vocabulary, marker string) ([]runtime.Token, error) {
	if id := v.Find(marker); id != runtime.NoToken {
		return []runtime.Token{id}, nil
	}
	seq, err := tokenize(v, marker, true)
	if err != nil {
		return nil, fmt.Errorf("marker %q: %w", marker, err)
	}
	var text []byte
	for _, id := range seq {
		text = append(text, t.text(id, v.Piece(id))...)
	}
	if !strings.HasSuffix(string(text), marker) {
		return nil, fmt.Errorf("marker %q: the vocabulary spells it as %q; choose one that it can write", marker, text)
	}
	return seq, nil
}

// text is what a matcher reads of a token: control tokens, which show nothing, by their names.
func (t *Tags) text(tok runtime.Token, piece []byte) []byte {
	if len(piece) == 0 {
		return t.control[tok]
	}
	return piece
}

// suffixOf is the line breaks a chat template writes after its close tag, as such or as "\\n" in one of its strings; one
// when it says nothing.
func suffixOf(template, tag string) string {
	longest := ""
	for rest := template; ; {
		_, after, found := strings.Cut(rest, tag)
		if !found {
			return cmp.Or(longest, "\n")
		}
		rest = after
		n := 0
		for ; n < 4; n++ {
			var ok bool
			if after, ok = strings.CutPrefix(after, "\n"); ok {
				continue
			}
			if after, ok = strings.CutPrefix(after, `\n`); !ok {
				break
			}
		}
		if n > len(longest) {
			longest = strings.Repeat("\n", n)
		}
	}
}

// Known reports whether the model marks its thinking.
func (t *Tags) Known() bool { return t != nil }

// Fallback reports whether the markers are recognised in the text because the vocabulary has no single tokens for
// them. (The metric vocab_fallback counts such requests.)
func (t *Tags) Fallback() bool { return t != nil && t.either != nil }

// Markers are the texts.
func (t *Tags) Markers() Markers { return t.markers }

// CloseIDs are the tokens whose probability and rank a row's statistics give as close_mass and CloseRank: the close
// tags' ids, or the first token of the close sequence where it has several. Read only.
func (t *Tags) CloseIDs() []runtime.Token {
	if t == nil {
		return nil
	}
	return t.close
}

// after is what comes after a close tag: the template's own line breaks (or suffix, when not ""), then the answer
// cue, which may be "".
func (t *Tags) after(suffix, cue string) ([]runtime.Token, error) {
	return tokenize(t.vocab, cmp.Or(suffix, t.suffix)+cue, false)
}

// tokenize spells text in the middle of a sequence. Some tokenizers put a space before whatever they get; it is
// taken off again.
func tokenize(v Vocabulary, text string, markers bool) ([]runtime.Token, error) {
	seq, err := v.Tokenize(nil, text, false, markers)
	if len(seq) > 1 && text[0] != ' ' && string(v.Piece(seq[0])) == " " {
		seq = seq[1:]
	}
	return seq, err
}

// finisher is the single-byte token of the lowest byte that continues a character, or NoToken.
func (t *Tags) finisher(lo byte) runtime.Token { return t.finish[slices.Index(finishing[:], lo)] }
