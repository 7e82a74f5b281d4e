package replay

import (
	"bytes"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/bench/load"
	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/sched"
)

// TestDeterminism: a seed is a report, to the byte; another seed is another one.
func TestDeterminism(t *testing.T) {
	make := func(seed uint64) []byte {
		var rs []*report.Report
		for _, policy := range sched.Policies() {
			o := load.DefaultOptions()
			o.Seed, o.Requests = seed, 60
			r, err := Run(Config{Name: policy, Side: policy, Workload: "synthetic", Policy: policy, ThinkBudget: 2048, Options: o, Repeats: 2})
			if err != nil {
				t.Fatal(err)
			}
			if r.NRequests != 120 || r.ForcedByReason["hard_cap"] == 0 || !(r.Value("ttft_p50_ms") > 0) || r.CI95["ttot_p95_ms"].N != 2 {
				t.Errorf("%s: %+v", policy, r)
			}
			rs = append(rs, r)
		}
		d, err := report.New(rs, "uma")
		if err != nil {
			t.Fatal(err)
		}
		b, err := report.JSON(d)
		if err != nil {
			t.Fatal(err)
		}
		var page bytes.Buffer
		if err := d.HTML(&page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), "SYNTHETIC") {
			t.Error("the page does not say that it is synthetic")
		}
		return append(append(b, d.Markdown()...), page.Bytes()...)
	}
	a, b, c := make(7), make(7), make(8)
	if !bytes.Equal(a, b) {
		t.Error("the same seed gave two reports")
	}
	if bytes.Equal(a, c) {
		t.Error("two seeds gave one report")
	}
}

func TestChatAlone(t *testing.T) {
	o := load.DefaultOptions()
	o.Requests = 20
	r, err := Run(Config{Name: "x", Workload: "chat", Policy: "stock", Options: o, Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := report.JSON(r)
	if err != nil || !strings.Contains(string(b), `"ttot_p50_ms": null`) || r.NReasoning != 0 {
		t.Errorf("%v: chats have no TTOT: %s", err, b)
	}
	for _, workload := range []string{"storm", "nope"} {
		if _, err := Run(Config{Workload: workload, Options: o, Repeats: 1}); err == nil {
			t.Errorf("%s was replayed", workload)
		}
	}
}
