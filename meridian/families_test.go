package meridian

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// familyCase is an output of a model family. tokens lists the markers that are single tokens in a published vocabulary.
type familyCase struct {
	name, template string
	tokens         []string
	prompt         string // its end
	text           string
	think, answer  string
}

var familyCases = []familyCase{
	{"deepseek-r1", "'<think>\\n' '</think>'", []string{"<think>", "</think>"}, "x<think>\n",
		"Let me see.\n</think>\n\nIt is 4.", "Let me see.\n", "It is 4."},
	{"qwen3", "<think>\n\n</think>\n\n", []string{"<think>", "</think>"}, "assistant\n", "<think>\nHm.\n</think>\n\n4",
		"\nHm.\n", "4"},
	{"qwen3, no thought", "<think>\n\n</think>\n\n", []string{"<think>", "</think>"},
		"assistant\n<think>\n\n</think>\n\n", "4", "", "4"},
	{"magistral", "[THINK][/THINK]", []string{"[THINK]", "[/THINK]"}, "[/INST]", "[THINK]Hm.[/THINK]4", "Hm.", "4"},
	{"seed-oss", "<seed:think></seed:think>", []string{"<seed:think>", "</seed:think>"}, "assistant\n",
		"<seed:think>Hm.</seed:think>\n\n4", "Hm.", "4"},
	{"command-a", "<|START_THINKING|><|END_THINKING|>", []string{"<|START_THINKING|>", "<|END_THINKING|>",
		"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
		"<|CHATBOT_TOKEN|>", "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>4<|END_RESPONSE|>", "Hm.", "4"},
	{"command-r7b, thought closed in the prompt", "<|START_THINKING|><|END_THINKING|>",
		[]string{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
		"<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>", "<|START_RESPONSE|>4<|END_RESPONSE|>", "", "4"},
	{"kimi-vl", "◁think▷◁/think▷", nil, "<|im_middle|>", "◁think▷Hm.◁/think▷4", "Hm.", "4"},
	{"apertus", "'<|inner_prefix|>' '<|inner_suffix|>'", []string{"<|inner_prefix|>", "<|inner_suffix|>"},
		"<|assistant_start|>", "<|inner_prefix|>Hm.<|inner_suffix|>4", "Hm.", "4"},
	{"gemma 4", "'<|channel>thought\n<channel|>' '<|think|>\n'", []string{"<|channel>", "<channel|>"}, "<|turn>model\n",
		"<|channel>thought\nHm.\n<channel|>4", "\nHm.\n", "4"},
	{"gemma 4, no thought", "<|channel>thought\n<channel|>", []string{"<|channel>", "<channel|>"},
		"<|turn>model\n<|channel>thought\n<channel|>", "4", "", "4"},
	{"gemma 4, an empty thought", "<|channel>thought\n<channel|>", []string{"<|channel>", "<channel|>"},
		"<|turn>model\n", "<|channel>thought\n<channel|>4", "\n", "4"},
	{"gemma 4, stray markers", "<|channel>thought\n<channel|>", []string{"<|channel>", "<channel|>"},
		"<|turn>model\n", "<|channel><|channel>thought\na<channel|>4<channel|> or<|channel>thought\nb<channel|> 5" +
			"<channel|><|channel>", "\na\nb", "4 or 5"},
	{"medgemma, no word behind the marker", "<unused94> <unused95>", []string{"<unused94>", "<unused95>"}, "model\n",
		"<unused94>that<unused95>4", "that", "4"},
	{"medgemma", "<unused94> <unused95>", []string{"<unused94>", "<unused95>"}, "model\n",
		"<unused94>thought\nHm.<unused95>4", "\nHm.", "4"},
	{"kimi k3, no end of the thought", "<|open|> <|close|> <|sep|>", []string{"<|open|>", "<|close|>", "<|sep|>"},
		`<|open|>message role="assistant"<|sep|><|open|>think<|sep|>`,
		"Hm.<|open|>response<|sep|>4<|close|>response<|sep|><|close|>message<|sep|>", "Hm.", "4"},
	{"kimi k3", "<|open|> <|close|> <|sep|>", []string{"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"},
		`<|open|>message role="assistant"<|sep|><|open|>think<|sep|>`,
		"Hm.<|close|>think<|sep|><|open|>response<|sep|>4<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>",
		"Hm.", "4"},
	{"kimi k3, no thought", "<|open|> <|close|> <|sep|>", []string{"<|open|>", "<|close|>", "<|sep|>"},
		`<|open|>message role="assistant"<|sep|><|open|>response<|sep|>`,
		"4<|close|>response<|sep|><|close|>message<|sep|>", "", "4"},
	{"minimax m3", "'<mm:think>' '</mm:think>'", []string{"<mm:think>", "</mm:think>"}, "ai\n<mm:think>",
		"Hm.</mm:think>\n\n4", "Hm.", "4"},
	{"minimax m3, adaptive", "'<mm:think>' '</mm:think>'", nil, "ai\n", "<mm:think>Hm.</mm:think>4", "Hm.", "4"},
	{"minimax m2", "<think>\n</think>\n\n<response></response >", nil, "]~b]ai\n<think>\n",
		"Hm.\n</think>\n\nThe tag <response> is 4.", "Hm.\n", "The tag <response> is 4."},
	{"hunyuan", "<think:opensource></think:opensource>", []string{"<think:opensource>", "</think:opensource>"},
		"<think:opensource>", "Hm.</think:opensource>4", "Hm.", "4"},
	{"solar open", "<|begin|>assistant<|think|><|end|> <|content|>",
		[]string{"<|begin|>", "<|think|>", "<|end|>", "<|content|>"}, "<|begin|>assistant",
		"<|think|>Hm.<|end|><|begin|>assistant<|content|>4<|end|>", "Hm.", "4"},
	{"solar open, low effort", "<|begin|>assistant<|think|><|end|> <|content|>",
		[]string{"<|begin|>", "<|think|>", "<|end|>", "<|content|>"},
		"<|begin|>assistant<|think|><|end|><|begin|>assistant", "<|content|>4<|end|>", "", "4"},
	{"muse", "'<|start|>assistant to=self<|message|>'", []string{"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"},
		"<|eot|><|start|>assistant", " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>4<|eot|>",
		"Hm.", "4"},
	{"muse, two thoughts", "'<|start|>assistant to=self<|message|>'",
		[]string{"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"}, "<|start|>assistant",
		" to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b<|eom|><|start|>assistant " +
			"to=user<|message|>4", "ab", "4"},
	{"muse, no thought", "'<|start|>assistant to=self<|message|>'",
		[]string{"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"}, "<|start|>assistant", " to=user<|message|>4", "",
		"4"},
	{"apriel 1.6", "[BEGIN FINAL RESPONSE]", nil, "<|begin_assistant|>\nHere are my reasoning steps:\n",
		"Hm.\n[BEGIN FINAL RESPONSE]\n4", "Hm.\n", "4"},
	{"apriel 1.5", "<thinking></thinking>[BEGIN FINAL RESPONSE] ... [END FINAL RESPONSE]",
		[]string{"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"}, "<|assistant|>\n",
		"Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\n4\n[END FINAL RESPONSE]", "\nHm.\n", "4\n"},
	{"minimax m1, mimo-vl: nothing says how they think", "", nil, "assistant\n", "<think>\nHm.\n</think>\n\n4",
		"\nHm.\n", "4"},
	{"granite 3.3", "<think></think> <response></response>", nil, "assistant<|end_of_role|>",
		"<think>Hm.</think>\n\n<response>It is <b>4</b>.</response>\n", "Hm.", "It is <b>4</b>."},
	{"granite 3.3, a closing tag that closes nothing yet", "<think></think> <response></response>", nil, "assistant",
		"<think>Hm.</think><response>Write </response> at the end.</response>", "Hm.", "Write </response> at the end."},
	{"hunyuan a13b", "'<think>' '</think>' '<answer>' '</answer>'", []string{"<think>", "</think>"}, "assistant",
		"<think>\nHm.\n</think>\n<answer>\n4</answer>", "\nHm.\n", "4"},
	{"granite 3.2", "Here is my thought process: Here is my response:", nil, "assistant",
		"Here is my thought process: Hm.\nHere is my response: 4", " Hm.\n", " 4"},
	{"openthinker", "<|begin_of_thought|><|end_of_thought|>", nil, "assistant\n",
		"<|begin_of_thought|>Hm.<|end_of_thought|>\n\n<|begin_of_solution|>\n4<|end_of_solution|>", "Hm.", "4"},
	{"gpt-oss", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>", "Hm.", "4"},
	{"gpt-oss, commentary", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look. " +
			"<|end|><|start|>assistant<|channel|>final<|message|>4", "Hm.", "I look. 4"},
	{"gpt-oss, two analyses", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assis" +
			"tant<|channel|>final<|message|>4", "ab", "4"},
	{"gpt-oss, analysis after commentary", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I look. " +
			"<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|messa" +
			"ge|>4",
		"ab", "I look. 4"},
	{"gpt-oss, several finals", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>final<|message|>4<|end|><|start|>assistant<|channel|>final<|message|>2", "", "42"},
	{"gpt-oss, constrained", harmonySign, append([]string{"<|constrain|>"}, harmonyTokens...), "<|start|>assistant",
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{}", "a",
		"{}"},
	{"gpt-oss, a recipient", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary " +
			"json<|message|>{}<|call|>", "a", "{}"},
	{"gpt-oss, a tool of its own", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=python code<|message|>" +
			"print(1)<|call|>", "a", ""},
	{"gpt-oss, a tool of its own and an answer", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant to=container.exec<|channel|>commentary<|message|>" +
			"ls<|end|><|start|>assistant<|channel|>final<|message|>4", "a", "4"},
	{"gpt-oss, itself as recipient", harmonySign, harmonyTokens, "<|start|>assistant",
		"<|channel|>commentary to=assistant<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final" +
			"<|message|>4", "a", "4"},
	{"gpt-oss, thought opened in the prompt", harmonySign, harmonyTokens,
		"<|start|>assistant<|channel|>analysis<|message|>", "a<|end|><|start|>assistant<|channel|>final<|message|>4",
		"a", "4"},
	{"gpt-oss, answer opened in the prompt", harmonySign, harmonyTokens,
		"<|start|>assistant<|channel|>final<|message|>", "4<|return|>", "", "4"},
	{"gpt-oss, no header at all", harmonySign, harmonyTokens, "<|start|>assistant", "It is 4.", "", "It is 4."},
}

const harmonySign = "<|start|>assistant<|channel|>analysis<|message|>"

var harmonyTokens = []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>"}

// detectFor resolves as the daemon does.
func detectFor(t testing.TB, v Vocabulary, template string) *Tags {
	t.Helper()
	tags, err := Detect(v, Markers{}, template)
	if tags == nil && err == nil {
		tags, err = Assume(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tags
}

// cutText cuts text into tokens: those of the vocabulary that it must have whole, the rest where cut says.
func cutText(text string, whole []string, cut func() bool) (pieces []string) {
	piece := ""
	flush := func() {
		if piece != "" {
			pieces = append(pieces, piece)
		}
		piece = ""
	}
next:
	for i := 0; i < len(text); {
		for _, w := range whole {
			if strings.HasPrefix(text[i:], w) {
				flush()
				pieces = append(pieces, w)
				i += len(w)
				continue next
			}
		}
		if cut() {
			flush()
		}
		piece += text[i : i+1]
		i++
	}
	flush()
	return pieces
}

// TestFamilies holds the phases of what the families write, with markers that are control tokens, ordinary tokens, or
// spelled, and with the text cut at any byte.
func TestFamilies(t *testing.T) {
	for _, c := range familyCases {
		for _, kind := range []string{"control", "ordinary", "spelled"} {
			if kind != "spelled" && len(c.tokens) == 0 {
				continue
			}
			for seed := range uint64(60) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				every := []int{1, 2, 3, 5, 50}[seed%5]
				whole := c.tokens
				if kind == "spelled" {
					whole = nil
				}
				pieces := cutText(c.text, whole, func() bool { return rnd.IntN(every) == 0 })
				var v *testVocab
				switch kind {
				case "control":
					v = bytesVocab(pieces, append([]string{eog, "<|im_start|>"}, c.tokens...)...)
					for i := range v.pieces {
						for _, w := range c.tokens {
							if string(v.pieces[i]) == w {
								v.pieces[i] = []byte("\x00unused")
							}
						}
					}
				case "ordinary":
					v = bytesVocab(append(pieces, c.tokens...), eog, "<|im_start|>")
				default:
					v = bytesVocab(pieces, eog, "<|im_start|>")
				}
				if kind == "spelled" && hasWhole(pieces) {
					continue // a marker in one piece is a single token: the other two kinds
				}
				tags := detectFor(t, v, c.template)
				r := NewRouter(tags, 1, tags.Begin(c.prompt, false))
				var tr transcript
				for _, p := range pieces {
					tok := v.Find(p)
					tr.add(r.OnToken(tok, v.Piece(tok), false, false))
					r.check()
				}
				think, answer := r.Flush()
				tr.add(Step{Think: think, Answer: answer})
				if tr.think.String() != c.think || tr.answer.String() != c.answer {
					t.Fatalf("%s, %s, %q:\nthink  %q, want %q\nanswer %q, want %q", c.name, kind, pieces, &tr.think,
						c.think, &tr.answer, c.answer)
				}
			}
		}
	}
}

// hasWhole reports whether a piece has the shape of a marker.
func hasWhole(pieces []string) bool {
	for _, p := range pieces {
		if len(p) > 2 && bracketed([]byte(p)) {
			return true
		}
	}
	return false
}

// endedTurnInThought has a model end its turn in the thought before an answer that is held to a grammar, and reports
// whether the answer follows.
func endedTurnInThought(t *testing.T, v *testVocab, cfg *Config, tags *Tags, begin Begin) bool {
	opt := cfg.Options()
	opt.Bound = true
	ctl, err := NewControl(cfg, tags, opt, begin)
	if err != nil {
		t.Fatal(err)
	}
	if !begin.Thinking {
		for _, tok := range tags.openSeq {
			ctl.OnToken(tok, v.Piece(tok), false, 0)
		}
	}
	var tr transcript
	word, end := v.Find("word "), v.Find(eog)
	for i := range 60 {
		tok, forced := ctl.Next(0)
		if !forced {
			if tok = word; i == 3 {
				tok = end
			}
			if instead, forced := ctl.Admit(tok, v.Piece(tok), tok == end, 0); forced {
				tok = instead
			}
		}
		tr.add(ctl.OnToken(tok, v.Piece(tok), tok == end, 0))
	}
	return ctl.Phase() == OutputDecode && ctl.InAnswer() && ctl.Summary(0).Ended == EndedEOG &&
		tr.think.String() == "word word word " && strings.HasPrefix(tr.answer.String(), "word word ")
}

// TestFamiliesForced: a budget closes a thought of every family, a mode of on opens one, and neither shows a marker.
func TestFamiliesForced(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range familyCases {
		for _, kind := range []string{"control", "spelled"} {
			var v *testVocab
			if kind == "control" {
				v = bytesVocab([]string{"word "}, append([]string{eog}, c.tokens...)...)
			} else {
				v = bytesVocab([]string{"word "}, eog)
			}
			tags := detectFor(t, v, c.template)
			begin := tags.Begin(c.prompt, false)
			if begin.Closed || strings.Contains(c.name, "no thought") || strings.Contains(c.name, "answer opened") {
				continue
			}
			seen[tags.family.Name] = true
			cfg := DefaultConfig()
			cfg.ForceGraceTokens = 0
			if !endedTurnInThought(t, v, &cfg, tags, begin) {
				t.Errorf("%s, %s: an end of the turn in a thought did not begin the answer", c.name, kind)
			}
			for _, mode := range []Mode{ModeOn, ModeOff} {
				if tags.assumed && mode == ModeOn {
					continue
				}
				opt := cfg.Options()
				opt.Mode, opt.BudgetTokens = mode, 3
				ctl, err := NewControl(&cfg, tags, opt, begin)
				if err != nil {
					t.Fatal(err)
				}
				if mode == ModeOff && !begin.Thinking { // the model opens it itself
					for _, tok := range tags.openSeq {
						ctl.OnToken(tok, v.Piece(tok), false, 0)
					}
				}
				var tr transcript
				word := v.Find("word ")
				for range 150 {
					tok, forced := ctl.Next(0)
					if !forced {
						tok = word
					}
					tr.add(ctl.OnToken(tok, v.Piece(tok), false, 0))
				}
				think, answer := ctl.Flush()
				tr.add(Step{Think: think, Answer: answer})
				wantThink := 3
				if mode == ModeOff {
					wantThink = 0
				}
				if got := strings.Count(tr.think.String(), "word "); got != wantThink ||
					ctl.ThinkTokens() != wantThink {
					t.Errorf("%s, %s, %v: %d words of thought, %d counted, want %d", c.name, kind, mode, got,
						ctl.ThinkTokens(), wantThink)
				}
				if text := tr.answer.String(); strings.Trim(text, "word ") != "" || len(text) < 20 {
					t.Errorf("%s, %s, %v: answer %q", c.name, kind, mode, text)
				}
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d families were seen: %v", len(seen), seen)
	}
}
