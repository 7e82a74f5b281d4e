package explore

import (
	"cmp"
	"slices"

	"github.com/uma-serve/uma-serve/sim"
)

// Verdict classifies a server under a load.
type Verdict string

const (
	// Stable: the queue does not grow; requests end as fast as they arrive.
	Stable Verdict = "STABLE"
	// Backlogged: requests pile up for a while, or wait much longer than they are served, yet the server keeps up or
	// nearly so.
	Backlogged Verdict = "BACKLOGGED"
	// Overloaded: waiting grows as long as requests come, or requests are lost.
	Overloaded Verdict = "OVERLOADED"
)

// Judgement is a Verdict with its reasons.
type Judgement struct {
	Verdict Verdict `json:"verdict"`
	// Deficit is the share of the requests that were not done when the last one arrived, beyond those that a stable
	// server would be serving then.
	Deficit float64 `json:"completion_deficit"`
	// Trend is the mean wait (arrival to last admission) of the last quarter of the arrivals over that of the second
	// quarter, each with one mean service time added so that short waits do not count.
	Trend float64 `json:"wait_trend"`
	// Lost is the share of requests that were dropped, rejected or timed out.
	Lost float64 `json:"lost"`
}

// Thresholds of Judge. A queue that grows linearly from the start has a trend of about 2.3 in waits alone.
const (
	lostLimit    = 0.01
	trendStable  = 1.25
	trendOver    = 1.6
	deficitLimit = 0.05
)

// Judge looks at the requests of a report. It needs a line per request; fewer than 20 requests are called Stable
// unless some were lost.
func Judge(rep *sim.Report) Judgement {
	rows := make([]*sim.Result, 0, len(rep.Requests))
	for i := range rep.Requests {
		if rep.Requests[i].State != "not_arrived" {
			rows = append(rows, &rep.Requests[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b *sim.Result) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	j := Judgement{Verdict: Stable, Trend: 1}
	if len(rows) == 0 {
		return j
	}
	n := len(rows)
	last := rows[n-1].ArrivalUs
	span := last - rows[0].ArrivalUs
	var service, served float64
	open, lost := 0, 0
	for _, r := range rows {
		switch {
		case r.State == "dropped" || r.State == "rejected" || r.State == "timed_out":
			lost++
		case r.LeftUs == nil || *r.LeftUs > last:
			open++
		}
		if r.LeftUs != nil {
			service += float64(*r.LeftUs - r.ArrivalUs - *r.DelayUs)
			served++
		}
	}
	j.Lost = float64(lost) / float64(n)
	if served > 0 {
		service /= served
	}
	if span > 0 { // Little: requests in service = arrival rate × service time
		j.Deficit = max(0, (float64(open)-float64(n)/float64(span)*service)/float64(n))
	}
	wait := func(part []*sim.Result) float64 {
		sum := 0.0
		for _, r := range part {
			switch {
			case r.DelayUs != nil:
				sum += float64(*r.DelayUs)
			case r.State == "queued":
				sum += float64(last - r.ArrivalUs)
			}
		}
		return sum/float64(max(1, len(part))) + service
	}
	if n >= 20 && service > 0 {
		j.Trend = wait(rows[3*n/4:]) / wait(rows[n/4:n/2])
	}
	switch {
	case j.Lost > lostLimit || j.Trend > trendOver && j.Deficit > deficitLimit || rep.Stuck != nil:
		j.Verdict = Overloaded
	case j.Trend > trendStable || j.Deficit > deficitLimit:
		j.Verdict = Backlogged
	}
	return j
}
