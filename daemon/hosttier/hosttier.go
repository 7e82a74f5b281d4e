// Package hosttier divides the memory for cached prefixes outside the KV pools, one budget of the machine, among the
// models that are loaded. It is pure: what the tiers hold and what the machine has free are arguments.
//
// The rules:
//
//  1. Budget. All host tiers together get what --cache-ram says, at most what the models leave of --memory, and at most
//     what the machine can spare: if other programs need its memory, the tiers shrink.
//  2. A tier that evicts nothing keeps what it holds as long as no other one needs it.
//  3. A tier that evicts takes what is free, and from the others in proportion to how much their models are used, so
//     that the busy model gets most of a budget that is short.
package hosttier

import (
	"math"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/hostmem"
)

// Use is the host tier of one model.
type Use struct {
	Bytes    int64   // bytes
	Evicting bool    // it has evicted since the last look: it would hold more
	Most     int64   // bytes that its own configuration allows
	Weight   float64 // requests of late, see Decay
}

// The memory that stays free for other programs: a twentieth of the machine's, within bounds.
const (
	spareShare = 20
	minSpare   = 256 << 20
	maxSpare   = 2 << 30
)

// Budget returns the bytes for all host tiers together: at most most, and at most left, which the models leave. held is
// what the tiers hold at the moment: as the machine counts it as used, the rest of what it can spare is added to it.
func Budget(most, left, held int64, machine hostmem.Memory) int64 {
	b := min(most, left)
	if machine.Available > 0 {
		spare := int64(min(max(machine.Total/spareShare, minSpare), maxSpare))
		b = min(b, held+int64(min(machine.Available, math.MaxInt64/2))-spare)
	}
	return max(b, 0)
}

// leastWeight is the weight of a model without requests of late beside one of a request: its prefixes are the first to
// go, and not all at once.
const leastWeight = 0.05

// Divide returns the cap of each tier, in bytes. Their sum is at most budget.
func Divide(budget int64, uses []Use) []int64 {
	caps, wants, most := make([]int64, len(uses)), make([]int64, len(uses)), make([]int64, len(uses))
	for i, u := range uses {
		most[i] = max(u.Most, 0)
		if wants[i] = min(max(u.Bytes, 0), most[i]); u.Evicting {
			wants[i] = most[i]
		}
	}
	left := fill(budget, uses, caps, wants)
	fill(left, uses, caps, most)
	return caps
}

// fill raises caps towards goals by weight and returns the bytes that remain.
func fill(bytes int64, uses []Use, caps, goals []int64) int64 {
	for bytes > 0 {
		sum, short := 0.0, 0
		for i := range uses {
			if caps[i] < goals[i] {
				sum += weight(&uses[i])
				short++
			}
		}
		if short == 0 {
			break
		}
		given := int64(0)
		for i := range uses {
			if caps[i] < goals[i] {
				n := min(int64(float64(bytes)*(weight(&uses[i])/sum)), goals[i]-caps[i], bytes-given)
				caps[i] += n
				given += n
			}
		}
		if given == 0 { // less than a byte each
			break
		}
		bytes -= given
	}
	return bytes
}

func weight(u *Use) float64 { return max(u.Weight, leastWeight) }

// halfLife is the time in which a request counts half as much.
const halfLife = 10 * time.Minute

// Decay returns a weight after some time in which so many requests began.
func Decay(weight float64, passed time.Duration, requests int) float64 {
	return weight*math.Exp2(-float64(passed)/float64(halfLife)) + float64(requests)
}

// Changed reports whether a tier should be told of its new cap: small changes are not worth it.
func Changed(old, now int64) bool {
	d := now - old
	return d > 0 && d > old/16 || d < 0 && -d > old/32
}
