// Command collect lets a model answer prompts and writes what an EAGLE-3 head learns from: the tokens, the inputs of
// the layers that the head reads, and the most probable tokens of each row. docs/models.md shows how it is used.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

const (
	top    = 8          // the most probable tokens that are written of a row
	magic  = 0x48454144 // of a text; head.py reads them
	prompt = 220        // longer prompts are left out
	batch  = 1024
)

type options struct {
	model, head, prompts, out string
	from, answers, tokens     int
	sampled                   float64
}

func main() {
	var o options
	flag.StringVar(&o.model, "m", "", "`FILE` of the model")
	flag.StringVar(&o.head, "head", "", "`FILE` of the head, trained or not: it says which layers it reads")
	flag.StringVar(&o.prompts, "prompts", "", "`FILE` of prompts, one a line, \\n for a new line in it")
	flag.StringVar(&o.out, "o", "", "`FILE` to which texts are appended")
	flag.IntVar(&o.from, "from", 0, "the first prompt, to go on where a run was ended; a text's number is its prompt's")
	flag.IntVar(&o.answers, "answers", 32, "answers at the same time")
	flag.IntVar(&o.tokens, "tokens", 256, "most tokens of an answer")
	flag.Float64Var(&o.sampled, "sampled", 0.3, "share of answers that are sampled, at a temperature of 0.7")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "collect:", err)
		os.Exit(1)
	}
}

// text is a prompt and what the model has said so far.
type text struct {
	number, prompt int
	tokens         []int32
	rows           int // computed
	sampled        bool
	states         []uint16 // bfloat16, of each row
	ids            []uint16 // of each row that says a token, the most probable ones, and their logits
	logits         []float32
	draw           *rand.Rand
}

type collector struct {
	options
	engine  runtime.Engine
	model   runtime.Headed
	width   int // of a row's state
	chat    *template.Template
	prompts []string
	live    []*text // by sequence
	written int     // tokens
}

func run(o *options) error {
	data, err := os.ReadFile(o.prompts)
	if err != nil {
		return err
	}
	c := collector{options: *o, prompts: strings.Split(strings.TrimSpace(string(data)), "\n"),
		live: make([]*text, o.answers)}
	if c.engine, err = llama.Open(runtime.Options{ModelPath: o.model, Batch: batch, Sequences: o.answers,
		ContextTokens: o.answers * (prompt + o.tokens)}); err != nil {
		return err
	}
	defer c.engine.Close()
	c.model = c.engine.(runtime.Headed)
	head, err := c.model.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 64, Sequences: 1,
		File: &runtime.Options{ModelPath: o.head}})
	if err != nil {
		return err
	}
	defer head.Close()
	c.width = head.StateWidth()
	c.model.KeepStates(true)
	if v := c.engine.Vocab(); v.Size() > math.MaxUint16 {
		return fmt.Errorf("%d tokens do not fit the format", v.Size())
	} else if c.chat, err = template.Compile(v.ChatTemplate()); err != nil {
		return err
	}
	f, err := os.OpenFile(o.out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.answer(f)
}

// answer answers the prompts and writes each text when it has ended.
func (c *collector) answer(w io.Writer) error {
	for next := c.from; ; {
		b := c.engine.Batch()
		b.Reset()
		var rows []*text
		for seq := range c.live {
			if c.live[seq] == nil && next < len(c.prompts) && b.Len()+prompt+c.answers < batch {
				var err error
				if c.live[seq], err = c.begin(next); err != nil {
					return err
				}
				c.engine.SeqRemove(runtime.Seq(seq), 0, -1)
				next++
			}
			t := c.live[seq]
			for ; t != nil && t.rows < len(t.tokens); t.rows++ {
				b.Add(t.tokens[t.rows], runtime.Pos(t.rows), runtime.Seq(seq), t.rows >= t.prompt-1)
				rows = append(rows, t)
			}
		}
		if b.Len() == 0 && next >= len(c.prompts) {
			return nil
		}
		if b.Len() == 0 { // prompts that were too long
			continue
		}
		if err := c.engine.Decode(); err != nil {
			return err
		}
		for i, t := range rows {
			if err := c.take(i, t); err != nil {
				return err
			}
		}
		for seq, t := range c.live {
			last := t != nil && (c.engine.Vocab().IsEOG(t.tokens[len(t.tokens)-1]) ||
				len(t.tokens)-t.prompt >= c.tokens)
			if !last {
				continue
			}
			if err := c.write(w, t); err != nil {
				return err
			}
			c.live[seq] = nil
		}
	}
}

// begin returns the text of a prompt; nil: it is too long.
func (c *collector) begin(number int) (*text, error) {
	v := c.engine.Vocab()
	said := strings.ReplaceAll(c.prompts[number], `\n`, "\n")
	chat, err := c.chat.Render(template.Input{Messages: []template.Message{{Role: "user", Content: said}},
		AddGenerationPrompt: true, BOS: v.Text(v.BOS()), EOS: v.Text(v.EOS())})
	if err != nil {
		return nil, err
	}
	tokens, err := v.Tokenize(nil, chat, false, true)
	if err != nil || len(tokens) > prompt {
		return nil, err
	}
	draw := rand.New(rand.NewPCG(1, uint64(number)))
	return &text{number: number, prompt: len(tokens), tokens: tokens, draw: draw,
		sampled: draw.Float64() < c.sampled}, nil
}

// take takes what row i of the batch has computed for a text.
func (c *collector) take(i int, t *text) error {
	state := c.model.State(i)
	if state == nil {
		return fmt.Errorf("the engine kept no state of row %d", i)
	}
	for _, x := range state {
		bits := math.Float32bits(x)
		t.states = append(t.states, uint16((bits+0x7fff+bits>>16&1)>>16))
	}
	row := c.engine.Logits(i)
	if row == nil {
		return nil
	}
	var ids [top]int32
	var best [top]float32
	for j := range best {
		best[j] = float32(math.Inf(-1))
	}
	for id, x := range row {
		if x <= best[top-1] {
			continue
		}
		j := top - 1
		for ; j > 0 && best[j-1] < x; j-- {
			best[j], ids[j] = best[j-1], ids[j-1]
		}
		best[j], ids[j] = x, int32(id)
	}
	for j := range best {
		t.ids, t.logits = append(t.ids, uint16(ids[j])), append(t.logits, best[j])
	}
	next := 0
	if t.sampled {
		next = drawn(t.draw, &best)
	}
	t.tokens = append(t.tokens, ids[next])
	return nil
}

// drawn draws one of the most probable tokens.
func drawn(from *rand.Rand, logits *[top]float32) int {
	const temperature = 0.7
	var up [top]float64
	sum := 0.0
	for j, x := range logits {
		sum += math.Exp(float64(x-logits[0]) / temperature)
		up[j] = sum
	}
	at := from.Float64() * sum
	for j := range up {
		if at < up[j] {
			return j
		}
	}
	return 0
}

// write writes a text: the magic number, its own, those of rows and of the prompt's tokens, and the width of a state,
// then a token more than rows, the states, and ids and logits of the rows from the prompt's last one on.
func (c *collector) write(out io.Writer, t *text) error {
	w := bufio.NewWriter(out)
	for _, part := range []any{[]int32{magic, int32(t.number), int32(t.rows), int32(t.prompt), int32(c.width)},
		t.tokens, t.states, t.ids, t.logits} {
		if err := binary.Write(w, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	before := c.written / 10_000
	if c.written += len(t.tokens) - t.prompt; c.written/10_000 > before {
		fmt.Printf("%d tokens; prompt %d\n", c.written, t.number)
	}
	return w.Flush()
}
