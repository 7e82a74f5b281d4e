package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"
)

// Problem is a question with the only answer that counts.
type Problem struct{ Task, Question, Answer string }

// maxFile bounds a data set in memory; ShareGPT's public file has 650 MB.
const maxFile = 4 << 30

// dataset arranges n requests that read makes.
func (o *Options) dataset(read func(n int) ([]Request, error)) (*Plan, error) {
	rs, err := read(o.count())
	if err != nil {
		return nil, err
	}
	return o.arrange(rs), nil
}

// objects reads a JSON array of objects, or JSON lines, one element at a time.
func objects(path string, each func(json.RawMessage) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := decode(bufio.NewReaderSize(io.LimitReader(f, maxFile), 1<<20), each); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func decode(in *bufio.Reader, each func(json.RawMessage) error) error {
	for {
		b, err := in.Peek(1)
		if err != nil {
			return errors.New("the file is empty")
		}
		if !strings.ContainsRune(" \t\r\n", rune(b[0])) {
			break
		}
		in.Discard(1)
	}
	first, _ := in.Peek(1)
	d := json.NewDecoder(in)
	array := first[0] == '['
	if array {
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	for n := 1; !array || d.More(); n++ {
		var v json.RawMessage
		switch err := d.Decode(&v); {
		case err == io.EOF && !array:
			return nil
		case err != nil:
			return fmt.Errorf("entry %d: %w (the file must be a JSON array of objects, or one object a line)", n, err)
		}
		if v = bytes.TrimSpace(v); len(v) == 0 || v[0] != '{' {
			return fmt.Errorf("entry %d is not a JSON object", n)
		}
		if err := each(v); err != nil {
			return fmt.Errorf("entry %d: %w", n, err)
		}
	}
	return nil
}

// enough repeats what a file gives until there are n, and says so in the ids.
func enough(rs []Request, n int, name string) ([]Request, error) {
	if len(rs) == 0 {
		return nil, fmt.Errorf("no entry of the %s file can be used", name)
	}
	out := make([]Request, n)
	for i := range out {
		out[i] = rs[i%len(rs)]
		out[i].ID = fmt.Sprintf("%s-%05d", name, i)
	}
	return out, nil
}

// shareGPT reads conversations: [{"conversations":[{"from":"human","value":"…"},…]},…]. The first human turn of up to
// 4,096 characters is the prompt; the length of the answer follows the prompt's.
func (o *Options) shareGPT(path string, n int, seed uint64) ([]Request, error) {
	path, err := located("sharegpt", path)
	if err != nil {
		return nil, err
	}
	var rs []Request
	err = objects(path, func(v json.RawMessage) error {
		var c struct {
			Conversations []struct{ From, Value string }
		}
		if err := json.Unmarshal(v, &c); err != nil {
			return err
		}
		for _, turn := range c.Conversations {
			if turn.From != "human" && turn.From != "user" {
				continue
			}
			if chars := utf8.RuneCountInString(turn.Value); strings.TrimSpace(turn.Value) != "" && chars <= 4096 {
				rs = append(rs, Request{Kind: Chat, After: -1, Measured: true, Exact: o.Exact,
					Messages: []Message{{"user", turn.Value}},
					Output:   o.scaled(min(512, max(32, chars/3)))})
			}
			break
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	shuffle(newRandom(seed), rs)
	return enough(rs, n, "sharegpt")
}

// math500 reads problems: {"problem":"…","answer":"…","subject":…,"level":…} each.
func (o *Options) math500(path string, n int, seed uint64) ([]Request, error) {
	path, err := located("math500", path)
	if err != nil {
		return nil, err
	}
	var rs []Request
	err = objects(path, func(v json.RawMessage) error {
		var p struct{ Problem, Solution, Answer string }
		if err := json.Unmarshal(v, &p); err != nil {
			return err
		}
		if p.Answer == "" {
			p.Answer, _ = Boxed(p.Solution)
		}
		if p.Problem == "" || p.Answer == "" {
			return errors.New(`needs "problem" and "answer"`)
		}
		rs = append(rs, Request{Kind: Reasoning, After: -1, Measured: true, Exact: o.Exact, Think: o.scaled(3500),
			Output: o.scaled(128), Answer: p.Answer, Grader: "math",
			Messages: []Message{{"user", p.Problem + "\n\nPut the final answer in \\boxed{}."}}})
		return nil
	})
	if err != nil {
		return nil, err
	}
	shuffle(newRandom(seed), rs)
	return enough(rs, n, "math500")
}

func (o *Options) mix(n int) ([]Request, error) {
	hard := int(math.RoundToEven(float64(n) * o.ReasoningRatio))
	ms, err := o.math500(o.MathFile, hard, o.Seed)
	if err != nil {
		return nil, err
	}
	cs, err := o.shareGPT(o.File, n-hard, o.Seed+1)
	if err != nil {
		return nil, err
	}
	rs := append(ms, cs...)
	shuffle(newRandom(o.Seed+2), rs)
	return rs, nil
}

func (o *Options) heldout(n int) ([]Request, error) {
	var rs []Request
	for _, p := range o.Problems {
		rs = append(rs, Request{Kind: Reasoning, Group: p.Task, After: -1, Measured: true, Think: 800, Output: 200,
			Answer: p.Answer, Grader: "exact",
			Messages: []Message{{"user", p.Question}}})
	}
	shuffle(newRandom(o.Seed), rs)
	if o.Requests == 0 {
		n = len(rs)
	}
	return enough(rs, n, "heldout")
}
