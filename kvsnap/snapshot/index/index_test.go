package index

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

func host(n *Node) *Elem { return &n.Host }

// node makes a part as the cache does.
func node(ns format.Namespace, tokens []format.Token, p0 int) *Node {
	h := format.Header{Namespace: ns, P0: p0, P1: len(tokens), Tokens: slices.Clone(tokens[p0:])}
	h.Prefix, h.Through = format.PrefixHashes(tokens, p0)
	return &Node{Key: h.Key(), Namespace: ns, P0: p0, P1: len(tokens), Tokens: h.Tokens, Before: h.Prefix,
		After: h.Through}
}

func seq(from, n int) (out []format.Token) {
	for i := range n {
		out = append(out, format.Token(from+i))
	}
	return out
}

func TestLookup(t *testing.T) {
	sys := seq(0, 40)
	alice := append(slices.Clone(sys), seq(1000, 60)...)
	bob := append(slices.Clone(sys), seq(2000, 23)...)
	x := New(7)
	a0, a1 := node(1, alice[:70], 40), node(1, alice, 70)
	x.Add(a1) // nothing before it yet
	x.Add(a0)
	if a1.Usable() || a0.Usable() {
		t.Fatal("usable without a beginning")
	}
	if n, _ := x.Lookup(1, alice, false); n != nil {
		t.Fatal("found without a beginning")
	}
	s := node(format.System, sys, 0)
	x.Add(s)
	b := node(2, bob, 40)
	x.Add(b)
	own := node(2, seq(5000, 10), 0) // shorter than a block
	x.Add(own)
	for _, c := range []struct {
		name  string
		ns    format.Namespace
		q     []format.Token
		whole bool
		node  *Node
		match int
	}{
		{"all of a chain", 1, alice, false, a1, 100},
		{"longer query", 1, append(slices.Clone(alice), 9, 9), false, a1, 100},
		{"cut inside the last part", 1, alice[:81], false, a1, 81},
		{"cut inside the middle part", 1, alice[:65], false, a0, 65},
		{"diverges inside a part", 1, append(slices.Clone(alice[:90]), seq(7, 20)...), false, a1, 90},
		{"diverges at a joint", 1, append(slices.Clone(alice[:70]), seq(7, 20)...), false, a0, 70},
		{"whole parts only", 1, alice[:90], true, a0, 70},
		{"whole, exact", 1, alice, true, a1, 100},
		{"only the shared prompt", 3, alice, false, s, 40},
		{"shared, cut", 3, alice[:33], false, s, 33},
		{"shared, cut, whole", 3, alice[:33], true, nil, 0},
		{"another's part", 2, alice, false, s, 40},
		{"end between places", 2, bob, false, b, 63},
		{"shorter than a block", 2, seq(5000, 30), true, own, 10},
		{"shorter than a block, cut", 2, seq(5000, 5), false, own, 5},
		{"another's short one", 1, seq(5000, 30), false, nil, 0},
		{"empty", 1, nil, false, nil, 0},
		{"unknown", 1, seq(9000, 100), false, nil, 0},
	} {
		if n, m := x.Lookup(c.ns, c.q, c.whole); n != c.node || m != c.match {
			t.Errorf("%s: got %+v, %d; want %d", c.name, n, m, c.match)
		}
	}
	x.Remove(s)
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
	if n, _ := x.Lookup(1, alice, false); n != nil || a1.Usable() || a1.Parent == nil && a1.Usable() {
		t.Error("found after its beginning was removed")
	}
	again := node(1, sys, 0) // Alice's own copy takes the shared one's place, for her
	x.Add(again)
	if n, m := x.Lookup(1, alice, false); n != a1 || m != 100 {
		t.Error("not found behind another part with the same tokens")
	}
	if b.Usable() {
		t.Error("Bob's part stands on Alice's")
	}
}

// naive returns the length that Lookup must find, by trying every chain.
func naive(all []*Node, ns format.Namespace, q []format.Token, whole bool) int {
	best := 0
	var walk func(end int, after format.Hash, owner format.Namespace)
	walk = func(end int, after format.Hash, owner format.Namespace) {
		best = max(best, end)
		for _, n := range all {
			if n.P0 != end || n.Before != after || !visible(owner, n.Namespace) || !visible(n.Namespace, ns) ||
				end >= len(q) {
				continue
			}
			m := 0
			for m < min(len(n.Tokens), len(q)-end) && n.Tokens[m] == q[end+m] {
				m++
			}
			if m == len(n.Tokens) {
				walk(n.P1, n.After, n.Namespace)
			} else if !whole {
				best = max(best, end+m)
			}
		}
	}
	walk(0, format.PrefixHash(nil), format.System)
	return best
}

