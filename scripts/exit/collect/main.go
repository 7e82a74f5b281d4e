// Command collect has a model think about problems and writes, for each place where a thought could end, the hidden
// states there and what an answer from there would be worth.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

const (
	group    = 16
	maxNew   = 1000
	batchMax = 1024
	smooth   = 0.1 // weight of the newest row in the running mean of states
	interior = 4   // rows within a thought, beside its boundaries
)

type problem struct {
	Task     string `json:"task"`
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Split    string `json:"split"`
	Key      string `json:"key"`
	Raw      bool   `json:"raw"`
	Hard     bool   `json:"hard"`
}

// point is a row of a thought whose states are written.
type point struct {
	Kind   string  `json:"kind"` // "blank": behind a blank line; "cue": the first token of a check; "row": any other
	At     int     `json:"at"`   // think tokens, this one included
	Record int     `json:"record"`
	Token  string  `json:"token"`
	CloseP float64 `json:"close_p"` // of the closing tag as the next token
	CloseR int     `json:"close_rank"`
	// of an answer from here: the entropy behind the closing tag, the probability of the right answer, whether the
	// greedy one is right, and whether it is the thought's final one
	H     float64 `json:"h"`
	P     float64 `json:"p"`
	Right bool    `json:"right"`
	Final bool    `json:"final"`
	index int     // of the first token behind it, in text.tokens
}

type text struct {
	N int `json:"n"`
	problem
	Think     int       `json:"think"`
	Closed    bool      `json:"closed"`
	Got       string    `json:"got"`
	Said      bool      `json:"said_right"`
	PFree     float64   `json:"p_free"`
	GFree     bool      `json:"g_free"`
	Points    []*point  `json:"points"`
	Entropies []float32 `json:"entropies"` // of the row from which each think token came
	Ends      string    `json:"ends"`      // of each think token: b: blank line, e: end of a line or sentence, "."
	Text      string    `json:"text"`

	tokens  []int32
	prompt  int
	rows    int
	open    int // index behind <think>; 0: not yet
	shut    int // index of </think>; 0: not yet
	lines   int
	tail    string
	wasCue  bool
	mean    []float32
	draw    *rand.Rand
	natural []int32 // the answer's tokens
	ended   bool
}

type collector struct {
	e         runtime.Engine
	v         runtime.Vocab
	model     runtime.Headed
	emb       runtime.Embedder
	chat      *template.Template
	temp      float64
	think     int32
	unthink   int32
	end       int32
	suffix    []int32
	width     int
	states    *bufio.Writer
	written   int
	probs     []float64
	forkStart int
}

func main() {
	model := flag.String("m", "models/uma-redundant.gguf", "")
	in := flag.String("problems", "", "")
	out := flag.String("o", "", "BASE of .jsonl and .f32")
	temp := flag.Float64("temp", 1, "")
	limit := flag.Int("limit", 0, "")
	seed := flag.Uint64("seed", 1, "")
	threads := flag.Int("threads", 1, "")
	flag.Parse()
	if err := run(*model, *in, *out, *temp, *limit, *seed, *threads); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(model, in, out string, temp float64, limit int, seed uint64, threads int) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var problems []problem
	for _, l := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var p problem
		if err := json.Unmarshal([]byte(l), &p); err != nil {
			return err
		}
		problems = append(problems, p)
	}
	if limit > 0 {
		problems = problems[:limit]
	}
	c := &collector{temp: temp}
	if c.e, err = llama.Open(runtime.Options{ModelPath: model, Batch: batchMax, Sequences: 2 * group, Threads: threads,
		ContextTokens: group * (maxNew + 300)}); err != nil {
		return err
	}
	defer c.e.Close()
	c.v = c.e.Vocab()
	info := c.e.Model()
	cfg := ggufgen.Tiny()
	cfg.Embedding, cfg.Layers, cfg.VocabSize = info.Embedding, info.Layers, info.VocabSize
	head := ggufgen.EagleOf(cfg, ggufgen.HeadRandom)
	head.Target.Reads = [3]int{info.Layers / 3, 2 * info.Layers / 3, info.Layers - 1}
	headFile := out + ".head.gguf"
	if err := ggufgen.Write(headFile, head); err != nil {
		return err
	}
	c.model, c.emb = c.e.(runtime.Headed), c.e.(runtime.Embedder)
	h, err := c.model.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 64, Sequences: 1,
		File: &runtime.Options{ModelPath: headFile}})
	if err != nil {
		return err
	}
	defer h.Close()
	c.width = h.StateWidth()
	c.model.KeepStates(true)
	if c.chat, err = template.Compile(c.v.ChatTemplate()); err != nil {
		return err
	}
	c.think, c.unthink, c.end = c.v.Find("<think>"), c.v.Find("</think>"), c.v.Find("<|im_end|>")
	if c.suffix, err = c.v.Tokenize(nil, "\n\n", false, false); err != nil {
		return err
	}
	fmt.Println("layers", head.Target.Reads, "state", c.width, "suffix", c.suffix)
	js, err := os.Create(out + ".jsonl")
	if err != nil {
		return err
	}
	defer js.Close()
	bin, err := os.Create(out + ".f32")
	if err != nil {
		return err
	}
	defer bin.Close()
	w := bufio.NewWriter(js)
	defer w.Flush()
	c.states = bufio.NewWriter(bin)
	defer c.states.Flush()
	enc := json.NewEncoder(w)
	for from := 0; from < len(problems); from += group {
		var texts []*text
		for i := from; i < min(from+group, len(problems)); i++ {
			t, err := c.begin(i, problems[i], seed)
			if err != nil {
				return err
			}
			texts = append(texts, t)
		}
		if err := c.write(texts); err != nil {
			return err
		}
		if err := c.judge(texts); err != nil {
			return err
		}
		for s, t := range texts {
			c.e.SeqRemove(runtime.Seq(s), 0, -1)
			if err := enc.Encode(t); err != nil {
				return err
			}
		}
		if from/group%20 == 0 {
			fmt.Println(from, "of", len(problems), c.written, "records")
		}
	}
	return nil
}

