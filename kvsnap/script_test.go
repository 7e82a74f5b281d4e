package kvsnap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// TestScripts runs testdata/*.txt. After each command the tree's counts are compared with a list of cells and with the
// fake engine's. `go test -rewrite` writes the present output into the scripts. Commands:
//
// A TEXT is words; WORD*N stands for N tokens, the same ones wherever WORD occurs.
//
//	config cells=N sequences=N [scratch=N] [join=N] [keep=N] [whole] [share]
//	lookup [uid=N] TEXT
//	start ID [uid=N] [system=N] [nowait] [apart] TEXT    system: how many tokens may be shared with other users
//	compute ID N|all                             all: the whole prompt
//	say ID [think|answer] TEXT                   sample these tokens and compute them
//	end-thought ID
//	park ID                                      it is preempted; start ID continues it
//	retain ID TEXT|same                          the turn ends; its next one begins with TEXT
//	release ID · cancel ID · stall ID · resume ID · cut ID FROM N
//	evict N · pin E · unpin E · drop E
//	tree · entries · stats
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var sc script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(first(d) + "\n" + d.Input) {
				words := strings.Fields(line)
				if len(words) == 0 || words[0][0] == '#' {
					continue
				}
				sc.command(t, &out, words)
				if err := sc.p.check(); err != nil {
					t.Fatalf("after %q: %v", line, err)
				}
			}
			return out.String()
		})
	})
}

// first returns a directive's first line.
func first(d *datadriven.TestData) string {
	words := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// words numbers the words of all scripts, from 1.
var words = map[string]Token{}

// parse reads a TEXT. A token is the word's number and the place within the word; the fake engine's vocabulary is
// small, so both are small.
func parse(t *testing.T, text []string) (tokens []Token) {
	t.Helper()
	for _, w := range text {
		word, times, many := strings.Cut(w, "*")
		n := 1
		if many {
			var err error
			if n, err = strconv.Atoi(times); err != nil {
				t.Fatalf("%q: %v", w, err)
			}
		}
		if words[word] == 0 {
			words[word] = Token(len(words) + 1)
		}
		for i := range n {
			tokens = append(tokens, words[word]*37%200+Token(i%7))
		}
	}
	return tokens
}

type script struct {
	p *pair
}

// options takes the KEY=VALUE and flag words off the front.
func options(t *testing.T, args []string, flags ...string) (map[string]int, []string) {
	t.Helper()
	opt := map[string]int{}
	for len(args) > 0 {
		key, value, has := strings.Cut(args[0], "=")
		if !has && !slices.Contains(flags, key) {
			break
		}
		opt[key] = 1
		if has {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("%q: %v", args[0], err)
			}
			opt[key] = n
		}
		args = args[1:]
	}
	return opt, args
}

func (sc *script) byID(t *testing.T, id string) *run {
	t.Helper()
	for _, r := range sc.p.runs {
		if fmt.Sprint(r.p.Req) == id {
			return r
		}
	}
	t.Fatalf("request %s does not run", id)
	return nil
}

