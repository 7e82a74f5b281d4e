package workload

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// TraceColumns is the header of the simple trace layout. Times are microseconds; input_tokens is the whole prompt;
// an empty max_output_len means output_tokens, 0 means no budget; an empty deadline_us means none.
var TraceColumns = []string{"request_id", "arrival_us", "input_tokens", "output_tokens", "prefix_group",
	"prefix_tokens", "max_output_len", "deadline_us", "slo_class"}

// ReadCSV reads a trace in the layout of TraceColumns, in any column order. Columns from prefix_group on may be
// missing, unknown ones are an error. Rows keep the file's order.
func ReadCSV(in io.Reader) ([]Request, error) {
	cr := csv.NewReader(in)
	cr.ReuseRecord = true
	header, err := cr.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("trace: the file is empty; its first line must name the columns: %s",
			strings.Join(TraceColumns, ","))
	}
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	at := make([]int, len(TraceColumns))
	for i := range at {
		at[i] = -1
	}
	for i, name := range header {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		j := slices.Index(TraceColumns, name)
		if j < 0 {
			return nil, fmt.Errorf("trace: column %q is unknown; the columns are %s", name,
				strings.Join(TraceColumns, ","))
		}
		if at[j] >= 0 {
			return nil, fmt.Errorf("trace: column %q appears twice in the header", name)
		}
		at[j] = i
	}
	for j := range 4 {
		if at[j] < 0 {
			return nil, fmt.Errorf("trace: column %q is missing", TraceColumns[j])
		}
	}
	var rows []Request
	seen := map[string]bool{}
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		line, _ := cr.FieldPos(0)
		cell := func(j int) string {
			if at[j] < 0 {
				return ""
			}
			return strings.TrimSpace(rec[at[j]])
		}
		r, err := Row(int64(len(rows)), cell)
		if err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
		if id := r.ID(); seen[id] {
			return nil, fmt.Errorf("trace: line %d: request_id %q appears in an earlier line", line, id)
		} else {
			seen[id] = true
		}
		rows = append(rows, r)
	}
}

// Row makes the i-th request from its cells, numbered as in TraceColumns.
func Row(i int64, cell func(column int) string) (r Request, err error) {
	num := func(j int, empty int64) int64 {
		s := cell(j)
		if s == "" && j > 3 {
			return empty
		}
		n, e := strconv.ParseInt(s, 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("%s = %.40q: must be a whole number", TraceColumns[j], s)
		}
		return n
	}
	r = Request{Index: i, Name: strings.Clone(cell(0)), Arrival: num(1, 0), Prefix: strings.Clone(cell(4)),
		Class: strings.Clone(cell(8))}
	input, output, prefix := num(2, 0), num(3, 0), num(5, 0)
	budget, deadline := num(6, output), num(7, 0)
	if err != nil {
		return r, err
	}
	for _, f := range []struct {
		column int
		v      int64
	}{{2, input}, {3, output}, {5, prefix}, {6, budget}} {
		if f.v > MaxTokens || f.v < -MaxTokens {
			return r, fmt.Errorf("%s = %d: must be at most %d", TraceColumns[f.column], f.v, MaxTokens)
		}
	}
	r.Input, r.Output, r.PrefixLen, r.Budget, r.Deadline = int(input), int(output), int(prefix), int(budget), deadline
	if r.Name == "" {
		return r, errors.New("request_id is empty")
	}
	if r.Name == "request_"+strconv.FormatInt(i, 10) {
		r.Name = ""
	}
	if r.Prefix == "" {
		r.PrefixLen = 0
	}
	return r, r.check()
}
