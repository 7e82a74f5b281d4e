package blis_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// BenchmarkCase35 is the golden case of 10,000 requests in 35,837 steps, without the time to read the workload.
// BLIS makes about 15,000 requests a second of it.
func BenchmarkCase35(b *testing.B) {
	cfg := config(b, golden()["case35_10k/config.json"], "")
	rows, err := workload.ReadCSV(bytes.NewReader(golden()["case35_10k/trace.csv"]))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		collect sim.Collect
	}{{"requests", sim.EveryRequest}, {"aggregate", sim.Aggregate}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			cfg.Collect = c.collect
			steps := 0
			for b.Loop() {
				rep, err := blis.Run(cfg, workload.NewList(rows))
				if err != nil {
					b.Fatal(err)
				}
				steps += rep.Metrics.Engines[0].Steps
			}
			s := b.Elapsed().Seconds()
			b.ReportMetric(float64(len(rows)*b.N)/s, "requests/s")
			b.ReportMetric(float64(steps)/s, "steps/s")
			runtime.KeepAlive(rows)
		})
	}
}