func (c *collector) begin(i int, p problem, seed uint64) (*text, error) {
	chat, err := c.chat.Render(template.Input{Messages: []template.Message{{Role: "user", Content: p.Question}},
		AddGenerationPrompt: true, BOS: c.v.Text(c.v.BOS()), EOS: c.v.Text(c.v.EOS())})
	if err != nil {
		return nil, err
	}
	tokens, err := c.v.Tokenize(nil, chat, false, true)
	return &text{N: i, problem: p, tokens: tokens, prompt: len(tokens),
		draw: rand.New(rand.NewPCG(seed, uint64(i)))}, err
}

// write has the model write the texts, to their ends.
func (c *collector) write(texts []*text) error {
	for {
		b := c.e.Batch()
		b.Reset()
		var rows []*text
		for s, t := range texts {
			for ; !t.ended && t.rows < len(t.tokens); t.rows++ {
				what := int8(0)
				if t.rows >= t.prompt-1 {
					what = runtime.RowLogits | runtime.RowEmbedding
				}
				b.AddFor(t.tokens[t.rows], runtime.Pos(t.rows), runtime.Seq(s), what)
				rows = append(rows, t)
			}
		}
		if b.Len() == 0 {
			return nil
		}
		if err := c.e.Decode(); err != nil {
			return err
		}
		index := map[*text]int{}
		for i, t := range rows {
			index[t] = i // the last row of each
		}
		for _, t := range texts {
			i, ok := index[t]
			if !ok {
				continue
			}
			if err := c.take(t, i); err != nil {
				return err
			}
		}
	}
}

// take follows the newest row of a text and draws its next token.
func (c *collector) take(t *text, i int) error {
	tok := t.tokens[len(t.tokens)-1]
	logits := c.e.Logits(i)
	var st runtime.RowStats
	meridian.ProbeRow(logits, []int32{c.unthink}, &st)
	inThought := t.open > 0 && t.shut == 0 && len(t.tokens) > t.prompt
	if inThought && len(t.tokens) > t.open {
		state := c.model.State(i)
		if state == nil {
			return fmt.Errorf("no state of row %d", i)
		}
		if t.mean == nil {
			t.mean = append([]float32(nil), state...)
		} else {
			for k, x := range state {
				t.mean[k] += smooth * (x - t.mean[k])
			}
		}
		piece := string(c.v.Piece(tok))
		wasBlank := t.lines > 1
		for _, r := range []byte(piece) {
			switch r {
			case '\n':
				t.lines++
			case ' ', '\t', '\r':
			default:
				t.lines = 0
			}
		}
		t.tail = (t.tail + piece)
		if len(t.tail) > 4 {
			t.tail = t.tail[len(t.tail)-4:]
		}
		kind := ""
		switch {
		case t.lines > 1:
			kind = "blank"
			t.Ends += "b"
		case t.lines > 0 || sentence(t.tail):
			t.Ends += "e"
		default:
			t.Ends += "."
		}
		if wasBlank && t.lines == 0 {
			kind = "cue"
		}
		if kind == "" && t.draw.Float64() < 0.04 {
			kind = "row"
		}
		if kind != "" {
			emb := c.emb.Embedding(i)
			if emb == nil {
				return fmt.Errorf("no embedding of row %d", i)
			}
			for _, part := range [][]float32{state, emb, t.mean} {
				if err := binary.Write(c.states, binary.LittleEndian, part); err != nil {
					return err
				}
			}
			t.Points = append(t.Points, &point{Kind: kind, At: len(t.tokens) - t.open, Record: c.written, Token: piece,
				CloseP: st.CloseMass, CloseR: st.CloseRank, index: len(t.tokens)})
			c.written++
		}
	}
	next := st.Argmax
	if c.temp > 0 {
		next = c.sample(t, logits)
	}
	if inThought && next != c.unthink {
		t.Entropies = append(t.Entropies, float32(math.Round(st.Entropy*1e4)/1e4))
	}
	t.tokens = append(t.tokens, next)
	switch n := len(t.tokens); {
	case next == c.think && t.open == 0:
		t.open = n
	case next == c.unthink && t.open > 0 && t.shut == 0:
		t.shut = n - 1
	case c.v.IsEOG(next):
		t.ended = true
	}
	if len(t.tokens)-t.prompt >= maxNew {
		t.ended = true
	}
	if t.ended {
		c.finish(t)
	}
	return nil
}

