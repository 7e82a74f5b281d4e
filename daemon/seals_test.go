package daemon

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Seals of a model with states in a fabric. The answers must equal those of a daemon that computes everything.

// states serves a model with states and a store.
func states(t *testing.T, mr *miniredis.Miniredis, args ...string) *running {
	t.Helper()
	return serve(t, fake.Config{NoRanges: true, Scripts: []fake.Script{{Emit: "It is 42"}}},
		append([]string{"-c", "8000", "--cache-ram", "64MiB", "--fabric", "redis://" + mr.Addr()}, args...)...)
}

// TestSealsBetweenTwoServers: a prompt that one machine has computed resumes on others at the longest seal that it
// begins with: the same prompt, one that parts from it, and the next turn of a chat.
func TestSealsBetweenTwoServers(t *testing.T) {
	mr := miniredis.RunT(t)
	ask, parts := raw(text(0, 900), 20), raw(text(0, 700)+unlike(1, 100), 20)
	chat := func(turns ...string) func(*wire.Request) {
		return func(q *wire.Request) {
			q.Messages, q.MaxTokens = []wire.Message{{Role: "system", Content: text(7, 300)}}, 20
			for i, s := range turns {
				q.Messages = append(q.Messages, wire.Message{Role: [...]string{"user", "assistant"}[i%2], Content: s})
			}
		}
	}
	want, wantParts := solo(t, ask), solo(t, parts)
	// A chat's answer is the script's; what was cached of its prompt is asked.
	says := func(r *running, what string, edit func(*wire.Request), tier wire.CacheTier, least int) wire.Usage {
		t.Helper()
		a := r.ask(r.dial(), edit)
		if u := a.eos.Usage; a.err != nil || a.text != "It is 42" || u.CacheTier != tier || u.CachedTokens < least {
			t.Errorf("%s: %+v, want at least %d tokens from %v", what, a, least, tier)
		}
		r.settled()
		return a.eos.Usage
	}

	one := states(t, mr)
	one.expect("on the first", ask, want, wire.TierNone, 0)
	first := says(one, "a chat on the first", chat("Hm?"), wire.TierNone, 0)
	one.pushed()
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	two := states(t, mr)
	two.expect("on the second, when the first has gone", ask, want, wire.TierFabric, 899)
	two.expect("again", ask, want, wire.TierDevice, 899)
	three := states(t, mr)
	three.expect("parts from it on the third", parts, wantParts, wire.TierFabric, 512)
	says(three, "the next turn on the third", chat("Hm?", "It is 42", text(8, 40)), wire.TierFabric,
		first.PromptTokens+len("It is 42"))
	four := states(t, mr)
	says(four, "another chat with the system prompt", chat(text(9, 60)), wire.TierFabric, 300)
	if n := three.counter("kv_restore_fabric_ms.count"); n != 2 {
		t.Errorf("%v restores from the fabric were counted", n)
	}
}

// values returns the keys of mr that hold bytes.
func values(mr *miniredis.Miniredis) map[string]string {
	out := map[string]string{}
	for _, key := range mr.Keys() {
		if v, err := mr.Get(key); err == nil && v != "" {
			out[key] = v
		}
	}
	return out
}

