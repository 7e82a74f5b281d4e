package prepare

import (
	"reflect"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sampler"
)

// TestDryBreakers: one pass over the vocabulary finds what looking at every token for every text finds.
func TestDryBreakers(t *testing.T) {
	m := modelOf(t, fake.Config{})
	at := func(text string) (ids []int32) {
		tokens, _ := m.Vocab.Tokenize(nil, text, false, false)
		return tokens
	}
	mark := m.Vocab.Find("<|im_end|>")
	got := m.breakers([]string{"ab", "a", "abc", "<|im_end|>", "end|>x"})
	want := sampler.Breakers{
		at("a")[0]: {at("b"), nil, at("bc")},
		at("e")[0]: {at("nd|>x")},
		at("<")[0]: {at("|im_end|>")},
		mark:       {nil, at("x")},

		m.Vocab.Find("<|im_start|>"): {nil}, // it has an a
	}
	for id, tails := range want {
		for _, tail := range tails {
			if !slices.ContainsFunc(got[id], func(o []int32) bool { return slices.Equal(o, tail) }) {
				t.Errorf("token %d: %v lacks %v", id, got[id], tail)
			}
		}
	}
	for id := range got {
		if want[id] == nil || len(got[id]) > len(want[id])+1 {
			t.Errorf("token %d: %v, want %v", id, got[id], want[id])
		}
	}
	if b := m.breaks(); len(b) != 4 || !reflect.DeepEqual(b[at("\n")[0]], [][]int32{nil}) {
		t.Errorf("the usual breakers are %v", b)
	}
}
