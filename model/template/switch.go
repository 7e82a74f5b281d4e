package template

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// Thinking is the caller's setting for the template's thinking switch. The zero value keeps the template's default.
type Thinking struct {
	Mode   Mode
	Effort string // one of Efforts, "" for none
	Budget int    // tokens of thought; 0 = not named
	Past   Past   // thoughts of earlier turns
}

// Mode switches thinking on or off.
type Mode uint8

const (
	ModeDefault Mode = iota // as the template decides
	ModeAuto                // as the model decides, where the template can leave it to the model
	ModeOff
	ModeOn
)

// Efforts are the levels of effort, the least first.
var Efforts = []string{"minimal", "low", "medium", "high", "xhigh", "max"}

// Switch is a template's thinking switch. It is found by reading the template's variables and the words it compares
// them with, and by rendering with them. Templates call it enable_thinking, thinking, reasoning, reasoning_effort,
// thinking_effort, reasoning_strength, thinking_mode, thinking_budget and otherwise.
type Switch struct {
	bools   []string // true or false
	words   []wordVar
	budgets []string // a number of tokens
	suffix  string   // text that a user's message turns thinking off with: "/no_think"
	// shuts: without a variable, for which the template names no default, the prompt is that of thinking, and behind
	// it a thought that is closed already.
	shuts bool
	past  []pastVar
}

// wordVar is a variable that holds a word.
type wordVar struct {
	name   string
	off    string            // the word for no thinking, "" where there is none
	auto   string            // the word that leaves it to the model
	on     string            // the word that turns thinking on, "" where nothing needs to be said
	levels map[string]string // effort → word
}

// Names returns the variables that the template is switched with, sorted.
func (s *Switch) Names() []string {
	names := slices.Concat(s.bools, s.budgets)
	for _, w := range s.words {
		names = append(names, w.name)
	}
	if s.suffix != "" {
		names = append(names, strings.TrimSpace(s.suffix))
	}
	slices.Sort(names)
	return names
}

// Vars returns the variables that set t; nil when there is nothing to set.
func (s *Switch) Vars(t Thinking) map[string]any {
	vars := map[string]any{}
	s.setPast(vars, t.Past)
	switch t.Mode {
	case ModeOff:
		s.setBools(vars, false)
		for _, w := range s.words {
			if w.off != "" {
				vars[w.name] = w.off
			} else if least := w.least(); len(s.bools) == 0 && least != "" {
				vars[w.name] = least
			}
		}
		for _, name := range s.budgets {
			vars[name] = int64(0)
		}
		return notEmpty(vars)
	case ModeOn:
		s.setBools(vars, true)
		for _, w := range s.words {
			if w.on != "" {
				vars[w.name] = w.on
			}
		}
	case ModeAuto:
		for _, w := range s.words {
			if w.auto != "" {
				vars[w.name] = w.auto
			}
		}
	}
	// An effort asks for thinking; a thought that the template closes in advance is not the model's decision.
	if t.Effort != Efforts[0] && (t.Effort != "" || s.shuts) {
		s.setBools(vars, true)
	}
	for _, w := range s.words {
		if word := w.levels[t.Effort]; word != "" {
			vars[w.name] = word
		} else if t.Effort != "" && t.Effort != Efforts[0] && w.on != "" {
			vars[w.name] = w.on
		}
	}
	if t.Budget > 0 {
		for _, name := range s.budgets {
			vars[name] = int64(t.Budget)
		}
	}
	return notEmpty(vars)
}

// Suffix returns the text to append to the last user message for t; "" for templates that are not switched that way.
func (s *Switch) Suffix(t Thinking) string {
	if t.Mode == ModeOff {
		return s.suffix
	}
	return ""
}

func (s *Switch) setBools(vars map[string]any, on bool) {
	for _, name := range s.bools {
		vars[name] = on
	}
}

func notEmpty(vars map[string]any) map[string]any {
	if len(vars) == 0 {
		return nil
	}
	return vars
}

// least returns the word of the lowest effort.
func (w *wordVar) least() string {
	for _, e := range Efforts {
		if word := w.levels[e]; word != "" {
			return word
		}
	}
	return ""
}

// slowRender: a template that takes longer for one short message is not rendered dozens of times to find its switch.
const slowRender = 200 * time.Millisecond

