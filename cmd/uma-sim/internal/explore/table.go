package explore

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is one column of a table of summaries.
type column struct {
	title string
	text  func(*Summary) string
}

func number(f func(*Summary) float64, digits int) func(*Summary) string {
	return func(s *Summary) string { return fmt.Sprintf("%.*f", digits, f(s)) }
}

var columns = []column{
	{"verdict", func(s *Summary) string { return string(s.Verdict) }},
	{"done", func(s *Summary) string { return fmt.Sprint(s.Completed) }},
	{"lost", func(s *Summary) string { return fmt.Sprint(s.Lost) }},
	{"req/s", number(func(s *Summary) float64 { return s.Responses }, 2)},
	{"tok/s", number(func(s *Summary) float64 { return s.Tokens }, 0)},
	{"TTFT p50", number(func(s *Summary) float64 { return s.TTFTP50 }, 1)},
	{"p95", number(func(s *Summary) float64 { return s.TTFTP95 }, 1)},
	{"ITL p50", number(func(s *Summary) float64 { return s.ITLP50 }, 2)},
	{"p95", number(func(s *Summary) float64 { return s.ITLP95 }, 2)},
	{"p99", number(func(s *Summary) float64 { return s.ITLP99 }, 2)},
	{"E2E p50", number(func(s *Summary) float64 { return s.E2EP50 }, 0)},
	{"p95", number(func(s *Summary) float64 { return s.E2EP95 }, 0)},
	{"preempted", func(s *Summary) string { return fmt.Sprint(s.Preemptions) }},
	{"hit", number(func(s *Summary) float64 { return s.HitRate }, 3)},
	{"blocks", func(s *Summary) string { return fmt.Sprint(s.PeakBlocks) }},
}

// WriteTable prints summaries, times in milliseconds. first names the first column.
func WriteTable(w io.Writer, first string, rows []Summary) error {
	cells := [][]string{{first}}
	for _, c := range columns {
		cells[0] = append(cells[0], c.title)
	}
	for i := range rows {
		line := []string{rows[i].Label}
		for _, c := range columns {
			line = append(line, c.text(&rows[i]))
		}
		cells = append(cells, line)
	}
	width := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, line := range cells {
		var b strings.Builder
		for i, c := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			switch {
			case i < 2:
				b.WriteString(c + pad + "  ")
			default:
				b.WriteString(pad + c + "  ")
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	for i := range rows {
		if rows[i].Error != "" {
			fmt.Fprintf(w, "%s: %s\n", rows[i].Label, rows[i].Error)
		}
	}
	return nil
}
