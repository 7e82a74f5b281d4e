//go:build darwin || freebsd

package poll

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Poller reports ready descriptors. It identifies a descriptor by its number: the Loop closes descriptors only at the
// end of a turn, so that a number is not reused within one.
type Poller struct {
	fd      int
	pending atomic.Bool // a wake-up was triggered and not yet seen
	events  [MaxEvents]unix.Kevent_t
}

// hangupOnly is a low-water mark of the write filter that no socket buffer reaches: the filter then reports only that
// the peer has closed.
const hangupOnly = 1 << 30

func New() (*Poller, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("create kqueue: %w", err)
	}
	unix.CloseOnExec(fd)
	p := &Poller{fd: fd}
	var user unix.Kevent_t
	unix.SetKevent(&user, 0, unix.EVFILT_USER, unix.EV_ADD|unix.EV_CLEAR)
	if _, err := unix.Kevent(fd, []unix.Kevent_t{user}, nil, nil); err != nil {
		p.Close()
		return nil, fmt.Errorf("register EVFILT_USER: %w", err)
	}
	return p, nil
}

// Add starts watching fd.
func (p *Poller) Add(fd int, in Interest) error {
	if err := p.change(fd, 0, false, in); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

// Mod changes the events of fd. Safe from any goroutine while fd is open.
func (p *Poller) Mod(fd int, old, in Interest) error { return p.change(fd, old, true, in) }

// Del stops watching fd.
func (p *Poller) Del(fd int, old Interest) {
	list, n := kqueueDeletes(old)
	_ = p.apply(fd, list[:n])
}

func (p *Poller) change(fd int, old Interest, watched bool, in Interest) error {
	list, n := kqueueChanges(old, watched, in)
	return p.apply(fd, list[:n])
}

// kernelFilters are the kernel's numbers of the filters.
var kernelFilters = [...]int{filterRead: unix.EVFILT_READ, filterWrite: unix.EVFILT_WRITE, filterUser: unix.EVFILT_USER}

// apply makes the changes of fd.
func (p *Poller) apply(fd int, changes []kqueueChange) error {
	if len(changes) == 0 {
		return nil
	}
	var list [2]unix.Kevent_t
	for i, c := range changes {
		flags := unix.EV_DELETE
		if c.add {
			flags = unix.EV_ADD
		}
		unix.SetKevent(&list[i], fd, kernelFilters[c.filter], flags)
		if c.hangupOnly {
			list[i].Fflags, list[i].Data = unix.NOTE_LOWAT, hangupOnly
		}
	}
	_, err := unix.Kevent(p.fd, list[:len(changes)], nil, nil)
	return err
}

// Wait appends the ready descriptors to dst. It returns at once when timeout is 0, waits without limit when it is
// negative, and returns early on wake.
func (p *Poller) Wait(timeout time.Duration, dst []Event) ([]Event, error) {
	var limit *unix.Timespec
	if timeout >= 0 {
		ts := unix.NsecToTimespec(int64(pollMs(timeout)) * int64(time.Millisecond))
		limit = &ts
	}
	n, err := unix.Kevent(p.fd, nil, p.events[:], limit)
	if err == unix.EINTR {
		return dst, nil
	}
	if err != nil {
		return dst, fmt.Errorf("wait for events: %w", err)
	}
	for i := range p.events[:n] {
		ev := &p.events[i]
		a := kqueueAnswer{fd: int(ev.Ident), eof: ev.Flags&unix.EV_EOF != 0}
		switch ev.Filter {
		case unix.EVFILT_USER:
			a.filter = filterUser
		case unix.EVFILT_WRITE:
			a.filter = filterWrite
		}
		e, woken := a.event()
		if woken {
			// Clear it before the caller checks for work, so that later work wakes again.
			p.pending.Store(false)
			continue
		}
		dst = append(dst, e)
	}
	return dst, nil
}

// Wake makes wait return. Safe from any goroutine; several pending wake-ups take one trigger.
func (p *Poller) Wake() {
	if !p.pending.CompareAndSwap(false, true) {
		return
	}
	var user unix.Kevent_t
	unix.SetKevent(&user, 0, unix.EVFILT_USER, 0)
	user.Fflags = unix.NOTE_TRIGGER
	_, _ = unix.Kevent(p.fd, []unix.Kevent_t{user}, nil, nil)
}

func (p *Poller) Close() { unix.Close(p.fd) }

// pollMs converts a timeout to milliseconds, rounded up, so that a timer has passed when wait returns.
func pollMs(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int(min((d+time.Millisecond-1)/time.Millisecond, 1<<30))
}
