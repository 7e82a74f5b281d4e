// Package lease is a table in memory that a front and its engine processes share: who computes on each device, who
// waits for it, and when the visible answers of each engine are due. An engine takes the lease of its devices before a
// step and releases it afterwards; package arbiter decides who is next. The engine that releases a lease hands it to
// the next one directly, by a futex, so that exactly one process wakes.
//
// The table is untrusted: an engine process that handles a hostile model file can write anything to it, and one that is
// killed leaves it as it is. So no engine waits longer than HoldLimit for one step of another and WaitLimit in all;
// then it computes without the lease, and says so in its Stats. The front takes back what a process that has ended had
// (Leave).
package lease

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/arbiter"
	"github.com/uma-serve/uma-serve/daemon/shm"
)

const (
	// MaxDevices is the number of devices in the table: 0 is the processor, the others are GPUs.
	MaxDevices = 16
	// MaxEngines is the number of engine processes that the table has room for.
	MaxEngines = 64
	// MaxNameBytes is the longest name of an engine that the table holds; longer ones are cut.
	MaxNameBytes = 64

	magic = 0x756d6132 // "uma2"
)

type header struct {
	magic uint32
	used  atomic.Uint32 // slots below it have been in use
	_     [56]byte
}

// device is one lease. Its word is the number of the grant, and below it the generation and the slot + 1 of the holder,
// 16 bits each; a slot of 0 means that it is free.
type device struct {
	word  atomic.Uint64
	since atomic.Int64 // of the newest grant
	_     [48]byte
}

// slot is one engine process. gen and name are the front's; the engine writes the others.
type slot struct {
	gen     atomic.Uint32 // 0 = free
	wake    atomic.Uint32 // the futex on which it waits; it changes with each grant
	waits   atomic.Uint32 // the device that it waits for, + 1; 0 = none
	devices atomic.Uint32 // that it computes on, a bit each
	flags   atomic.Uint32
	length  atomic.Uint32 // of name
	since   atomic.Int64
	due     atomic.Int64
	target  atomic.Int64
	step    atomic.Int64
	least   atomic.Int64
	without atomic.Uint64 // steps without a lease
	missed  atomic.Int64  // when the newest of them began
	_       [48]byte
	name    [MaxNameBytes]byte
}

const background = 1 // of slot.flags

// memory is the layout of the table.
type memory struct {
	header  header
	devices [MaxDevices]device
	slots   [MaxEngines]slot
}

// Table is the shared memory. The zero value is not usable.
type Table struct {
	*memory
	file *os.File
	raw  []byte

	// offset is the system's monotonic time minus the process's monotonic time since base.
	base   time.Time
	offset arbiter.Instant
	gens   uint32 // the front's: the newest generation
}

// Create makes an empty table. Close frees it.
func Create() (*Table, error) {
	f, err := shm.New("uma-leases", int64(unsafe.Sizeof(memory{})))
	if err != nil {
		return nil, fmt.Errorf("create the table of leases: %w", err)
	}
	t, err := mapTable(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("create the table of leases: %w", err)
	}
	t.header.magic = magic
	return t, nil
}

// Open maps the table that another process has created. It takes over f, also when it fails.
func Open(f *os.File) (*Table, error) {
	st, err := f.Stat()
	if err == nil && st.Size() != int64(unsafe.Sizeof(memory{})) {
		err = fmt.Errorf("it has %d bytes, want %d", st.Size(), unsafe.Sizeof(memory{}))
	}
	var t *Table
	if err == nil {
		t, err = mapTable(f)
	}
	if err == nil && t.header.magic != magic {
		err = errors.Join(errors.New("its header is wrong"), unix.Munmap(t.raw))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open the table of leases: %w", err)
	}
	return t, nil
}

