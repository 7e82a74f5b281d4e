package main

import "fmt"

// asked is a request that ours answered.
type asked struct {
	kind   string
	tokens []int32
	got    *answer
}

// inSingleSteps compares again where an answer parts, with llama-server in steps of one token. In some architectures
// llama.cpp's answer depends on which tokens are computed together, beyond rounding. Where llama-server's two answers
// to a prompt differ by more than a near tie, the one that no other token of a step can have changed is taken, and the
// table says so.
func (t *trial) inSingleSteps(start func() (*server, error)) {
	parted := false
	for _, c := range t.Cells {
		parted = parted || c.Apart > 0
	}
	if !parted {
		return
	}
	server, err := start()
	if err != nil {
		t.Note = "llama-server in steps of one token: " + err.Error()
		return
	}
	defer server.stop()
	single := &reference{server, map[string]*answer{}}
	var self cell
	for _, q := range t.asked {
		k := key(q.tokens)
		if single.known[k] != nil {
			continue
		}
		a, err := single.answer(q.tokens)
		if err != nil {
			t.Note = err.Error()
			return
		}
		self.compare(t.ref.known[k], a)
	}
	if t.Note != "" {
		t.Note += "; "
	}
	t.Note += fmt.Sprintf("in steps of one token (-ub 1) llama-server answers %d of %d prompts otherwise than it does",
		self.Apart, self.Answers)
	if self.Apart == 0 {
		return
	}
	t.Note += fmt.Sprintf(" in one step, by up to %.2g; the row compares with these", self.Gap)
	for _, c := range t.Cells {
		*c = cell{Failed: c.Failed}
	}
	for _, q := range t.asked {
		t.ref.known[key(q.tokens)] = single.known[key(q.tokens)]
		t.cell(q.kind).compare(single.known[key(q.tokens)], q.got)
	}
}