func (sc *script) command(t *testing.T, out *strings.Builder, args []string) {
	t.Helper()
	p := sc.p
	verb, args := args[0], args[1:]
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s %v: %v", verb, args, err)
		}
	}
	number := func(i int) int {
		t.Helper()
		n, err := strconv.Atoi(args[i])
		must(err)
		return n
	}
	woken := func(reqs []uint64, err error) {
		t.Helper()
		must(err)
		for _, id := range reqs {
			fmt.Fprintf(out, "wake request %d\n", id)
		}
	}
	switch verb {
	case "config":
		o, _ := options(t, args, "seals", "share")
		var err error
		sc.p, err = newPair(Config{
			Cells: o["cells"], CellBytes: 1024, Sequences: o["sequences"], Scratch: o["scratch"], JoinMin: o["join"],
			KeepMin: o["keep"],
			Seals:   o["seals"] == 1, SealEvery: o["every"], ShareSystem: o["share"] == 1,
		})
		must(err)
	case "lookup", "start":
		id := 0
		if verb == "start" {
			id = number(0)
			args = args[1:]
		}
		o, text := options(t, args, "nowait", "apart")
		pr := Prompt{Req: uint64(id), NS: uint64(o["uid"]), Tokens: parse(t, text), Shareable: o["system"],
			NoWait: o["nowait"] == 1,
			Apart:  o["apart"] == 1}
		if verb == "lookup" {
			sc.match(out, p.t.Lookup(&pr), len(pr.Tokens))
			return
		}
		s, err := p.start(pr)
		if err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
			return
		}
		if s.Waiting {
			fmt.Fprintf(out, "request %d waits until request %d has computed %d tokens\n", id, s.WaitFor, s.Until)
			return
		}
		fmt.Fprintf(out, "request %d is seq %d: ", id, s.Seq)
		sc.match(out, s.Match, len(pr.Tokens))
		if len(s.Stops) > 0 {
			fmt.Fprintf(out, "  stops at %v\n", s.Stops)
		}
		sc.victims(out, s.Evicted)
		sc.actions(out, s.Actions)
	case "compute":
		r := sc.byID(t, args[0])
		n := len(r.tokens) - r.computed
		if args[1] != "all" {
			n = number(1)
		}
		for end := r.computed + n; r.computed < end; {
			before := r.computed
			if woken(p.progress(r, end-r.computed, nil)); r.computed == before {
				break // no cell is free
			}
		}
	case "say":
		r := sc.byID(t, args[0])
		switch text := args[1:]; text[0] {
		case "think", "answer":
			r.tier = map[string]blocks.Tier{"think": blocks.ThinkActive, "answer": blocks.OutputCritical}[text[0]]
			args = append(args[:1:1], text[1:]...)
		}
		r.tokens = append(r.tokens, parse(t, args[1:])...)
		woken(p.progress(r, len(r.tokens)-r.computed, nil))
	case "retain":
		r := sc.byID(t, args[0])
		history := r.tokens
		if args[1] != "same" {
			history = parse(t, args[1:])
		}
		e, err := p.end(r, true, history)
		must(err)
		if e.Entry == 0 {
			fmt.Fprintf(out, "nothing kept\n")
		} else {
			fmt.Fprintf(out, "prefix %d keeps %d of %d tokens\n", e.Entry, e.Kept, r.computed)
		}
		sc.actions(out, e.Actions)
		woken(e.Wake, nil)
	case "end-thought":
		p.endThought(sc.byID(t, args[0]))
	case "park":
		_, err := p.park(sc.byID(t, args[0]))
		must(err)
	case "release":
		e, err := p.end(sc.byID(t, args[0]), false, nil)
		must(err)
		sc.actions(out, e.Actions)
		woken(e.Wake, nil)
	case "cancel":
		must(p.do(p.t.Cancel(uint64(number(0)))))
		delete(p.waiting, uint64(number(0)))
	case "stall", "resume":
		woken(p.wake(p.t.Stall(sc.byID(t, args[0]).seq, verb == "stall")))
	case "cut":
		r := sc.byID(t, args[0])
		from, n := number(1), number(2)
		tokens := slices.Clone(r.tokens)
		if from+n <= len(tokens) {
			tokens = slices.Delete(tokens, from, from+n)
		}
		e, err := p.t.Cut(r.seq, tokens, from, n)
		if err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
			return
		}
		r.tokens, r.computed, r.cut = tokens, r.computed-n, min(r.cut, from)
		must(p.do(e.Actions))
		sc.actions(out, e.Actions)
		woken(p.wake(e.Wake))
	case "evict":
		n := number(0)
		before := p.t.Cells().Free
		freed, victims, actions := p.t.EvictCells(n)
		fmt.Fprintf(out, "%d of %d cells freed\n", freed, n)
		if p.t.Cells().Free != before+freed {
			t.Fatalf("%d cells freed, the ledger says %d", freed, p.t.Cells().Free-before)
		}
		sc.victims(out, victims)
		sc.actions(out, actions)
		must(p.do(actions))
	case "pin", "unpin":
		do := p.t.Pin
		if verb == "unpin" {
			do = p.t.Unpin
		}
		if err := do(uint64(number(0))); err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
		}
	case "drop":
		e, err := p.t.Drop(uint64(number(0)))
		if err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
			return
		}
		sc.actions(out, e.Actions)
		must(p.do(e.Actions))
	case "tree":
		out.WriteString(p.t.Dump())
	case "entries":
		for _, e := range p.t.Entries(nil) {
			what := fmt.Sprintf("prefix %d", e.ID)
			if e.Running {
				what = fmt.Sprintf("request %d", e.Req)
			}
			fmt.Fprintf(out, "%-10s uid %d seq %d: %d tokens, %d own cells (%d bytes), %d hits, %d turns: %s\n",
				what, e.NS, e.Seq, e.Tokens, e.OwnCells, e.OwnBytes, e.Hits, e.Turns, e.Why)
		}
	case "stats":
		s := p.t.Stats()
		fmt.Fprintf(out, "%d lookups, %d hits, %d of %d tokens cached, %d joins, %d retained, %d merged, %d "+
			"evictions of %d cells, %d for an id\n",
			s.Lookups, s.Hits, s.CachedTokens, s.PromptTokens, s.Joins, s.Retained, s.Merged, s.Evictions,
			s.EvictedCells, s.IDEvictions)
	default:
		t.Fatalf("unknown command %q", verb)
	}
}

func (sc *script) match(out *strings.Builder, m Match, of int) {
	fmt.Fprintf(out, "%d of %d tokens cached", m.Len, of)
	if m.Len > 0 {
		who := "a cached prefix"
		if m.Running {
			who = "a running request"
		}
		fmt.Fprintf(out, " in seq %d, %s", m.Source, who)
	}
	fmt.Fprintf(out, ": %v at %d", m.Reason, m.Len)
	if m.Ahead > 0 {
		fmt.Fprintf(out, ", request %d is to compute %d more", m.AheadReq, m.Ahead)
	}
	out.WriteByte('\n')
}

func (sc *script) victims(out *strings.Builder, vs []Victim) {
	for _, v := range vs {
		fmt.Fprintf(out, "  prefix %d loses [%d, %d): %d cells, %d bytes freed", v.Entry, v.From, v.To, v.Freed,
			v.Bytes)
		if v.Offload {
			out.WriteString(", worth a copy")
		}
		out.WriteByte('\n')
	}
}

func (sc *script) actions(out *strings.Builder, as []Action) {
	for _, a := range as {
		end := "end"
		if a.To >= 0 {
			end = fmt.Sprint(a.To)
		}
		switch a.Kind {
		case Copy:
			fmt.Fprintf(out, "  copy seq %d to %d [%d, %s)\n", a.Src, a.Dst, a.From, end)
		case Remove:
			fmt.Fprintf(out, "  remove seq %d [%d, %s)\n", a.Dst, a.From, end)
		case Shift:
			fmt.Fprintf(out, "  shift seq %d [%d, %s) by %d\n", a.Dst, a.From, end, a.Delta)
		}
	}
}
