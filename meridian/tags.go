package meridian

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/runtime"
)

// Vocabulary is the part of runtime.Vocab that resolving tags needs.
type Vocabulary interface {
	Size() int
	Tokenize(dst []runtime.Token, text string, addSpecial, parseSpecial bool) ([]runtime.Token, error)
	Piece(t runtime.Token) []byte
	Text(t runtime.Token) string
	IsControl(t runtime.Token) bool
	Find(text string) runtime.Token
}

// Markers are the texts with which a model opens and closes its thinking. All of them are recognised; the first of each
// list is the one that is forced.
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
			return fmt.Errorf("%q is in both open and close; a text can be only one of them", s)
		}
	}
	return nil
}

// Tags are a model's markers as tokens of its vocabulary. The ids come from the loaded model, not from a table, because
// published tables of ids have been wrong. Tags are immutable and shared by all requests of the model; nil stands for a
// model that does not think.
type Tags struct {
	vocab       Vocabulary
	family      tags.Family
	assumed     bool
	open, close []runtime.Token // ids, when every marker is a single token

	// The byte matchers, nil when every marker is a single token. Each phase has one: before the first text, inside a
	// block, in an answer that may open another block, in an answer that may not.
	before, inside, reopens, answer *matcher
	// begins has the markers with which an answer begins after a thought; nil: it has none.
	begins    *matcher
	specials  []special // tokens that are parts of markers; nil without matchers
	thinkHead []byte    // of family.Channels
	callHead  []byte    // likewise
	callMarks [3][]byte // likewise: what begins a header, ends it, ends a message
	headers   *Headers  // likewise; nil unless its markers are tokens

	// Texts of control tokens that are not part of a marker: the boundaries of turns.
	boundary map[string]bool
	longest  int       // bytes of the longest of them
	lasts    [256]bool // their last bytes

	// The tokens to force.
	openSeq, closeSeq []runtime.Token
	endSeq            []runtime.Token  // ends a message with a header
	callSeq           []runtime.Token  // closes a thought before a call
	nextSeq           []runtime.Token  // ends one and begins the next; nil where no header says that it calls
	suffix            string           // text between close tag and answer
	opensLine         bool             // a line break follows the open tag
	finish            [3]runtime.Token // single-byte tokens 0x80, 0x90, 0xA0, or NoToken
}

// special is a token that is part of a marker. A matcher reads its text between fences (package tags); therefore
// the same characters in ordinary tokens are not a marker.
type special struct {
	id   runtime.Token
	text []byte // its text between fences
	mask heldByte
}

// Detect finds a model's markers: the configured ones, else those of the family whose markers the chat template
// contains, else those that the vocabulary has as single tokens. template is the template's text; the caller may append
// rendered output. For a model that does not think it returns nil, nil.
func Detect(v Vocabulary, configured Markers, template string) (*Tags, error) {
	if len(configured.Open)+len(configured.Close) > 0 {
		return Resolve(v, configured, template)
	}
	f, ok := tags.InTemplate(template)
	if !ok {
		if f, ok = tags.InVocab(func(s string) bool { return v.Find(s) != runtime.NoToken }); !ok {
			return nil, nil
		}
	}
	return resolve(v, f, template)
}

// Assume returns tags for a model that Detect does not know to think: the most common markers, recognised at the
// beginning of an answer. On such a model nothing is forced except the end of a thought that it has begun itself.
func Assume(v Vocabulary) (*Tags, error) {
	t, err := resolve(v, tags.Plain, "")
	if err != nil {
		return nil, err
	}
	t.assumed = true
	return t, nil
}

// configured is the family of markers that a user named.
const configured = "configured"

// Resolve turns markers into tags. The line breaks between close tag and answer are taken from template, which may be
// "".
func Resolve(v Vocabulary, m Markers, template string) (*Tags, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("markers: %w", err)
	}
	return resolve(v, tags.Family{Name: configured, Open: m.Open, Close: m.Close}, template)
}

