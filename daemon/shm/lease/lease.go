package lease

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/arbiter"
)

const (
	// HoldLimit is the longest wait of an engine for one step of another.
	HoldLimit = 2 * time.Second
	// WaitLimit is the longest wait of an engine for the lease in all.
	WaitLimit = 10 * time.Second
	// offFor is the time for which the engine does not wait at all after maxTimeouts timeouts in a row, or one of
	// WaitLimit: the holder of the lease does not keep the rules.
	offFor      = 10 * time.Second
	maxTimeouts = 3
	// recheck is the interval at which a waiting engine reads the table although it was not woken.
	recheck = 50 * time.Millisecond
)

// Stats count what a Lease has seen. The engine writes, any goroutine reads.
type Stats struct {
	Grants    atomic.Uint64 // leases taken
	Contended atomic.Uint64 // of these, those for which it waited
	Waited    atomic.Int64  // ns, in all
	Held      atomic.Int64  // ns, in all
	Limited   atomic.Uint64 // steps that other engines' answers limited

	HoldTimeouts atomic.Uint64 // steps without a lease: another engine held it longer than HoldLimit
	WaitTimeouts atomic.Uint64 // steps without a lease: others were served for WaitLimit
	Skipped      atomic.Uint64 // steps without a lease and without a wait, after such a timeout
	Lost         atomic.Uint64 // leases that were not the engine's any more when it released them
	Repaired     atomic.Uint64 // leases that no process of the table held
}

// Without returns the number of steps computed without a lease.
func (s *Stats) Without() uint64 {
	return s.HoldTimeouts.Load() + s.WaitTimeouts.Load() + s.Skipped.Load()
}

// Wait is one wait for the lease.
type Wait struct {
	Took   time.Duration // 0 = it was free
	Holder int           // the slot of the engine that held it when the wait began; -1 = it was free
	OK     bool          // false: the step is computed without the lease
}

// Lease is an engine's side of the table. It belongs to one goroutine, but for Stats.
type Lease struct {
	t       *Table
	seat    Seat
	s       *slot
	devices uint32
	words   [MaxDevices]uint64 // of the devices that it holds
	held    uint32             // the devices, a bit each
	began   arbiter.Instant    // of the hold
	stuck   [MaxDevices]uint64 // the word of a lease that was held longer than HoldLimit; 0 = none
	misses  int                // waits in a row that came to nothing
	off     arbiter.Instant    // until then it does not wait
	hold    time.Duration      // HoldLimit; tests shorten it
	wait    time.Duration      // WaitLimit

	Stats Stats
}

// Lease returns the side of the engine with this seat that computes on these devices (a bit each).
func (t *Table) Lease(seat Seat, devices uint32) *Lease {
	if seat.Slot < 0 || seat.Slot >= MaxEngines {
		seat.Slot = 0 // of a front that has no such slot: every lease is lost
	}
	l := &Lease{t: t, seat: seat, s: &t.slots[seat.Slot], hold: HoldLimit, wait: WaitLimit}
	l.Use(devices)
	return l
}

// Use sets the devices. No lease may be held.
func (l *Lease) Use(devices uint32) {
	if devices == 0 {
		devices = 1
	}
	l.devices = devices & (1<<MaxDevices - 1)
	l.s.devices.Store(l.devices)
}

// Devices returns the devices of the leases, a bit each.
func (l *Lease) Devices() uint32 { return l.devices }

// Say tells the other engines of the next step: when its visible answers are due, and how long it takes. Waits,
// Computes and Since are not used.
func (l *Lease) Say(c arbiter.Claim) {
	flags := uint32(0)
	if c.Background {
		flags = background
	}
	s := l.s
	s.flags.Store(flags)
	s.target.Store(int64(c.Target))
	s.step.Store(int64(c.Step))
	s.least.Store(int64(c.Least))
	s.due.Store(int64(c.Due))
}

// Acquire takes the leases of all devices, in ascending order so that two engines never wait for each other.
func (l *Lease) Acquire() (w Wait) {
	w = Wait{OK: true, Holder: -1}
	l.began = l.t.Now()
	for rest := l.devices &^ l.held; rest != 0; rest &= rest - 1 {
		one := l.acquire(bits.TrailingZeros32(rest))
		w.OK = w.OK && one.OK
		if w.Holder < 0 {
			w.Holder = one.Holder
		}
		w.Took += one.Took
		l.began += arbiter.Instant(one.Took)
	}
	if w.OK {
		l.Stats.Grants.Add(1)
	} else {
		l.s.missed.Store(int64(l.began))
		l.s.without.Store(l.Stats.Without())
	}
	if w.Took > 0 {
		l.Stats.Contended.Add(1)
		l.Stats.Waited.Add(int64(w.Took))
	}
	return w
}