func sentence(tail string) bool {
	s := strings.TrimSuffix(tail, " ")
	if s == "" {
		return false
	}
	switch s[len(s)-1] {
	case '!', '?':
		return true
	case '.':
		return len(s) < 2 || s[len(s)-2] < '0' || s[len(s)-2] > '9'
	}
	return false
}

func (c *collector) sample(t *text, logits []float32) int32 {
	top := float32(math.Inf(-1))
	for _, x := range logits {
		top = max(top, x)
	}
	c.probs = c.probs[:0]
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x-top) / c.temp)
		c.probs = append(c.probs, sum)
	}
	at := t.draw.Float64() * sum
	for i, p := range c.probs {
		if at < p {
			return int32(i)
		}
	}
	return int32(len(c.probs) - 1)
}

func (c *collector) finish(t *text) {
	last := t.tokens[len(t.tokens)-1]
	t.Closed = t.shut > 0 && c.v.IsEOG(last)
	end := len(t.tokens)
	if t.shut > 0 {
		end = t.shut
	} else if c.v.IsEOG(last) {
		end--
	}
	if t.open > 0 {
		t.Think = end - t.open
		for _, x := range t.tokens[t.open:end] {
			t.Text += string(c.v.Piece(x))
		}
	}
	if t.Closed {
		t.natural = t.tokens[t.shut+1 : len(t.tokens)-1]
		for _, x := range t.natural {
			t.Got += string(c.v.Piece(x))
		}
		t.Got = strings.TrimSpace(t.Got)
		t.Said = t.Got == t.Answer
	}
}

// fork is an answer that is tried from a place in a thought.
type fork struct {
	t      *text
	seq    int
	at     int // tokens before it
	answer []int32
	done   func(h, p float64, greedy bool)
	first  int // row
}

// judge tries the right answer, and the final one, from each place.
func (c *collector) judge(texts []*text) error {
	var forks []*fork
	for s, t := range texts {
		if t.open == 0 {
			continue
		}
		var rights [][]int32
		whole, err := c.v.Tokenize(nil, t.Answer, false, false)
		if err != nil {
			return err
		}
		rights = append(rights, whole)
		if t.Raw {
			var single []int32
			for i := range len(t.Answer) {
				one, err := c.v.Tokenize(nil, t.Answer[i:i+1], false, false)
				if err != nil {
					return err
				}
				single = append(single, one...)
			}
			if len(single) != len(whole) {
				rights = append(rights, single)
			}
		}
		for _, answer := range rights {
			for _, p := range t.Points {
				if p.Kind == "row" || p.index > len(t.tokens)-1 {
					continue
				}
				forks = append(forks, &fork{t: t, seq: s, at: p.index, answer: answer, done: func(h, pr float64, g bool) {
					p.H, p.P, p.Right = h, p.P+pr, p.Right || g
				}})
			}
			if t.Closed {
				forks = append(forks, &fork{t: t, seq: s, at: t.shut, answer: answer, done: func(_, pr float64, g bool) {
					t.PFree, t.GFree = t.PFree+pr, t.GFree || g
				}})
			}
		}
		if n := len(c.suffix); t.Closed && len(t.natural) > n {
			for _, p := range t.Points {
				if p.Kind != "row" {
					forks = append(forks, &fork{t: t, seq: s, at: p.index, answer: t.natural[n:],
						done: func(_, _ float64, g bool) { p.Final = g }})
				}
			}
		}
	}
	for len(forks) > 0 {
		b := c.e.Batch()
		b.Reset()
		n := 0
		for ; n < len(forks) && n < group; n++ {
			f := forks[n]
			rows := append(append([]int32{c.unthink}, c.suffix...), f.answer...)
			if b.Len()+len(rows) > batchMax {
				break
			}
			s := runtime.Seq(group + n)
			c.e.SeqRemove(s, 0, -1)
			c.e.SeqCopy(runtime.Seq(f.seq), s, 0, runtime.Pos(f.at))
			f.first = b.Len()
			for k, x := range rows {
				b.Add(x, runtime.Pos(f.at+k), s, true)
			}
		}
		if err := c.e.Decode(); err != nil {
			return err
		}
		for _, f := range forks[:n] {
			want := append(append(append([]int32(nil), c.suffix...), f.answer...), c.end)
			p, greedy, h := 0.0, true, 0.0
			for k, x := range want {
				var st runtime.RowStats
				row := c.e.Logits(f.first + k)
				meridian.ProbeRow(row, nil, &st)
				p += float64(row[x]) - st.LogSumExp
				greedy = greedy && st.Argmax == x
				if k == len(c.suffix) {
					h = st.Entropy
				}
			}
			f.done(h, math.Exp(p), greedy)
		}
		for k := range n {
			c.e.SeqRemove(runtime.Seq(group+k), 0, -1)
		}
		forks = forks[n:]
	}
	return nil
}
