package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestFrontMetricsAreDocumented holds docs/metrics.md against Front.
func TestFrontMetricsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Front {
		kind := "gauge"
		if m.Counter {
			kind = "counter"
		}
		row := fmt.Sprintf("| `%s` | %s |", m.Name, kind)
		if line := string(b); !strings.Contains(line, row) ||
			!strings.Contains(line, "| "+strings.TrimSuffix(m.Help, ".")+" |") {
			t.Errorf("docs/metrics.md lacks the row %s … | %s |", row, strings.TrimSuffix(m.Help, "."))
		}
	}
	if n := strings.Count(string(b), "| `uma_front_"); n != len(Front) {
		t.Errorf("docs/metrics.md has %d rows of a front's metrics, and there are %d", n, len(Front))
	}
}
