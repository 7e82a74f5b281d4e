package grammar

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// cont returns the cont of frames, which are sorted.
func (a *automaton) cont(end bool, frames []frame) *cont {
	key := a.key[:0]
	if end {
		key = append(key, 1)
	}
	for _, f := range frames {
		key = binary.LittleEndian.AppendUint32(key, uint32(f.pc))
		key = binary.LittleEndian.AppendUint32(key, uint32(f.arg))
		key = binary.LittleEndian.AppendUint32(key, f.up.id)
	}
	a.key = key
	if c, ok := a.conts[string(key)]; ok {
		return c
	}
	a.lastID++
	c := &cont{id: a.lastID, end: end, frames: slices.Clone(frames)}
	for _, f := range frames {
		c.reads = c.reads || f.arg != anyText && a.g.code[f.pc].op == opTaken
	}
	a.conts[string(key)] = c
	return c
}

// push returns the cont that continues at pc and then at k.
func (a *automaton) push(pc, arg int32, k *cont) *cont {
	if pc == 0 {
		return k // the place only returns
	}
	a.frames = append(a.frames[:0], frame{pc, arg, k})
	return a.cont(false, a.frames)
}

// union returns the cont of either: equal places are joined, so a state's size is bounded by the grammar's and not by
// the number of ways to read the text. The same holds for its time: two conts meet on as many paths as there are ways,
// and are joined once. It returns any cont when it fails.
func (a *automaton) union(x, y *cont) *cont {
	if x == y {
		return x
	}
	pair := [2]uint32{min(x.id, y.id), max(x.id, y.id)}
	if c := a.joins[pair]; c != nil {
		return c
	}
	if a.steps += 1 + len(x.frames) + len(y.frames); a.err != nil || a.over() {
		return x
	}
	var joined []frame
	i, j := 0, 0
	for i < len(x.frames) && j < len(y.frames) {
		f, g := x.frames[i], y.frames[j]
		switch c := compareFrames(f, g); {
		case c < 0:
			joined = append(joined, f)
			i++
		case c > 0:
			joined = append(joined, g)
			j++
		default:
			joined = append(joined, frame{f.pc, f.arg, a.union(f.up, g.up)})
			i, j = i+1, j+1
		}
	}
	joined = append(append(joined, x.frames[i:]...), y.frames[j:]...)
	c := a.cont(x.end || y.end, joined)
	if a.err == nil {
		a.joins[pair] = c
	}
	return c
}

// enter returns the state of a text that is at pc with k behind it.
func (a *automaton) enter(pc int32, k *cont) *state {
	a.begin()
	a.work = append(a.work, todo{pc, 0, k})
	a.close()
	return a.finish()
}

// after returns the state of a text that has come to k.
func (a *automaton) after(k *cont) *state {
	if k.state != nil {
		return k.state
	}
	out, end := a.out, a.outEnd // after is called while a step collects
	a.out = nil
	s := a.enter(0, k)
	a.out, a.outEnd = out, end
	if a.err == nil {
		k.state = s
	}
	return s
}

func (a *automaton) begin() {
	a.out, a.outEnd, a.work = a.out[:0], false, a.work[:0]
	clear(a.visited)
	clear(a.joins)
}

// close follows the program from a.work until every way waits for a byte, and collects them in a.out.
func (a *automaton) close() {
	for len(a.work) > 0 && a.err == nil {
		t := a.work[len(a.work)-1]
		a.work = a.work[:len(a.work)-1]
		if _, ok := a.visited[t]; ok {
			continue
		}
		a.visited[t] = struct{}{}
		a.steps++
		if len(a.visited) > 16*a.g.limits.Threads {
			a.fail("more than %d places are reached at once (16 × Limits.Threads)", 16*a.g.limits.Threads)
			return
		}
		in := &a.g.code[t.pc]
		switch in.op {
		case opReturn:
			a.outEnd = a.outEnd || t.k.end
			for _, f := range t.k.frames {
				a.work = append(a.work, todo{f.pc, f.arg, f.up})
			}
		case opTerminal:
			a.out = append(a.out, thread{in.expr, a.push(in.next, 0, t.k)})
			if a.set.Nullable(in.expr) {
				a.work = append(a.work, todo{in.next, 0, t.k})
			}
		case opCall:
			a.work = append(a.work, todo{in.to[0], 0, a.push(in.next, 0, t.k)})
		case opSplit:
			for _, to := range in.to {
				a.work = append(a.work, todo{to, 0, t.k})
			}
		case opCount:
			if in.max < 0 || int(t.arg) < in.max {
				n := t.arg + 1
				if in.max < 0 {
					n = min(n, int32(in.min))
				}
				a.work = append(a.work, todo{in.to[0], 0, a.push(t.pc, n, t.k)})
			}
			if int(t.arg) >= in.min {
				a.work = append(a.work, todo{in.next, 0, t.k})
			}
		case opSeen:
			a.vector = append(a.vector[:0], a.counts[t.arg]...)
			a.work = append(a.work, todo{in.next, a.vectorOf(a.count(&a.g.code[in.next], a.vector, in.min)), t.k})
		case opUnordered, opMember:
			a.unordered(t, in)
		case opKey:
			a.enterKey(t, in)
		case opTaken:
			a.take(t, in)
		}
	}
}

// finish returns the state of what was collected.
func (a *automaton) finish() *state {
	if a.check(); a.err != nil {
		return a.dead
	}
	slices.SortFunc(a.out, func(x, y thread) int {
		if c := cmp.Compare(x.expr, y.expr); c != 0 {
			return c
		}
		return cmp.Compare(x.k.id, y.k.id)
	})
	out := a.out[:0]
	for _, t := range a.out {
		if last := len(out) - 1; last >= 0 && out[last].expr == t.expr {
			out[last].k = a.union(out[last].k, t.k)
		} else {
			out = append(out, t)
		}
	}
	if a.err != nil {
		return a.dead
	}
	if len(out) > a.g.limits.Threads {
		a.fail("more than %d readings at once (Limits.Threads)", a.g.limits.Threads)
		return a.dead
	}
	return a.intern(out, a.outEnd)
}