// Words by which templates mean the same.
var (
	offWords = []string{"none", "no_think", "no-think", "nothink", "off", "disabled", "disable", "false",
		"non-thinking", "non_thinking", "chat", "no"}
	autoWords = []string{"auto", "adaptive", "dynamic"}
	onWords   = []string{"enabled", "on", "enable", "think", "thinking", "true", "yes"}
	// ranks is the effort that a word stands for.
	ranks = map[string]int{"minimal": 0, "min": 0, "low": 1, "light": 1, "medium": 2, "normal": 2, "high": 3,
		"heavy": 3, "xhigh": 4, "extra_high": 4, "max": 5, "maximum": 5}
)

// free returns the words of a variable that a template only prints, by the variable's name.
func free(name string) []string {
	if strings.Contains(name, "strength") {
		return []string{"low", "medium", "high", "xhigh"}
	}
	return []string{"low", "medium", "high"}
}

// kindOf returns the type of a thinking variable of this name: 'b' a truth value, 'w' a word, 'n' a number of tokens, 0
// no thinking switch. Names about past thinking or its format are none.
func kindOf(name string) byte {
	if !strings.Contains(name, "think") && !strings.Contains(name, "reason") {
		return 0
	}
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
	}
	switch {
	case has("preserve", "keep", "drop", "skip", "clear", "retain", "history", "previous", "past", "last", "render",
		"interleav", "truncat",
		"strip", "content", "token", "start", "end_", "_end", "begin", "close", "open", "text", "prompt", "tag",
		"instruction", "message", "format"):
		return 0
	case has("budget"):
		return 'n'
	case has("effort", "strength", "mode", "level"):
		return 'w'
	}
	return 'b'
}

// Switch finds t's thinking switch. The result is immutable.
func (t *Template) Switch(bos, eos string) *Switch {
	s := &Switch{}
	render := func(content string, vars map[string]any) (string, bool) {
		out, err := t.Render(Input{Messages: []Message{{Role: "user", Content: content}}, AddGenerationPrompt: true,
			BOS: bos, EOS: eos, Extra: vars, Now: time.Unix(0, 0)})
		return out, err == nil
	}
	const probe = "question-1"
	plain, ok := "", false
	for try := 0; ; try++ { // more than once: the machine may be busy
		begun := time.Now()
		if plain, ok = render(probe, nil); !ok || try == 3 {
			return s
		}
		if time.Since(begun) < slowRender {
			break
		}
	}
	differ := func(name string, a, b any) bool {
		x, ok1 := render(probe, map[string]any{name: a})
		y, ok2 := render(probe, map[string]any{name: b})
		return ok1 && ok2 && x != y
	}
	vars := t.variables()
	for _, v := range vars {
		kind := kindOf(v.Name)
		if kind == 'b' && len(ranked(v.Words)) > 0 {
			kind = 'w'
		}
		if kind == 'b' && differ(v.Name, true, false) {
			s.bools = append(s.bools, v.Name)
		}
		if kind == 'n' && differ(v.Name, int64(0), int64(512)) {
			s.budgets = append(s.budgets, v.Name)
		}
	}
	on := map[string]any{}
	s.setBools(on, true)
	if thinks, ok := render(probe, on); ok && thinks != plain && !t.defaults(s.bools) {
		s.shuts = strings.HasPrefix(plain, thinks)
	}
	for _, v := range vars {
		kind := kindOf(v.Name)
		if kind != 'w' && (kind != 'b' || len(ranked(v.Words)) == 0) {
			continue
		}
		accepts := func(word string) (string, bool) {
			with := maps.Clone(on)
			with[v.Name] = word
			return render(probe, with)
		}
		w := wordVar{name: v.Name, levels: map[string]string{}}
		offText := ""
		for _, word := range offWords {
			if slices.Contains(v.Words, word) {
				if out, ok := accepts(word); ok {
					w.off, offText = word, out
					break
				}
			}
		}
		pick := func(words []string) string {
			for _, word := range words {
				if _, ok := accepts(word); ok && slices.Contains(v.Words, word) {
					return word
				}
			}
			return ""
		}
		w.auto, w.on = pick(autoWords), pick(onWords)
		w.find(v.Words, accepts)
		base, _ := render(probe, on)
		if w.on == "" && w.off != "" && offText == base { // it does not think unless it is told to
			w.on = cmp.Or(w.levels["high"], w.levels["medium"])
		}
		if !changes(&w, accepts) {
			continue
		}
		s.words = append(s.words, w)
	}
	t.findPast(s, bos, eos, []map[string]any{s.Vars(Thinking{Mode: ModeOn}), nil, s.Vars(Thinking{Mode: ModeOff})})
	if len(s.bools)+len(s.words)+len(s.budgets) == 0 {
		const off = "/no_think"
		if slices.Contains(t.tmpl.Strings(), off) {
			if out, ok := render(probe+" "+off, nil); ok && out != plain && !strings.Contains(out, off) {
				s.suffix = " " + off
			}
		}
	}
	return s
}

