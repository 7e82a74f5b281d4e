package reason

import (
	"strings"
	"testing"
)

// TestReasons: every reason has its own label, which is fit for a metric, and a sentence.
func TestReasons(t *testing.T) {
	var all []Reason
	for r := range Count {
		if texts[r].label != "" {
			all = append(all, r)
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d reasons", len(all))
	}
	seen := map[string]bool{}
	for _, r := range all {
		label, text := r.String(), r.Explain()
		if seen[label] || label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("reason %d has label %q", r, label)
		}
		seen[label] = true
		if !strings.HasSuffix(text, ".") || len(text) < 15 {
			t.Errorf("%s explains itself as %q", label, text)
		}
		if got, ok := Parse(label); !ok || got != r {
			t.Errorf("%s is read back as %v, %v", label, got, ok)
		}
	}
	if s := (Count + 3).String(); s != "unknown" {
		t.Errorf("a reason that does not exist is %q", s)
	}
	for _, r := range []Reason{Stop, Length, Failed, Cancelled, KVFull} {
		if !r.Final() {
			t.Errorf("%v ends nothing", r)
		}
	}
	if QueueFull.Final() || PreemptCells.Final() || None.Final() {
		t.Error("a reason that ends nothing is final")
	}
}