func resolve(v Vocabulary, f tags.Family, template string) (*Tags, error) {
	t := &Tags{vocab: v, family: f, suffix: suffixOf(template, f.Close[0]), boundary: map[string]bool{}}
	t.opensLine = strings.Contains(template, f.Open[0]+"\n") || strings.Contains(template, f.Open[0]+`\n`)
	known := map[string]special{}
	texts := t.markers()
	mentioned := func(text string) bool {
		return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, text) })
	}
	for id := range runtime.Token(v.Size()) {
		piece := v.Piece(id)
		if len(piece) == 1 {
			if i := slices.Index(finishing[:], piece[0]); i >= 0 && t.finish[i] == 0 {
				t.finish[i] = id + 1
			}
		}
		control := v.IsControl(id)
		if !control && (len(piece) < 3 || !bracketed(piece)) {
			continue
		}
		switch text := v.Text(id); {
		case text != "" && mentioned(text):
			x := special{id: id}
			fence := tags.ShownFence
			if len(piece) == 0 {
				x.mask, fence = hidden, tags.HiddenFence
			}
			x.text = append(append([]byte{fence}, text...), tags.FenceEnd)
			if _, twice := known[text]; !twice {
				known[text] = x
			}
		case control && text != "":
			t.boundary[text] = true
			t.longest = max(t.longest, len(text))
			t.lasts[text[len(text)-1]] = true
		}
	}
	for i := range t.finish {
		t.finish[i]-- // 0 means not found and becomes NoToken
	}
	if t.singles() {
		return t, nil
	}
	for _, x := range known {
		t.specials = append(t.specials, x)
	}
	slices.SortFunc(t.specials, func(a, b special) int { return cmp.Compare(a.id, b.id) })
	t.build(known)
	t.setHeaders(known)
	var err error
	if t.openSeq, err = t.spell(v, f.Open[0]); err != nil {
		return nil, err
	}
	if t.closeSeq, err = t.spell(v, cmp.Or(f.Force, f.Close[0])); err != nil {
		return nil, err
	}
	t.close = t.closeSeq[:1]
	if c := f.Channels; c != nil {
		t.endSeq, err = t.spell(v, c.End[0])
		if err == nil && c.Call != "" {
			t.nextSeq, err = t.spell(v, c.End[0]+c.Turn)
		}
	}
	if t.callSeq = t.closeSeq; err == nil && f.ForceCall != "" {
		t.callSeq, err = t.spell(v, f.ForceCall)
	}
	return t, err
}

// singles resolves a family whose markers are all single tokens and whose answers contain nothing to hide.
func (t *Tags) singles() bool {
	f := &t.family
	if f.Channels != nil || f.Wrap[0] != "" || f.Force != "" {
		return false
	}
	for _, s := range f.Hidden {
		if id := t.vocab.Find(s); id == runtime.NoToken || len(t.vocab.Piece(id)) > 0 {
			return false
		}
	}
	ids := func(texts []string) (ids []runtime.Token) {
		for _, s := range texts {
			ids = append(ids, t.vocab.Find(s))
		}
		return ids
	}
	open, shut := ids(f.Open), ids(f.Close)
	if slices.Contains(open, runtime.NoToken) || slices.Contains(shut, runtime.NoToken) {
		return false
	}
	t.open, t.close = open, shut
	t.openSeq, t.closeSeq, t.callSeq = open[:1], shut[:1], shut[:1]
	return true
}

// special reports whether id is a token that is part of a marker.
func (t *Tags) special(id runtime.Token) bool {
	return slices.ContainsFunc(t.specials, func(x special) bool { return x.id == id })
}

// markers returns all texts of the family.
func (t *Tags) markers() []string {
	f := &t.family
	texts := slices.Concat(f.Open, f.Close, f.Hidden)
	for _, s := range []string{f.Force, f.Wrap[0], f.Wrap[1]} {
		if s != "" {
			texts = append(texts, s)
		}
	}
	if c := f.Channels; c != nil {
		texts = append(slices.Concat(texts, c.Start, c.End), c.Message)
	}
	return texts
}

// build makes a matcher for each phase.
func (t *Tags) build(known map[string]special) {
	marks := func(kind markKind, texts ...string) (out []mark) {
		for _, s := range texts {
			if s != "" {
				out = append(out, mark{fenced(s, known), kind})
			}
		}
		return out
	}
	f := &t.family
	if c := f.Channels; c != nil {
		t.thinkHead, t.callHead = []byte(c.Think), []byte(c.Call)
		for i, s := range []string{c.Start[0], c.Message, c.End[0]} {
			t.callMarks[i] = []byte(fenced(s, known))
		}
		m := newMatcher(slices.Concat(marks(markEnd, c.End...), marks(markHeader, c.Start...),
			marks(markMessage, c.Message))...)
		t.before, t.inside, t.reopens, t.answer = m, m, m, m
		return
	}
	open, shut := marks(markOpen, f.Open...), marks(markClose, f.Close...)
	rest := slices.Concat(marks(markHidden, f.Hidden...), marks(markWrap, f.Wrap[0]), marks(markUnwrap, f.Wrap[1]))
	t.before = newMatcher(slices.Concat(rest, open, shut)...)
	t.inside = newMatcher(shut...)
	t.reopens = newMatcher(slices.Concat(rest, open)...)
	if t.answer = newMatcher(rest...); f.Aside {
		t.answer = newMatcher(slices.Concat(rest, marks(markAside, f.Open...))...)
	}
	if begins := slices.Concat(marks(markHidden, f.Hidden...), marks(markWrap, f.Wrap[0])); len(begins) > 0 {
		t.begins = newMatcher(begins...)
	}
	if f.Name != configured {
		for _, m := range []*matcher{t.before, t.reopens, t.answer, t.begins} {
			m.longest()
		}
	}
}

