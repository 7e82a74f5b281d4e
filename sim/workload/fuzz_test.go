package workload

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/sched/trace"
)

func FuzzReadCSV(f *testing.F) {
	f.Add("request_id,arrival_us,input_tokens,output_tokens\na,1,2,3\n")
	f.Fuzz(func(t *testing.T, s string) {
		rows, err := ReadCSV(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, r := range rows {
			if r.check() != nil || r.ID() == "" {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}

func FuzzReadTraceV2(f *testing.F) {
	f.Add(strings.Join(v2Columns, ",") + "\n0,c,,,,0,g,64,false,10,5,0,0,0,0,0,,0,0,7,7,0,0,0,ok,,\n")
	f.Fuzz(func(t *testing.T, s string) {
		rows, err := ReadTraceV2(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, r := range rows {
			if r.check() != nil {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(cohorts))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSpec(data)
		if err != nil || len(s.Clients) > 100 || len(s.Cohorts) > 5 {
			return
		}
		for i := range s.Clients {
			s.Clients[i].Concurrency = min(s.Clients[i].Concurrency, 3)
			s.Clients[i].PrefixLength = min(s.Clients[i].PrefixLength, 1000)
			s.Clients[i].Input, s.Clients[i].Output = Lengths{"constant", map[string]float64{"value": 3}},
				Lengths{"constant", map[string]float64{"value": 3}}
		}
		for i := range s.Cohorts {
			c := &s.Cohorts[i]
			c.Population, c.Concurrency, c.PrefixLength = min(c.Population, 3), min(c.Concurrency, 3),
				min(c.PrefixLength, 1000)
			c.Input, c.Output = Lengths{"constant", map[string]float64{"value": 3}},
				Lengths{"constant", map[string]float64{"value": 3}}
		}
		s.Horizon = min(s.Horizon, 1e6)
		if s.AggregateRate < 1000 && s.Horizon > 0 && len(s.Clients)+len(s.Cohorts) > 0 {
			if _, err := Collect(s.New(), 50); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzFromRecording(f *testing.F) {
	f.Add([]byte("config policy=uma max_running=2 cells=64 max_batch=8\nstep 1ms\narrive 1 class=interactive owner=3 " +
		"prompt=9 max=4 ago=1ms\n" +
		"step 2ms\nstarted 1 cached=4\nstep 3ms\ntoken 1\nfinish 1 stop\narrive 2 class=background owner=3 prompt=12 " +
		"max=4\nstep 4ms\nstarted 2 cached=9\ncancel 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		recorded, err := trace.Read(data)
		if err != nil {
			return
		}
		rows, err := FromRecording(recorded)
		if err != nil {
			return
		}
		for i := range rows {
			r := &rows[i]
			if err := r.check(); err != nil || r.BaseLen >= max(r.Input, 1) || r.Resident >= max(r.Input, 1) ||
				(r.Base == nil) != (r.BaseLen == 0) || r.Think > r.Output+1 {
				t.Errorf("%+v: %v", r, err)
			}
			if id := r.Identity(); r.Input < 1000 {
				if n := len(id.AppendTokens(nil, 0, r.Input)); n != r.Input {
					t.Errorf("%d tokens of %d", n, r.Input)
				}
			}
		}
	})
}
