package forecast

import "testing"

func TestFirstToken(t *testing.T) {
	const never = None
	running := Job{Running: true, Started: true, Due: 400, Left: 30, Promise: never}
	arrival := Job{Arrival: true, Due: 500, Rank: ^uint64(0), ID: 9, Left: 10, Promise: never}
	free := Engine{Now: 100, Free: 4, Cells: 1000, Pace: 2, ByDue: true}
	queue := Engine{Now: 100, Free: 4, Cells: 1000, Pace: 2}
	full := Engine{Now: 100, Running: 2, Cells: 1000, Gap: 50, Pace: 2, ByDue: true}
	short := Engine{Now: 100, Running: 2, Free: 4, Cells: 5, Mean: 20, Gap: 50, Pace: 2, ByDue: true}
	for name, c := range map[string]struct {
		engine Engine
		jobs   []Job
		in     float64
		breaks bool
	}{
		"alone":               {free, nil, 20, false},
		"behind a prompt":     {free, []Job{running}, 80, false},
		"before a later one":  {free, []Job{{Due: 600, Left: 30, Promise: never}}, 20, false},
		"first come":          {queue, []Job{{Due: 400, Left: 30, Promise: never}}, 80, false},
		"a kept promise":      {free, []Job{{Due: 600, Left: 30, Promise: 228}}, 20, false},
		"a broken promise":    {free, []Job{{Due: 600, Left: 30, Promise: 227}}, 20, true},
		"an earlier promise":  {free, []Job{{Due: 400, Left: 30, Promise: 101}}, 80, false},
		"no sequence":         {full, nil, 50 + 20, false},
		"second in the queue": {full, []Job{{Started: true, Due: 600, Left: 1, Promise: never}}, 100 + 20, false},
		"too few cells":       {short, nil, 50 + 20, false},
		"restored meanwhile":  {free, []Job{{Due: 400, Left: 30, Restore: 1000, Promise: never}}, 80, false},
	} {
		t.Run(name, func(t *testing.T) {
			in, breaks := FirstToken(append(c.jobs, arrival), c.engine)
			if in != c.in || breaks != c.breaks {
				t.Errorf("%v, breaks %v; want %v, %v", in, breaks, c.in, c.breaks)
			}
		})
	}
	restored := arrival
	restored.Restore = 70
	if in, _ := FirstToken([]Job{restored}, free); in != 90 {
		t.Errorf("with a restore: %v", in)
	}
}
