package kvevents

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// run returns n tokens from first on.
func run(first, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(first + i)
	}
	return out
}

// TestTracker: what is stored and removed is told once, whichever sequences hold it.
func TestTracker(t *testing.T) {
	type seq struct {
		slot, owner uint64
		tokens      []int32
	}
	a := run(0, 48)
	other := append(run(0, 16), run(100, 16)...)
	tr := NewTracker(Device, 100)
	for i, step := range []struct {
		seqs          []seq
		stored, first int // blocks in events of stored ones, and the first index of the first event
		removed       int
	}{
		{[]seq{{1, 1, a[:15]}}, 0, 0, 0}, // no whole block
		{[]seq{{1, 1, a[:40]}}, 2, 0, 0},
		{[]seq{{1, 1, a[:40]}}, 0, 0, 0},
		{[]seq{{1, 1, a}, {2, 2, a[:32]}}, 1, 2, 0}, // shared blocks are known
		{[]seq{{2, 2, a[:32]}}, 0, 0, 1},
		{[]seq{{2, 3, other}}, 1, 1, 1}, // another owner, the same first block
		{[]seq{{5, 9, other}}, 0, 0, 0}, // another slot
		{nil, 0, 0, 2},
	} {
		tr.Begin()
		for _, s := range step.seqs {
			tr.Sequence(s.slot, s.owner, 7, s.tokens)
		}
		stored, removed, first := 0, 0, 0
		for k, e := range tr.End() {
			if e.Removed {
				removed += len(e.Hashes)
				continue
			}
			if k == 0 {
				first = e.First
			}
			stored += len(e.Hashes)
			if len(e.Tokens) != BlockTokens*len(e.Hashes) || (e.First > 0) != (e.Parent != 0) {
				t.Errorf("step %d: %+v", i, e)
			}
		}
		if stored != step.stored || removed != step.removed || first != step.first {
			t.Errorf("step %d: stored %d from %d, removed %d; want %+v", i, stored, first, removed, step)
		}
	}
}

// TestTrackerRandom: applying the events to a set gives the blocks of the sequences, after any changes.
func TestTrackerRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tr := NewTracker(Host, 1<<20)
	known := map[uint64]bool{}
	type state struct {
		owner  uint64
		tokens []int32
	}
	seqs := map[uint64]*state{}
	owner := uint64(0)
	for range 2000 {
		slot := rng.Uint64N(6)
		switch s := seqs[slot]; {
		case s == nil || rng.IntN(5) == 0:
			owner++
			seqs[slot] = &state{owner, append(run(0, 16*rng.IntN(4)), run(1000*rng.IntN(3), rng.IntN(40))...)}
		case rng.IntN(4) == 0:
			delete(seqs, slot)
		case rng.IntN(2) == 0:
			s.tokens = s.tokens[:rng.IntN(len(s.tokens)+1)]
		default:
			s.tokens = append(slices.Clip(s.tokens), run(rng.IntN(2), rng.IntN(30))...)
			owner++ // what followed a cut may differ
			s.owner = owner
		}
		tr.Begin()
		want := map[uint64]bool{}
		for slot, s := range seqs {
			tr.Sequence(slot, s.owner, 1, s.tokens)
			parent := uint64(0)
			for i := 0; i+BlockTokens <= len(s.tokens); i += BlockTokens {
				parent = blockHash(parent, 1, s.tokens[i:])
				want[parent] = true
			}
		}
		for _, e := range tr.End() {
			for _, h := range e.Hashes {
				if known[h] == !e.Removed {
					t.Fatalf("block %x: removed %v, known %v", h, e.Removed, known[h])
				}
				if known[h] = !e.Removed; e.Removed {
					delete(known, h)
				}
			}
		}
		if !reflect.DeepEqual(known, want) {
			t.Fatalf("%d blocks are known, %d are held", len(known), len(want))
		}
	}
}

