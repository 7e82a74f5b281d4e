package grammar

import (
	"errors"
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Key is the text with which a member of an Unordered begins, where no two members with a Key may begin with equal
// texts: the names of an object's members, or the items of an array that must differ. What was written is remembered in
// the states of the automaton, so such a list costs more than others.
type Key struct {
	// Texts are the texts of the key, the empty one not among them. There must be more than MaxDistinct, or than the
	// Unordered may have members: it is not asked whether one is left.
	Texts regex.Expr
	// Value returns the value by which two texts are compared: texts with equal values are equal.
	Value func(text []byte) string
	// Without returns Texts without those whose values are given. It must give the same for the same values.
	Without func(values []string) regex.Expr
}

var errEmptyKey = errors.New("grammar: the key of a member may be empty")

// MaxDistinct is the most members of an Unordered with a Key.
const MaxDistinct = 1024

// maxKeyBytes is the most bytes of keys that are remembered at a time.
const maxKeyBytes = 1 << 20

// anyText stands for the text of a key in a state that is only asked for its mask: what was read of a key does not
// matter to what may follow it within one token. A token in which a second key ends is not offered.
const anyText = -1

// keyByte is a text of a key: the one of parent, and a byte. Text 0 is empty.
type keyByte struct {
	parent int32
	byte   byte
}

// taken is a set of the values of keys: that of parent, and a value. Set 0 is empty.
type taken struct {
	parent int32
	size   int32
	value  string
	any    bool // one that is not known
}

// takenKey is the key of a member where the values of a set may not come.
type takenKey struct {
	pc, set int32
}

// setKeys forgets all texts and values.
func (a *automaton) setKeys() {
	a.keyBytes = append(a.keyBytes[:0], keyByte{})
	a.takens = append(a.takens[:0], taken{})
	a.takenIDs, a.without = map[taken]int32{}, map[takenKey]regex.Expr{}
}

// read returns the cont in which the keys that k reads have b more.
func (a *automaton) read(k *cont, b byte) *cont {
	if !k.reads {
		return k
	}
	frames := slices.Clone(k.frames)
	for i := range frames {
		f := &frames[i]
		if a.g.code[f.pc].op != opTaken || f.arg == anyText {
			continue
		}
		if len(a.keyBytes) >= maxKeyBytes {
			a.full, a.spoiled = a.full || a.err == nil, true
			a.fail("more than %d bytes of names and items that must differ", maxKeyBytes)
			return k
		}
		a.keyBytes = append(a.keyBytes, keyByte{f.arg, b})
		f.arg = int32(len(a.keyBytes) - 1)
	}
	slices.SortFunc(frames, compareFrames)
	return a.cont(k.end, frames)
}

// text returns the text of a key.
func (a *automaton) text(id int32) (text []byte) {
	for ; id > 0; id = a.keyBytes[id].parent {
		text = append(text, a.keyBytes[id].byte)
	}
	slices.Reverse(text)
	return text
}

// enterKey continues at the beginning of a key: each frame of t.k is the place behind a member of an Unordered, with
// what that has seen.
func (a *automaton) enterKey(t todo, in *instr) {
	for _, f := range t.k.frames {
		k := t.k
		if len(t.k.frames) > 1 {
			a.frames = append(a.frames[:0], f)
			k = a.cont(false, a.frames)
		}
		set, text := a.takenOf(f.arg), int32(0)
		if a.takens[set].any {
			text = anyText
		}
		a.out = append(a.out, thread{a.keyTexts(t.pc, in, set), a.push(in.next, text, k)})
	}
}

// takenOf returns the set of values in a vector of what an Unordered with keys has seen.
func (a *automaton) takenOf(vector int32) int32 {
	seen := a.counts[vector]
	return seen[len(seen)-1]
}

// keyTexts returns the texts of the key at pc without the values of set.
func (a *automaton) keyTexts(pc int32, in *instr, set int32) regex.Expr {
	if set == 0 {
		return in.key.Texts
	}
	at := takenKey{pc, set}
	e, ok := a.without[at]
	if !ok {
		var values []string
		for id := set; id > 0; id = a.takens[id].parent {
			if !a.takens[id].any {
				values = append(values, a.takens[id].value)
			}
		}
		e = in.key.Without(values)
		a.without[at] = e
	}
	return e
}

// fullOfKeys reports whether an Unordered that has seen a vector takes no more keys.
func (a *automaton) fullOfKeys(in *instr, seen []int32) bool {
	return in.keyed && a.takens[seen[len(seen)-1]].size >= MaxDistinct
}

// take continues behind a key: its value joins what the Unordered has seen.
func (a *automaton) take(t todo, in *instr) {
	add := taken{any: t.arg == anyText}
	if !add.any {
		add.value = in.key.Value(a.text(t.arg))
	}
	frames := make([]frame, 0, len(t.k.frames))
	for _, f := range t.k.frames {
		set := a.takenOf(f.arg)
		if add.parent = set; a.takens[set].any {
			continue // see anyText
		}
		add.size = a.takens[set].size + 1
		id, ok := a.takenIDs[add]
		if !ok {
			id = int32(len(a.takens))
			a.takens = append(a.takens, add)
			a.takenIDs[add] = id
		}
		a.vector = append(a.vector[:0], a.counts[f.arg]...)
		a.vector[len(a.vector)-1] = id
		frames = append(frames, frame{f.pc, a.vectorOf(a.vector), f.up})
	}
	if len(frames) == 0 {
		return
	}
	slices.SortFunc(frames, compareFrames)
	a.work = append(a.work, todo{in.next, 0, a.cont(false, frames)})
}

// unread returns a state with the mask of s, in which the texts of keys are not known.
func (a *automaton) unread(s *state) *state {
	if !s.readsKeys() {
		return s
	}
	out, end := a.out, a.outEnd
	a.out, a.outEnd = nil, s.end
	for _, t := range s.threads {
		if t.k.reads {
			frames := slices.Clone(t.k.frames)
			for i := range frames {
				if a.g.code[frames[i].pc].op == opTaken {
					frames[i].arg = anyText
				}
			}
			slices.SortFunc(frames, compareFrames)
			t.k = a.joined(t.k.end, frames)
		}
		a.out = append(a.out, t)
	}
	u := a.finish()
	a.out, a.outEnd = out, end
	return u
}

// joined is cont for frames of which several may have one place: what follows them is joined.
func (a *automaton) joined(end bool, frames []frame) *cont {
	out := frames[:0]
	for _, f := range frames {
		if last := len(out) - 1; last >= 0 && compareFrames(out[last], f) == 0 {
			out[last].up = a.union(out[last].up, f.up)
		} else {
			out = append(out, f)
		}
	}
	return a.cont(end, out)
}

// readsKeys reports whether s has the text of a key.
func (s *state) readsKeys() bool {
	return slices.ContainsFunc(s.threads, func(t thread) bool { return t.k.reads })
}