// fenced returns a marker in the form that a matcher reads: with each part that is a token between fences.
func fenced(marker string, known map[string]special) string {
	var b strings.Builder
next:
	for i := 0; i < len(marker); {
		for j := len(marker); j > i+1; j-- {
			if x, ok := known[marker[i:j]]; ok {
				b.Write(x.text)
				i = j
				continue next
			}
		}
		b.WriteByte(marker[i])
		i++
	}
	return b.String()
}

// bracketed reports whether a piece has the shape of a marker. Some vocabularies do not declare such tokens as control
// tokens.
func bracketed(piece []byte) bool {
	for _, b := range [...][2]string{{"<", ">"}, {"[", "]"}, {"◁", "▷"}} {
		if strings.HasPrefix(string(piece), b[0]) && strings.HasSuffix(string(piece), b[1]) {
			return true
		}
	}
	return false
}

// read returns the bytes that a matcher reads for a token: the fenced text of a marker's token, or fences alone for
// any other control token, which shows nothing and ends a partial marker. isSpecial is true for both.
func (t *Tags) read(tok runtime.Token, piece []byte) (text []byte, mask heldByte, isSpecial bool) {
	for i := range t.specials {
		if x := &t.specials[i]; x.id == tok {
			return x.text, x.mask, true
		}
	}
	if len(piece) == 0 && t.vocab.IsControl(tok) {
		return lone[:], hidden, true
	}
	return piece, 0, false
}

var lone = [...]byte{tags.HiddenFence, tags.FenceEnd}

// finishing are the bytes that suffice to complete any UTF-8 character: 0x80 continues every character except after the
// lead bytes 0xE0, which needs 0xA0 or more, and 0xF0, which needs 0x90 or more.
var finishing = [3]byte{0x80, 0x90, 0xA0}

// spell returns the tokens to force for a marker. It checks that their text is the marker: a tokenizer that normalises
// text could change it, and a close that the Router does not recognise would be forced for ever.
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
		piece, _, special := t.read(id, v.Piece(id))
		if special {
			piece = piece[1 : len(piece)-1]
		}
		text = append(text, piece...)
	}
	if !strings.HasSuffix(string(text), marker) {
		return nil, fmt.Errorf("marker %q: the vocabulary spells it as %q; choose one that it can write", marker, text)
	}
	return seq, nil
}

// suffixOf returns the line breaks that a chat template writes after its close tag, literally or as "\\n" in a string;
// one line break when there are none.
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

// Known reports whether the model is known to mark its thinking.
func (t *Tags) Known() bool { return t != nil && !t.assumed }

// Fallback reports whether the markers are recognised in the text because the vocabulary has no single tokens for
// them. The metric vocab_fallback counts such requests.
func (t *Tags) Fallback() bool { return t != nil && t.inside != nil }

// Markers returns the texts that open and close a thought.
func (t *Tags) Markers() Markers { return Markers{Open: t.family.Open, Close: t.family.Close} }

// Texts returns all texts that mean something to a Router. They must not occur in the texts of users (Begin).
func (t *Tags) Texts() []string {
	if t == nil {
		return nil
	}
	return t.markers()
}

// Family returns the format's name, for logs and reports; "" when it is not known.
func (t *Tags) Family() string {
	if !t.Known() {
		return ""
	}
	return t.family.Name
}

// CloseIDs returns the tokens for which a row's statistics report close_mass and CloseRank: the close tags' ids, or the
// first token of the close sequence if it has several. The slice is read-only.
func (t *Tags) CloseIDs() []runtime.Token {
	if t == nil {
		return nil
	}
	return t.close
}

// after returns the tokens after a close tag: suffix, or the template's line breaks if suffix is "", then the answer
// cue.
func (t *Tags) after(suffix, cue string) ([]runtime.Token, error) {
	return tokenize(t.vocab, cmp.Or(suffix, t.suffix)+cue, false)
}

// tokenize tokenizes text for the middle of a sequence. It removes the space that some tokenizers put before any text.
func tokenize(v Vocabulary, text string, markers bool) ([]runtime.Token, error) {
	seq, err := v.Tokenize(nil, text, false, markers)
	if len(seq) > 1 && text[0] != ' ' && string(v.Piece(seq[0])) == " " {
		seq = seq[1:]
	}
	return seq, err
}

// finisher returns the single-byte token of lo, the lowest byte that continues a character, or NoToken.
func (t *Tags) finisher(lo byte) runtime.Token { return t.finish[slices.Index(finishing[:], lo)] }