// forged returns a lie that replaces the value of each seal in the pool of r by a valid frame with other content, made
// from it and another seal's.
func forged(change func(p *mrdn.Prologue, kv []byte, other mrdn.Prologue, otherKV []byte) (mrdn.Prologue, []byte),
) func(*testing.T, *running, *miniredis.Miniredis) {
	return func(t *testing.T, r *running, _ *miniredis.Miniredis) {
		type seal struct {
			key string
			p   mrdn.Prologue
			kv  []byte
		}
		var seals []seal
		r.inLoop(func(l *loop) {
			m, ctx := l.stores.Remote, t.Context()
			unzip, err := zstd.NewReader(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer unzip.Close()
			for _, e := range l.core.Tree().Entries(nil) {
				tokens, err := l.core.Tree().Tokens(e.ID)
				if err != nil {
					t.Fatal(err)
				}
				key := m.Keys(nil, e.NS, tokens, 0)[0]
				frame, err := m.Guard.Pull(ctx, key, nil)
				if err != nil {
					t.Fatal(err)
				}
				p, _, kv, err := mrdn.Open(frame, len(frame))
				if err == nil && p.Encoding == mrdn.Zstd {
					kv, err = unzip.DecodeAll(kv, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				p.Encoding = mrdn.Raw
				seals = append(seals, seal{key, p, kv})
			}
			if len(seals) < 2 {
				t.Fatalf("%d seals: the test shows nothing", len(seals))
			}
			for i, s := range seals {
				other := seals[(i+1)%len(seals)]
				p, kv := change(&s.p, s.kv, other.p, other.kv)
				if p.Encoding == mrdn.Raw {
					p.KVBytes = int64(len(kv))
				}
				frame, err := mrdn.Begin(nil, &p)
				if err != nil {
					t.Fatal(err)
				}
				frame = append(frame, kv...)
				if err := mrdn.Seal(frame, mrdn.ThinkComplete); err != nil {
					t.Fatal(err)
				}
				if err := m.Guard.Push(ctx, s.key, frame); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestLyingSeals: whatever the store says, the answer is that of a daemon that computes.
func TestLyingSeals(t *testing.T) {
	ask := raw(text(0, 900), 20)
	want := solo(t, ask)
	for name, lie := range map[string]func(t *testing.T, r *running, mr *miniredis.Miniredis){
		"a flipped bit": func(_ *testing.T, _ *running, mr *miniredis.Miniredis) {
			for key, v := range values(mr) {
				mr.Set(key, v[:len(v)-1]+string(v[len(v)-1]^1))
			}
		},
		"cut short": func(_ *testing.T, _ *running, mr *miniredis.Miniredis) {
			for key, v := range values(mr) {
				mr.Set(key, v[:len(v)/2])
			}
		},
		"too long": func(_ *testing.T, _ *running, mr *miniredis.Miniredis) {
			for key, v := range values(mr) {
				mr.Set(key, v+strings.Repeat("x", 1<<20))
			}
		},
		"another seal's value": forged(func(_ *mrdn.Prologue, _ []byte, other mrdn.Prologue, otherKV []byte) (
			mrdn.Prologue, []byte) {
			return other, otherKV
		}),
		"another seal's bytes": forged(func(p *mrdn.Prologue, _ []byte, _ mrdn.Prologue, otherKV []byte) (
			mrdn.Prologue, []byte) {
			return *p, otherKV
		}),
		"bytes that are no seal": forged(func(p *mrdn.Prologue, kv []byte, _ mrdn.Prologue, _ []byte) (
			mrdn.Prologue, []byte) {
			return *p, make([]byte, len(kv))
		}),
		"a length that is not possible": forged(func(p *mrdn.Prologue, kv []byte, _ mrdn.Prologue, _ []byte) (
			mrdn.Prologue, []byte) {
			p.Encoding, p.KVBytes = mrdn.Zstd, 1<<40
			return *p, kv
		}),
	} {
		t.Run(name, func(t *testing.T) {
			mr := miniredis.RunT(t)
			one := states(t, mr)
			one.expect("on the first", ask, want, wire.TierNone, 0)
			one.pushed()
			lie(t, one, mr)
			two := states(t, mr)
			if a := two.ask(two.dial(), ask); a.err != nil || a.text != want.text ||
				a.eos.Usage.CacheTier != wire.TierNone {
				t.Errorf("%+v, want %q, computed", a, want.text)
			}
			two.settled()
		})
	}
}

// onFabric returns how many of the seals in r's pool its fabric has, and the number of seals.
func (r *running) onFabric(mr *miniredis.Miniredis) (has, all int) {
	have := strings.Join(mr.Keys(), " ")
	r.inLoop(func(l *loop) {
		for _, e := range l.core.Tree().Entries(nil) {
			if tokens, err := l.core.Tree().Tokens(e.ID); err == nil {
				all++
				if strings.Contains(have, l.stores.Remote.Keys(nil, e.NS, tokens, 0)[0]) {
					has++
				}
			}
		}
	})
	return has, all
}

// TestLostSealsArePushedAgain: what the store has lost is pushed again from the pool when a request uses it, and from
// host memory or disk after a start.
func TestLostSealsArePushedAgain(t *testing.T) {
	mr := miniredis.RunT(t)
	dir := []string{"--cache-dir", filepath.Join(t.TempDir(), "kv")}
	r := states(t, mr, dir...)
	ask := raw(text(0, 700), 20)
	want := solo(t, ask)
	r.expect("first", ask, want, wire.TierNone, 0)
	r.pushed()
	eventually(t, "all seals are pushed", func() bool { has, all := r.onFabric(mr); return has == all && all > 2 })
	mr.FlushAll()
	r.renewAlways()
	r.expect("a use after the loss", ask, want, wire.TierDevice, 699)
	eventually(t, "the store has the prompt again", func() bool {
		has, _ := r.onFabric(mr)
		return has > 0 && r.counter("disagg_pushed_again_total.valkey") > 0
	})
	two := states(t, mr)
	two.expect("elsewhere", ask, want, wire.TierFabric, 699)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	mr.FlushAll()
	r = states(t, mr, dir...)
	eventually(t, "the disk's seals are offered", func() bool { return len(mr.Keys()) > 4 })
	r.pushed()
	states(t, mr).expect("elsewhere, after a restart", ask, want, wire.TierFabric, 699)
}

// TestDropTakesSeals: kv drop deletes seals on the fabric as well.
func TestDropTakesSeals(t *testing.T) {
	mr := miniredis.RunT(t)
	r := states(t, mr)
	for i := range 2 {
		if a := r.ask(r.dial(), raw(unlike(i, 600), 5)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	r.pushed()
	if has, all := r.onFabric(mr); has != all || all < 6 {
		t.Fatalf("%d of %d seals are on the fabric", has, all)
	}
	done, err := r.dial().KVDo(t.Context(), wire.KVDrop, "all")
	if err != nil {
		t.Fatal(err)
	}
	if left := mr.Keys(); len(left) > 0 {
		t.Errorf("%d keys are left: %s", len(left), done.Text)
	}
}

// TestSilentFabricOfSeals: a store that stops answering is not waited for longer than computing the prompt takes.
func TestSilentFabricOfSeals(t *testing.T) {
	url, stall := stalls(t)
	r := serve(t, fake.Config{NoRanges: true}, "--cache-ram", "64MiB", "--fabric", url, "--shutdown-timeout", "1s")
	ask := raw(text(0, 300), 3)
	want := solo(t, ask)
	stall()
	errors := func(reason fabric.Reason) (n uint64) {
		r.inLoop(func(l *loop) { n = l.stores.Remote.Guard.Stats().Errors[reason] })
		return n
	}
	for i := 0; errors(fabric.ReasonCircuitOpen) == 0; i++ {
		if i == 8 {
			t.Fatal("after 8 requests the fabric is still asked each time")
		}
		edit := raw(text(i, 300), 3)
		if i == 0 {
			r.expect("a silent store", edit, want, wire.TierNone, 0)
		} else if a := r.ask(r.dial(), edit); a.err != nil || a.tokens != 3 {
			t.Fatalf("%+v", a)
		}
	}
	if errors(fabric.ReasonTimeout) == 0 {
		t.Error("no request has waited for the fabric: the test shows nothing")
	}
	r.nothingLeft()
}
