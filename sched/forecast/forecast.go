// Package forecast predicts when a request that arrives would give its first token, and whether a promise given before
// would then be broken.
//
//  1. Sequences are given in order: to requests that have started by rank, to new ones by the deadlines of their first
//     tokens. While there is none, or cells are missing, each end of a request frees one, and the mean of cells; ends
//     come at the pace at which requests have ended lately.
//  2. Prompts are computed one after the other, by their deadlines where the policy goes by them: each waits for its
//     sequence and for those before it. While its cells are restored the prompts behind it are computed.
//  3. A forecast is a mean, and a promise is to be kept in 95 of 100 cases: times are multiplied by Margin before they
//     are compared with a deadline.
//
// Times are in ns, from any origin. It is pure.
package forecast

import (
	"cmp"
	"slices"

	"github.com/uma-serve/uma-serve/sched/slo"
)

// Margin multiplies a forecast before it is compared with a strict target.
const Margin = 1.6

// None is the deadline of a job whose first token is not promised.
const None = int64(slo.Never)

// Job is a prompt that is computed or waits.
type Job struct {
	Arrival  bool // the request whose first token is predicted
	Running  bool // has a sequence
	Started  bool // had one
	Due      int64
	Rank, ID uint64 // ranks by target can be equal
	Left     int    // tokens to compute
	Restore  int64  // time from its sequence on until its stored tokens are there
	Promise  int64  // deadline of its first token

	slot int64 // when it has a sequence
}

// before compares jobs by the order in which they get sequences (rule 1).
func before(a, b Job) int {
	switch {
	case a.Running != b.Running:
		return first(a.Running)
	case a.Started != b.Started:
		return first(a.Started)
	case a.Due != b.Due && !a.Started:
		return cmp.Compare(a.Due, b.Due)
	case a.Rank != b.Rank:
		return cmp.Compare(a.Rank, b.Rank)
	}
	return cmp.Compare(a.ID, b.ID)
}

// first compares two flags that differ, of which the first one is a: a set one goes first.
func first(a bool) int {
	if a {
		return -1
	}
	return 1
}

// Engine is the resources that jobs wait for: sequences, cells and time.
type Engine struct {
	Now     int64
	Running int     // requests with a sequence
	Free    int     // sequences without a request
	Cells   int     // cells that waiting requests can have now
	Mean    int     // cells that the end of a request frees; which one ends first is not known
	Gap     float64 // time between two ends of requests
	Pace    float64 // time of a prompt token
	ByDue   bool    // prompts are computed in the order of their deadlines
}

// FirstToken returns the time from now to the first token of the arrival among jobs, and whether a promise of a job due
// behind it would be broken. It sorts jobs.
func FirstToken(jobs []Job, e Engine) (in float64, breaks bool) {
	slices.SortFunc(jobs, before)
	due := sequences(jobs, e)
	if e.ByDue { // rule 2
		slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Due, b.Due) })
	}
	now := float64(e.Now)
	at := now
	for i := range jobs {
		j := &jobs[i]
		took := float64(float64(j.Left) * e.Pace) // rounded before the sum, as all of package cost's products
		token := max(at, float64(j.slot)+float64(j.Restore)) + took
		at = max(at, float64(j.slot)) + took
		switch {
		case j.Arrival:
			in = token - now
		case j.Promise != None && j.Due > due && e.ByDue && now+float64(Margin*(token-now)) > float64(j.Promise):
			breaks = true
		}
	}
	return in, breaks
}

// sequences sets when each job has a sequence, in the order of jobs, and returns when the arrival is due.
func sequences(jobs []Job, e Engine) (due int64) {
	ends := 0 // of requests, that are waited for
	for i := range jobs {
		j := &jobs[i]
		if j.Arrival {
			due = j.Due
		}
		if j.slot = e.Now; j.Running {
			continue
		}
		e.Cells -= j.Left
		e.Free--
		for e.Running > ends && (e.Free < 0 || e.Cells < 0 && e.Mean > 0) {
			ends++
			e.Free++
			e.Cells += e.Mean
		}
		if e.Free < 0 {
			ends, e.Free = ends+1, e.Free+1
		}
		if ends > 0 {
			j.slot = e.Now + int64(float64(ends)*e.Gap)
		}
	}
	return due
}