// Busy reports whether Acquire would wait now.
func (l *Lease) Busy() bool {
	for rest := l.devices &^ l.held; rest != 0; rest &= rest - 1 {
		if holder(l.t.devices[bits.TrailingZeros32(rest)].word.Load()).Slot >= 0 {
			return true
		}
	}
	return false
}

// took notes that the lease of device d is held, by this word.
func (l *Lease) took(d int, word uint64) {
	l.words[d] = word
	l.held |= 1 << d
	l.stuck[d] = 0
}

// try takes the lease of device d if it is free.
func (l *Lease) try(d int, now arbiter.Instant) bool {
	dev := &l.t.devices[d]
	w := dev.word.Load()
	if holder(w).Slot >= 0 {
		return false
	}
	mine := grant(w, l.seat)
	if !dev.word.CompareAndSwap(w, mine) {
		return false
	}
	dev.since.Store(int64(now))
	l.took(d, mine)
	return true
}

// acquire takes the lease of device d.
func (l *Lease) acquire(d int) Wait {
	if l.try(d, l.began) {
		return Wait{OK: true, Holder: -1}
	}
	dev, s := &l.t.devices[d], l.s
	word, begin := dev.word.Load(), l.began
	wait := Wait{Holder: holder(word).Slot}
	if word == l.stuck[d] || begin < l.off {
		l.Stats.Skipped.Add(1)
		return wait
	}
	s.since.Store(int64(begin))
	s.waits.Store(uint32(d) + 1)
	seen, seenAt := word, begin
	for {
		round := s.wake.Load()
		word, now := dev.word.Load(), l.t.Now()
		wait.Took = max(time.Duration(now-begin), 1)
		switch h := holder(word); {
		case h == l.seat:
			l.took(d, word)
		case h.Slot < 0:
			if !l.try(d, now) {
				continue
			}
		case !l.t.known(h):
			if mine := grant(word, l.seat); dev.word.CompareAndSwap(word, mine) {
				dev.since.Store(int64(now))
				l.took(d, mine)
				l.Stats.Repaired.Add(1)
			}
		case word != seen:
			seen, seenAt = word, now
		case time.Duration(now-seenAt) >= l.hold:
			l.stuck[d] = word
			l.Stats.HoldTimeouts.Add(1)
			if l.misses++; l.misses >= maxTimeouts {
				l.off = later(now, offFor)
			}
			return l.giveUp(d, wait)
		}
		if l.held&(1<<d) != 0 {
			s.waits.Store(0)
			l.misses, wait.OK = 0, true
			return wait
		}
		if wait.Took >= l.wait {
			l.Stats.WaitTimeouts.Add(1)
			l.off = later(now, offFor)
			return l.giveUp(d, wait)
		}
		futexWait(&s.wake, round, min(recheck, l.hold-time.Duration(now-seenAt), l.wait-wait.Took))
	}
}

func later(t arbiter.Instant, d time.Duration) arbiter.Instant { return t + arbiter.Instant(d) }

// giveUp ends a wait without the lease, unless it was granted at the last moment.
func (l *Lease) giveUp(d int, wait Wait) Wait {
	l.s.waits.Store(0)
	if word := l.t.devices[d].word.Load(); holder(word) == l.seat {
		l.took(d, word)
		wait.OK = true
	}
	return wait
}

// Limit returns the longest duration of a step that begins now, so that the others' answers are in time; ok is false
// when nothing limits it.
func (l *Lease) Limit(now time.Time) (limit time.Duration, ok bool) {
	var claims [MaxEngines]arbiter.Claim
	n := l.t.claims(&claims, l.devices)
	if limit, ok = arbiter.Limit(l.t.At(now), l.seat.Slot, claims[:n]); ok {
		l.Stats.Limited.Add(1)
	}
	return limit, ok
}

// Release hands the leases on.
func (l *Lease) Release() {
	now := l.t.Now()
	if l.held != 0 {
		l.Stats.Held.Add(int64(now - l.began))
	}
	for rest := l.held; rest != 0; {
		d := bits.Len32(rest) - 1
		rest &^= 1 << d
		if l.t.devices[d].word.Load() == l.words[d] {
			l.t.handOn(d, l.words[d], now)
		} else {
			l.Stats.Lost.Add(1)
		}
	}
	l.held = 0
	// One may have been granted after the engine had given up waiting for it.
	for rest := l.devices; rest != 0; rest &= rest - 1 {
		d := bits.TrailingZeros32(rest)
		if w := l.t.devices[d].word.Load(); holder(w) == l.seat {
			l.t.handOn(d, w, now)
		}
	}
}

// Held reports whether a lease is held.
func (l *Lease) Held() bool { return l.held != 0 }

// Views returns the devices of the table.
func (l *Lease) Views() []View { return l.t.Views() }

// Name returns the name of the engine in a slot, "" for none.
func (l *Lease) Name(slot int) string { return l.t.Name(slot) }

// At returns a time of this process on the axis of the table.
func (l *Lease) At(now time.Time) arbiter.Instant { return l.t.At(now) }