// TestTrackerLimit: what is beyond the limit is not followed, and is later if there is room.
func TestTrackerLimit(t *testing.T) {
	tr := NewTracker(Device, 2)
	tr.Begin()
	tr.Sequence(1, 1, 0, run(0, 64))
	if e := tr.End(); len(e) != 1 || len(e[0].Hashes) != 2 {
		t.Fatalf("%+v", e)
	}
	tr.Begin()
	tr.Sequence(2, 2, 0, run(0, 32))
	if e := tr.End(); len(e) != 0 {
		t.Errorf("%+v", e)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(AppendMessage(nil, &Message{Again: true, Events: []Event{
		{Tier: Storage, NS: 3, First: 2, Parent: 9, Hashes: []uint64{1, 2}, Tokens: run(5, 32)},
		{Tier: Host, Removed: true, Hashes: []uint64{4}},
	}}))
	f.Add([]byte{1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Error(err)
			}
			return
		}
		again, err := ParseMessage(AppendMessage(nil, &m))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%+v %v", again, err)
		}
		h := NewHub(time.Now)
		h.Apply("m", &m)
		h.Apply("m", &m)
		for _, batch := range h.Since(0) {
			if _, err := msgp.Skip(batch.Payload); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzPeer(f *testing.F) {
	f.Add(append(greeting(), ready("SUB")...))
	f.Add(appendCommand(nil, "SUBSCRIBE", []byte("x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = checkGreeting(b[:min(len(b), greetingBytes)])
		property(b, "Socket-Type")
		subscriptionOf("", b)
		r := bytes.NewReader(b)
		for {
			frames, err := readMessage(r, func(name string, data []byte) error {
				subscriptionOf(name, data)
				return nil
			})
			if err != nil {
				return
			}
			if len(frames) == 0 {
				t.Error("a message without frames")
			}
		}
	})
}

// decoded is a published event as generic values.
func decoded(t *testing.T, b Batch) []map[string]any {
	t.Helper()
	v, rest, err := msgp.ReadIntfBytes(b.Payload)
	if err != nil || len(rest) > 0 {
		t.Fatalf("batch %d: %v, %d bytes are left", b.Seq, err, len(rest))
	}
	list := v.([]any)
	if len(list) != 3 {
		t.Fatalf("%v", list)
	}
	var out []map[string]any
	for _, e := range list[1].([]any) {
		out = append(out, e.(map[string]any))
	}
	return out
}

// TestHub: a first batch clears what an earlier process told; tiers are told apart; a replay has the batches, or, where
// they are not kept any more, everything.
func TestHub(t *testing.T) {
	h := NewHub(func() time.Time { return time.Unix(1000, 0) })
	tr := NewTracker(Device, 100)
	tr.Begin()
	tr.Sequence(1, 1, 7, run(0, 32))
	stored := tr.End()
	h.Apply("m", &Message{Events: stored})
	host := stored[0]
	host.Tier = Host
	h.Apply("m", &Message{Events: []Event{host}})
	h.Apply("m", &Message{Events: stored}) // again: no news
	h.Apply("m", &Message{Events: []Event{{Tier: Device, Removed: true,
		Hashes: append([]uint64{1}, stored[0].Hashes...)}}})
	all := h.Since(1000 * 1e6)
	if len(all) != 3 || all[0].Seq != 1000*1e6 || all[2].Seq != all[0].Seq+2 {
		t.Fatalf("%d batches", len(all))
	}
	first, last := decoded(t, all[0]), decoded(t, all[2])
	if first[0]["type"] != "AllBlocksCleared" || first[1]["type"] != "BlockStored" || first[1]["medium"] != "GPU" ||
		first[1]["parent_block_hash"] != nil || len(first[1]["token_ids"].([]any)) != 32 {
		t.Errorf("%v", first)
	}
	if last[0]["type"] != "BlockRemoved" || len(last[0]["block_hashes"].([]any)) != 2 { // an unknown block is not told
		t.Errorf("%v", last)
	}
	old := h.Since(5) // of an earlier process
	if len(old) != 1 || old[0].Seq != all[2].Seq {
		t.Fatalf("%+v", old)
	}
	if e := decoded(t, old[0]); len(e) != 3 || e[0]["type"] != "AllBlocksCleared" || e[1]["medium"] != "CPU" {
		t.Errorf("%v", e)
	}
	h.Ended("m")
	if st := h.Stats(); st.Blocks != 0 || st.Removed[Host] != 2 || st.Batches != 4 {
		t.Errorf("%+v", st)
	}
	if e := decoded(t, h.Since(5)[0]); len(e) != 1 {
		t.Errorf("%v", e)
	}
	h.Apply("m", &Message{Again: true, Events: stored})
	if st := h.Stats(); st.Blocks != 2 {
		t.Errorf("%+v", st)
	}
}

// TestHubKeepsBlocks: a block that is held does not hold the tokens of all blocks that were told with it.
func TestHubKeepsBlocks(t *testing.T) {
	h := NewHub(time.Now)
	tokens := run(0, 32)
	h.Apply("m", &Message{Events: []Event{{Hashes: []uint64{1, 2}, Tokens: tokens}}})
	clear(tokens)
	e := decoded(t, h.Since(0)[0])
	if list := e[2]["token_ids"].([]any); len(e) != 3 || fmt.Sprint(list[:2]) != "[16 17]" {
		t.Errorf("%v", e)
	}
}

// TestReporter: the pool and the stores are told; when too much waits, everything is told anew.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(time.Now)
		var mu sync.Mutex // the goroutine of Run asks, too
		var again int
		parts := []Part{{Key: 1, NS: 7, Tokens: run(0, 20), Before: -1, Host: true},
			{Key: 2, NS: 7, Tokens: run(20, 20), Before: 0}}
		version := 1
		seen := 0
		r := NewReporter(func(m *Message) {
			if m.Again {
				mu.Lock()
				again++
				mu.Unlock()
			}
			hub.Apply("m", m)
		}, func(all bool) ([]Part, bool) {
			mu.Lock()
			defer mu.Unlock()
			if seen == version && !all {
				return nil, false
			}
			seen = version
			return parts, true
		})
		done := make(chan struct{})
		go r.Run(done)
		pool := run(0, 40)
		scan := func() {
			r.Scan(func(sequence func(slot, owner uint64, ns uint64, tokens []int32)) { sequence(1, 1, 7, pool) })
			synctest.Wait()
		}
		if !r.Due(time.Now(), 1, false) || r.Due(time.Now(), 2, false) || !r.Due(time.Now(), 2, true) {
			t.Error("when it is due")
		}
		scan()
		st := hub.Stats()
		if st.Blocks != 2 || st.Stored != [NumTiers]uint64{2, 1, 2} {
			t.Errorf("%+v", st)
		}
		mu.Lock()
		parts, version = parts[:1], 2
		mu.Unlock()
		time.Sleep(2 * storesEvery)
		synctest.Wait()
		if st = hub.Stats(); st.Removed[Storage] != 2 {
			t.Errorf("%+v", st)
		}
		r.mu.Lock()
		r.blocks = maxWaiting
		r.mu.Unlock()
		pool = run(0, 64)
		scan()
		if again != 0 {
			t.Error("it did not wait for the loop")
		}
		scan()
		if st = hub.Stats(); again != 1 || st.Blocks != 4 {
			t.Errorf("again %d, %+v", again, st)
		}
		close(done)
		synctest.Wait()
	})
}

// TestReporterAgain: when everything is told anew, what waited of host memory and disk is not told besides.
func TestReporterAgain(t *testing.T) {
	hub := NewHub(time.Now)
	r := NewReporter(func(m *Message) { hub.Apply("m", m) }, func(bool) ([]Part, bool) { return nil, true })
	r.put([]Event{{Tier: Host, Hashes: []uint64{9}, Tokens: run(0, 16)},
		{Tier: Device, Hashes: []uint64{8}, Tokens: run(0, 16)}})
	r.again = true
	r.flush()
	if st := hub.Stats(); st.Blocks != 1 || st.Stored[Host] != 0 {
		t.Errorf("%+v", st)
	}
}