// defaults reports whether the template says what one of the variables is where it is not given.
func (t *Template) defaults(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\s*(is\s+(not\s+)?(un)?defined|\|\s*default\b)`).
			MatchString(t.source)
	})
}

// assignment is {% set a = … %} or {% set ns.a = … %}; argument is a keyword argument within it, namespace(a=…).
var (
	assignment = regexp.MustCompile(`(?s)\{%[-+]?\s*set\s+([A-Za-z_][\w.]*)\s*=(.*?)%\}`)
	argument   = regexp.MustCompile(`([A-Za-z_]\w*)\s*=([^=,][^,]*)`)
	identifier = regexp.MustCompile(`[A-Za-z_]\w*`)
)

// variables returns the template's thinking variables. The words that a derived name is compared with count as the
// variable's.
func (t *Template) variables() []syntax.Variable {
	words := map[string][]string{}
	var vars []syntax.Variable
	for _, v := range t.tmpl.Variables() {
		words[v.Name] = v.Words
		if kindOf(v.Name) != 0 && !strings.Contains(v.Name, ".") {
			vars = append(vars, v)
		}
	}
	from := map[string][]string{} // name → names in what it is set to
	note := func(name, value string) {
		from[name] = append(from[name], identifier.FindAllString(value, -1)...)
	}
	for _, m := range assignment.FindAllStringSubmatch(t.source, -1) {
		note(m[1], m[2])
		if inside, ok := strings.CutPrefix(strings.TrimSpace(m[2]), "namespace("); ok {
			for _, arg := range argument.FindAllStringSubmatch(inside, -1) {
				note(m[1]+"."+arg[1], arg[2])
			}
		}
	}
	for i := range vars {
		v := &vars[i]
		for _, name := range slices.Sorted(maps.Keys(from)) {
			if name == v.Name || !slices.Contains(from[name], v.Name) {
				continue
			}
			for _, word := range words[name] {
				if !slices.Contains(v.Words, word) {
					v.Words = append(v.Words, word)
				}
			}
		}
	}
	return vars
}

// find chooses the word of each effort: the effort's own where the template knows it, or the nearest that it takes.
func (w *wordVar) find(words []string, accepts func(string) (string, bool)) {
	known := ranked(words)
	candidates := slices.Clone(known)
	if len(known) > 0 || w.off == "" && w.on == "" {
		for _, word := range free(w.name) {
			if !slices.Contains(candidates, word) {
				candidates = append(candidates, word)
			}
		}
	}
	candidates = slices.DeleteFunc(candidates, func(word string) bool { _, ok := accepts(word); return !ok })
	for rank, effort := range Efforts {
		best, distance := "", len(Efforts)
		for _, word := range candidates {
			d := ranks[word] - rank
			if d < 0 {
				d = -d
			}
			if d < distance || d == distance && ranks[word] > ranks[best] {
				best, distance = word, d
			}
		}
		if best != "" {
			w.levels[effort] = best
		}
	}
}

// ranked returns the words that name an effort.
func ranked(words []string) (out []string) {
	for _, word := range words {
		if _, ok := ranks[word]; ok {
			out = append(out, word)
		}
	}
	return out
}

// changes reports whether two words of w render differently.
func changes(w *wordVar, accepts func(string) (string, bool)) bool {
	seen := map[string]bool{}
	for _, word := range append(slices.Collect(maps.Values(w.levels)), w.off, w.auto, w.on) {
		if word == "" {
			continue
		}
		if out, ok := accepts(word); ok {
			seen[out] = true
		}
	}
	return len(seen) > 1
}
