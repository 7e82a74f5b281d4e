package main

import (
	"strings"
	"testing"

	results "github.com/uma-serve/uma-serve/bench/report"
)

func TestAtMost(t *testing.T) {
	for _, bad := range []string{"ttft_p50", "accuracy_pct=5", "ttft_p50_ms", "ttft_p50_ms=x", "ttft_p50_ms=-1", "=1"} {
		if _, err := bounds([]string{bad}); err == nil || !strings.Contains(err.Error(), "--at-most") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	list, err := bounds([]string{"ttft_p50_ms=150", "output_itl_p95_ms=50"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ttft, itl results.Num
		errors    int
		want      string
	}{
		{150, 50, 0, ""},
		{150.1, 50, 0, "ttft_p50_ms of side is 150.10; --at-most allows 150"},
		{1, 51, 0, "output_itl_p95_ms of side is 51.00"},
		{1, 1, 2, "2 requests of side failed"},
	} {
		r := &results.Report{ConfigName: "side", NErrors: c.errors,
			Values: map[string]results.Num{"ttft_p50_ms": c.ttft, "output_itl_p95_ms": c.itl}}
		switch err := exceeded(r, list); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := exceeded(&results.Report{Values: map[string]results.Num{}}, list); err == nil {
		t.Error("what was not measured passes")
	}
	if err := exceeded(&results.Report{NErrors: 1}, nil); err != nil {
		t.Errorf("without bounds: %v", err)
	}
}

// TestAtMostOfARun: a replay is written and then fails.
func TestAtMostOfARun(t *testing.T) {
	args := strings.Fields("--mode replay --requests 20 --repeats 1 --quiet --out-dir " + t.TempDir())
	if err := do(t, runCommand(), append(args, "--at-most", "ttft_p50_ms=1e9")...); err != nil {
		t.Error(err)
	}
	if err := do(t, runCommand(), append(args, "--at-most", "ttft_p50_ms=0")...); err == nil ||
		!strings.Contains(err.Error(), "--at-most allows 0") {
		t.Error(err)
	}
}

// TestContextSizes: each side is measured with each size of the pool.
func TestContextSizes(t *testing.T) {
	o := runOptions{baseline: "none", sides: []string{"default", "uma:--single"}, ctxSizes: []int{4096, 65536}}
	sides, err := o.allSides()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sides {
		got = append(got, s.Name+" "+strings.Join(s.Args, " "))
	}
	want := "default:--ctx-size=4096 --ctx-size=4096\ndefault:--ctx-size=65536 --ctx-size=65536\n" +
		"uma:--single:--ctx-size=4096 --policy uma --single --ctx-size=4096\n" +
		"uma:--single:--ctx-size=65536 --policy uma --single --ctx-size=65536"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("%s\nwant\n%s", s, want)
	}
}