// TestRandom compares with naive over random forests. Lookup may miss the tail of a part that begins at the
// query's last place (Block-1 tokens at most); it must never claim more than that.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(rapid.Uint64().Draw(t, "seed"))
		q := NewQueue(1 << 40)
		var all []*Node
		var texts [][]format.Token
		token := rapid.Int32Range(0, 1)
		text := func(n int) []format.Token {
			var s []format.Token
			if len(texts) > 0 && rapid.IntRange(0, 3).Draw(t, "extend") > 0 {
				s = rapid.SampledFrom(texts).Draw(t, "text")
				s = slices.Clone(s[:rapid.IntRange(0, len(s)).Draw(t, "cut")])
			}
			return append(s, rapid.SliceOfN(token, 1, n).Draw(t, "more")...)
		}
		owner := rapid.SampledFrom([]format.Namespace{1, 2, format.System})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "do") {
			case 0:
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					x.Remove(all[i])
					q.Remove(&all[i].Host)
					all = slices.Delete(all, i, i+1)
				}
			case 1, 2, 3:
				s := text(50)
				p0 := rapid.IntRange(0, len(s)-1).Draw(t, "p0")
				var joints []int
				for _, n := range all {
					if n.P1 < len(s) && n.After == format.PrefixHash(s[:n.P1]) {
						joints = append(joints, n.P1)
					}
				}
				if len(joints) > 0 && rapid.Bool().Draw(t, "joint") {
					p0 = rapid.SampledFrom(joints).Draw(t, "joint at")
				} else if rapid.Bool().Draw(t, "from 0") {
					p0 = 0
				}
				n := node(owner.Draw(t, "owner"), s, p0)
				if x.Get(n.Key) == nil {
					x.Add(n)
					q.Push(n, int64(len(n.Tokens)), host)
					all = append(all, n)
					texts = append(texts, s)
				}
			case 4:
				ns, s, whole := owner.Draw(t, "as"), text(20), rapid.Bool().Draw(t, "whole")
				n, m := x.Lookup(ns, s, whole)
				want := naive(all, ns, s, whole)
				if m > want {
					t.Fatalf("found %d tokens, only %d are cached", m, want)
				}
				slack := Block - 1
				if whole {
					slack = 0
				}
				if m < want-slack {
					t.Fatalf("found %d tokens of %d (whole: %v)", m, want, whole)
				}
				for end := m; n != nil; n = n.Parent {
					if !visible(n.Namespace, ns) || n.P0 >= end || !slices.Equal(n.Tokens[:min(end, n.P1)-n.P0],
						s[n.P0:min(end, n.P1)]) {
						t.Fatalf("chain is wrong at [%d, %d)", n.P0, n.P1)
					}
					end = n.P0
				}
			case 5:
				if len(all) > 0 {
					q.Hit(rapid.SampledFrom(all).Draw(t, "hit"), host)
				}
			}
			if err := x.Check(); err != nil {
				t.Fatal(err)
			}
			if err := q.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCollision: parts filed under wrong hashes must not be believed.
func TestCollision(t *testing.T) {
	x := New(1)
	n := node(1, seq(0, 64), 0)
	x.Add(n)
	n.Tokens[20]++ // as if another text had the same hashes
	if got, m := x.Lookup(1, seq(0, 64), true); got != nil {
		t.Errorf("found %d tokens by hash alone", m)
	}
}

func TestQueueOrder(t *testing.T) {
	x, q := New(1), NewQueue(100)
	add := func(text []format.Token, p0 int) *Node {
		n := node(1, text, p0)
		x.Add(n)
		q.Push(n, 10, host)
		return n
	}
	victim := func(want *Node) {
		t.Helper()
		if got := q.Victim(func(*Node) bool { return true }); got != want {
			t.Fatalf("victim [%d, %d) of %d…, want [%d, %d) of %d…", got.P0, got.P1, got.Tokens[0], want.P0, want.P1,
				want.Tokens[0])
		}
	}
	chat := seq(0, 60)
	c0, c1, c2 := add(chat[:20], 0), add(chat[:40], 20), add(chat, 40)
	victim(c2) // the end of the chain, though it came last
	once := add(seq(500, 20), 0)
	victim(c2)
	q.Hit(c1, host) // the conversation comes back, as far as c1
	victim(c2)
	q.Hit(c2, host)
	victim(once)
	for i := range 5 { // a flood of prompts that are asked once
		n := add(seq(1000+100*i, 20), 0)
		v := q.Victim(func(*Node) bool { return true })
		if v == c0 || v == c1 || v == c2 {
			t.Fatal("a one-shot prompt pushes out a conversation")
		}
		q.Remove(&v.Host)
		x.Remove(v)
		_ = n
	}
	if got := q.Nodes(); len(got) != q.Len() || got[len(got)-1] != c0 {
		t.Errorf("%d nodes, the last to leave is not the conversation's beginning", len(got))
	}
	// Kept parts give way when there are too many of them.
	for i := range 10 {
		n := add(seq(5000+100*i, 20), 0)
		q.Hit(n, host)
	}
	if q.kept.bytes > 80 {
		t.Errorf("the kept segment has %d bytes of a cap of 100", q.kept.bytes)
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds may")
	}
	x, text := filled(4096, 64)
	if n := testing.AllocsPerRun(100, func() { x.Lookup(1, text, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// filled has one conversation of so many tokens in parts of 256, beside others that share its first 512.
func filled(tokens, others int) (*Index, []format.Token) {
	x := New(3)
	text := seq(0, tokens)
	for p := 0; p < tokens; p += 256 {
		x.Add(node(1, text[:p+256], p))
	}
	for i := range others {
		x.Add(node(1, append(slices.Clone(text[:512]), seq(10000*(i+1), 512)...), 512))
	}
	return x, text
}

func BenchmarkLookup(b *testing.B) {
	for _, tokens := range []int{256, 1024, 8192, 32768} {
		x, text := filled(max(tokens, 512), 200)
		b.Run(fmt.Sprintf("hit-%d", tokens), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, m := x.Lookup(1, text[:tokens], false); m != tokens {
					b.Fatal(m)
				}
			}
		})
	}
	x, _ := filled(512, 200)
	miss := seq(1<<20, 1024)
	b.Run("miss-1024", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n, _ := x.Lookup(1, miss, false); n != nil {
				b.Fatal("found")
			}
		}
	})
}
