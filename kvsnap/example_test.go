package kvsnap_test

import (
	"fmt"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// do carries out what the tree asks for.
func do(e runtime.Engine, actions []kvsnap.Action) {
	for _, a := range actions {
		switch a.Kind {
		case kvsnap.Copy:
			e.SeqCopy(a.Src, a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
		case kvsnap.Remove:
			e.SeqRemove(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
		case kvsnap.Shift:
			if err := e.SeqAdd(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To), runtime.Pos(a.Delta)); err != nil {
				panic(err)
			}
		}
	}
}

// One request's life: a prompt, a think block, an answer, and the next turn, whose template drops the thinking.
func Example() {
	e := fake.New(fake.Config{Options: runtime.Options{ContextTokens: 64, Sequences: 4}})
	tree, err := kvsnap.New(kvsnap.Config{Cells: 64, CellBytes: 8, Sequences: 4, Scratch: 1})
	if err != nil {
		panic(err)
	}
	ledger := tree.Ledger()
	now := kvsnap.Instant(0)

	decode := func(s kvsnap.Seq, tokens []kvsnap.Token, from int, tier blocks.Tier) {
		if short := len(tokens) - from - ledger.Free(); short > 0 {
			_, _, actions := tree.EvictCells(short) // the victims' bytes go to the host first
			do(e, actions)
		}
		b := e.Batch()
		b.Reset()
		for i := from; i < len(tokens); i++ {
			b.Add(tokens[i], runtime.Pos(i), s, i == len(tokens)-1)
		}
		if err := e.Decode(); err != nil {
			panic(err)
		}
		tree.Progress(s, tokens, len(tokens), tier)
	}
	start := func(req uint64, prompt []kvsnap.Token) kvsnap.Acquired {
		st, err := tree.Acquire(now, &kvsnap.Prompt{Req: req, NS: 1000, Tokens: prompt})
		if err != nil || st.Waiting {
			panic("no other request runs")
		}
		do(e, st.Actions)
		decode(st.Seq, prompt, st.Cached, blocks.Prefix)
		return st
	}

	prompt := []kvsnap.Token{65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84}
	first := start(1, prompt)
	tokens := append([]kvsnap.Token(nil), prompt...)
	for i := range 10 {
		tier := blocks.ThinkActive
		if i >= 6 {
			tier = blocks.OutputCritical
		}
		if i == 6 {
			tree.EndThought(first.Seq)
		}
		tokens = append(tokens, kvsnap.Token(97+i)) // sampled
		decode(first.Seq, tokens, len(tokens)-1, tier)
	}
	cells := ledger.Tiers()
	fmt.Println("cells:", cells[blocks.Prefix], "prompt,", cells[blocks.ThinkComplete], "thought,",
		cells[blocks.OutputCritical], "answer")

	// The turn's end: the next prompt will begin with the prompt and the answer, without the thinking.
	history := append(append([]kvsnap.Token(nil), prompt...), tokens[26:]...)
	end := tree.Retain(now, first.Seq, history)
	do(e, end.Actions)
	fmt.Println("kept:", end.Kept, "of", len(tokens), "tokens; the engine uses", e.Used(), "cells")

	second := start(2, append(history, 48, 49, 50))
	fmt.Println("next turn:", second.Cached, "tokens cached,", second.Match.Reason, "at token", second.Match.Len)
	fmt.Print(tree.Dump())
	// Output:
	// cells: 20 prompt, 6 thought, 4 answer
	// kept: 20 of 30 tokens; the engine uses 20 cells
	// next turn: 20 tokens cached, ended at token 20
	// 64 cells: 7 own, 20 shared, 0 cached, 0 pinned, 37 free
	//   [0, 20) shared by 2 · prefix 1 (uid 1000, seq 0)
	//     [20, 27) own · request 2 (uid 1000, seq 1)
}
