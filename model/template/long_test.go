package template

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// TestNeighboursAreNotCopiedForEach: a client may send thousands of messages of one role. Twice as many take twice the
// memory to join, not four times.
func TestNeighboursAreNotCopiedForEach(t *testing.T) {
	strict := (&Template{}).strict()
	for _, role := range []string{"user", "assistant", "system", "tool"} {
		allocated := func(n int) float64 {
			msgs := []Message{{Role: "user", Content: "q"}}
			for range n {
				msgs = append(msgs, Message{Role: role, Content: "ten bytes.", ReasoningContent: "ten bytes."})
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var c changeCount
			out := arrange(msgs, true, &manner{roles: strict}, true, &c)
			runtime.ReadMemStats(&after)
			total := 0
			for i := range out {
				total += strings.Count(out[i].Content, "ten bytes.")
			}
			if total != n {
				t.Fatalf("%d messages of role %s: %d texts", n, role, total)
			}
			return float64(after.TotalAlloc - before.TotalAlloc)
		}
		if one, two := allocated(4000), allocated(8000); two > 3*one {
			t.Errorf("role %s: %.0f bytes for 4,000 messages, %.0f for 8,000", role, one, two)
		}
	}
}

// TestCallOfEach: by id; without one by name, else in order. A result of no call has none.
func TestCallOfEach(t *testing.T) {
	calls := []toolcall.Call{{ID: "a", Name: "f"}, {ID: "b", Name: "g"}, {ID: "a", Name: "f"}, {Name: "g"}}
	for _, c := range []struct {
		results []Message
		want    []int
	}{
		{[]Message{{CallID: "b"}, {CallID: "a"}, {CallID: "a"}, {CallID: "a"}, {CallID: "x"}}, []int{1, 0, 2, 4, 4}},
		{[]Message{{}, {}, {}, {}, {}}, []int{0, 1, 2, 3, 4}},
		{[]Message{{Name: "g"}, {Name: "g"}, {Name: "g"}, {Name: "f"}}, []int{1, 3, 0, 2}},
		{[]Message{{}, {CallID: "a"}, {Name: "unheard"}}, []int{1, 0, 2}},
	} {
		if got := callOfEach(c.results, calls); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", fmt.Sprint(c.results), got, c.want)
		}
	}
}