func mapTable(f *os.File) (*Table, error) {
	raw, err := unix.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(memory{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	var ts unix.Timespec
	base := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return nil, errors.Join(os.NewSyscallError("clock_gettime", err), unix.Munmap(raw))
	}
	return &Table{memory: (*memory)(unsafe.Pointer(&raw[0])), file: f, raw: raw, base: base,
		offset: arbiter.Instant(ts.Nano())}, nil
}

// File returns the memory as a file, to be inherited by engine processes.
func (t *Table) File() *os.File { return t.file }

// Close unmaps the table. Nothing of it must be used any more.
func (t *Table) Close() error {
	raw := t.raw
	t.memory, t.raw = nil, nil
	return errors.Join(unix.Munmap(raw), t.file.Close())
}

// Now returns the time on the axis of the table: the system's monotonic clock.
func (t *Table) Now() arbiter.Instant { return t.At(time.Now()) }

// At returns a time of this process on the axis of the table. It must have a monotonic reading.
func (t *Table) At(now time.Time) arbiter.Instant { return t.offset + arbiter.Instant(now.Sub(t.base)) }

// Seat is an engine process's place in the table.
type Seat struct {
	Slot int    `json:"slot"`
	Gen  uint32 `json:"generation"`
}

// ErrFull is Enter's error when MaxEngines processes are in the table.
var ErrFull = fmt.Errorf("the table of leases has room for %d engine processes", MaxEngines)

// Enter gives a place to an engine process that is about to start. The front's side; one goroutine calls it and Leave.
func (t *Table) Enter(name string) (Seat, error) {
	for i := range t.slots {
		s := &t.slots[i]
		if s.gen.Load() != 0 {
			continue
		}
		s.waits.Store(0)
		s.devices.Store(0)
		s.due.Store(int64(arbiter.Never))
		s.without.Store(0)
		s.length.Store(uint32(copy(s.name[:], name)))
		t.gens = t.gens%0xffff + 1
		s.gen.Store(t.gens)
		t.header.used.Store(max(t.header.used.Load(), uint32(i+1)))
		return Seat{Slot: i, Gen: t.gens}, nil
	}
	return Seat{}, ErrFull
}

// Leave takes back the place of a process that has ended, and hands on the leases that it has held.
func (t *Table) Leave(seat Seat) {
	if seat.Slot < 0 || seat.Slot >= MaxEngines || t.slots[seat.Slot].gen.Load() != seat.Gen {
		return
	}
	s := &t.slots[seat.Slot]
	s.waits.Store(0)
	s.due.Store(int64(arbiter.Never))
	s.gen.Store(0)
	for d := range t.devices {
		if w := t.devices[d].word.Load(); holder(w) == seat {
			t.handOn(d, w, t.Now())
		}
	}
	// A process may have been killed between a grant and the call that wakes the one it was for.
	for i := range t.slots {
		if t.slots[i].waits.Load() != 0 {
			t.wake(i)
		}
	}
}

// holder returns the seat in a lease's word; Slot is -1 when it is free.
func holder(w uint64) Seat { return Seat{Slot: int(w&0xffff) - 1, Gen: uint32(w >> 16 & 0xffff)} }

// grant returns the word that follows w with this holder.
func grant(w uint64, to Seat) uint64 {
	return (w>>32+1)<<32 | uint64(to.Gen&0xffff)<<16 | uint64(to.Slot+1)&0xffff
}

// free returns the word that follows w without a holder.
func free(w uint64) uint64 { return (w>>32 + 1) << 32 }

// known reports whether a seat belongs to a process in the table.
func (t *Table) known(s Seat) bool {
	return s.Slot >= 0 && s.Slot < MaxEngines && s.Gen != 0 && t.slots[s.Slot].gen.Load() == s.Gen
}

// handOn passes the lease of device d, whose word is w, to the next engine, or frees it.
func (t *Table) handOn(d int, w uint64, now arbiter.Instant) {
	dev := &t.devices[d]
	if next := t.next(d, now, holder(w).Slot); next >= 0 {
		if dev.word.CompareAndSwap(w, grant(w, t.seat(next))) {
			dev.since.Store(int64(now))
			t.wake(next)
		}
		return
	}
	w0 := free(w)
	if !dev.word.CompareAndSwap(w, w0) {
		return
	}
	// An engine that began to wait meanwhile may have seen the lease taken.
	if next := t.next(d, now, -1); next >= 0 && dev.word.CompareAndSwap(w0, grant(w0, t.seat(next))) {
		dev.since.Store(int64(now))
		t.wake(next)
	}
}

func (t *Table) seat(i int) Seat { return Seat{Slot: i, Gen: t.slots[i].gen.Load()} }

// next returns the slot that gets the lease of device d, -1 when none waits; not is a slot that does not.
func (t *Table) next(d int, now arbiter.Instant, not int) int {
	if !t.wanted(d) {
		return -1
	}
	var claims [MaxEngines]arbiter.Claim
	n := t.claims(&claims, 1<<d)
	for i := range claims[:n] {
		c := &claims[i]
		c.Waits = c.Waits && i != not && t.slots[i].waits.Load() == uint32(d)+1
	}
	return arbiter.Next(now, claims[:n])
}

// wanted reports whether an engine waits for device d.
func (t *Table) wanted(d int) bool {
	for i := range min(t.header.used.Load(), MaxEngines) {
		if t.slots[i].waits.Load() == uint32(d)+1 {
			return true
		}
	}
	return false
}

// claims reads the claims of the engines that compute on one of the devices, by slot, and returns how many slots there
// are. The claims of the other slots are empty.
func (t *Table) claims(out *[MaxEngines]arbiter.Claim, devices uint32) int {
	n := int(min(t.header.used.Load(), MaxEngines))
	var holds [MaxDevices]int
	for d := range holds {
		holds[d] = -1
		if devices&(1<<d) != 0 {
			holds[d] = holder(t.devices[d].word.Load()).Slot
		}
	}
	for i := range n {
		s, c := &t.slots[i], &out[i]
		*c = arbiter.Claim{Due: arbiter.Never}
		if s.gen.Load() == 0 || s.devices.Load()&devices == 0 {
			continue
		}
		*c = arbiter.Claim{
			Waits: s.waits.Load() != 0, Since: arbiter.Instant(s.since.Load()), Due: arbiter.Instant(s.due.Load()),
			Target: time.Duration(s.target.Load()), Step: time.Duration(s.step.Load()),
			Least: time.Duration(s.least.Load()), Background: s.flags.Load()&background != 0,
		}
		for _, h := range holds {
			c.Computes = c.Computes || h == i
		}
	}
	return n
}

// wake wakes the engine of a slot.
func (t *Table) wake(i int) {
	s := &t.slots[i]
	s.wake.Add(1)
	futexWake(&s.wake)
}

// View describes a device's lease, for reports.
type View struct {
	Device  int
	Holder  string // the engine's name; "" = the device is free
	Since   time.Duration
	Waiting []string
}

// Views returns the devices that an engine uses, for reports of any process: names are made printable, and nothing else
// is checked.
func (t *Table) Views() (out []View) {
	now := t.Now()
	var used uint32
	for i := range t.slots {
		if t.slots[i].gen.Load() != 0 {
			used |= t.slots[i].devices.Load()
		}
	}
	for d := range MaxDevices {
		if used&(1<<d) == 0 {
			continue
		}
		v := View{Device: d}
		if h := holder(t.devices[d].word.Load()); t.known(h) {
			v.Holder = t.Name(h.Slot)
			v.Since = max(0, time.Duration(now-arbiter.Instant(t.devices[d].since.Load())))
		}
		for i := range t.slots {
			if s := &t.slots[i]; s.gen.Load() != 0 && s.waits.Load() == uint32(d)+1 {
				v.Waiting = append(v.Waiting, t.Name(i))
			}
		}
		out = append(out, v)
	}
	return out
}

// Without returns the number of steps that the engine of a seat reports having computed without holding the lease, and
// the time since the newest of them began.
func (t *Table) Without(seat Seat) (steps uint64, ago time.Duration) {
	if !t.known(seat) {
		return 0, 0
	}
	s := &t.slots[seat.Slot]
	return s.without.Load(), max(0, time.Duration(t.Now()-arbiter.Instant(s.missed.Load())))
}

// Name returns the name of the engine in a slot, as far as it can be shown.
func (t *Table) Name(i int) string {
	if i < 0 || i >= MaxEngines {
		return ""
	}
	s := &t.slots[i]
	b := make([]byte, min(s.length.Load(), MaxNameBytes))
	copy(b, s.name[:])
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, string(b))
}
