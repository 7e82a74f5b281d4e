//go:build linux

package poll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Poller reports ready descriptors. It identifies a descriptor by its number: the Loop closes descriptors only at the
// end of a turn, so that a number is not reused within one.
//
// The goroutine waits for the epoll descriptor in Go's own poller. In epoll_wait it would hold a P that the runtime
// takes away meanwhile, and the runtime would take the goroutine for one that has run for longer than its slice:
// preempting it at every event delays a request by a tenth of a millisecond.
type Poller struct {
	fd       int
	file     *os.File // fd's owner
	conn     syscall.RawConn
	look     func(fd uintptr) bool // reads the events that are ready
	ready    int                   // of events
	err      error
	deadline time.Time // of file; zero = none
	wakeFD   int
	pending  atomic.Bool // a wake-up was written and not yet seen
	events   [MaxEvents]unix.EpollEvent
}

func New() (*Poller, error) {
	p := &Poller{fd: -1, wakeFD: -1}
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if err = unix.SetNonblock(p.fd, true); err != nil { // so that os.NewFile gives it to Go's poller
		p.Close()
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	p.file = os.NewFile(uintptr(p.fd), "epoll")
	if p.conn, err = p.file.SyscallConn(); err != nil {
		p.Close()
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	p.look = func(fd uintptr) bool {
		p.ready, p.err = unix.EpollWait(int(fd), p.events[:], 0)
		return p.ready != 0 || p.err != nil
	}
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.Close()
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	if err = p.Add(p.wakeFD, WantRead); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func epollMask(in Interest) (mask uint32) {
	if in&WantRead != 0 {
		mask |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if in&WantWrite != 0 {
		mask |= unix.EPOLLOUT
	}
	return mask // EPOLLHUP and EPOLLERR are always reported
}

// Add starts watching fd.
func (p *Poller) Add(fd int, in Interest) error {
	ev := unix.EpollEvent{Events: epollMask(in), Fd: int32(fd)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

// Mod changes the events of fd. Safe from any goroutine while fd is open.
func (p *Poller) Mod(fd int, _, in Interest) error {
	ev := unix.EpollEvent{Events: epollMask(in), Fd: int32(fd)}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &ev)
}

// Del stops watching fd.
func (p *Poller) Del(fd int, _ Interest) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) // ENOENT: it was not watched
}

// Wait appends the ready descriptors to dst. It returns at once when timeout is 0, waits without limit when it is
// negative, and returns early on wake.
func (p *Poller) Wait(timeout time.Duration, dst []Event) ([]Event, error) {
	p.ready, p.err = 0, nil
	switch err := p.sleep(timeout); {
	case errors.Is(err, os.ErrDeadlineExceeded), p.err == unix.EINTR:
		return dst, nil
	case p.err != nil:
		return dst, fmt.Errorf("wait for events: %w", p.err)
	case err != nil:
		return dst, fmt.Errorf("wait for events: %w", err)
	}
	for i := range p.events[:p.ready] {
		ev := &p.events[i]
		if int(ev.Fd) == p.wakeFD {
			var b [8]byte
			_, _ = unix.Read(p.wakeFD, b[:])
			// Clear it before the caller checks for work, so that later work wakes again.
			p.pending.Store(false)
			continue
		}
		var r Readiness
		if ev.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
			r |= CanRead
		}
		if ev.Events&unix.EPOLLOUT != 0 {
			r |= CanWrite
		}
		if ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			r |= HungUp
		}
		dst = append(dst, Event{int(ev.Fd), r})
	}
	return dst, nil
}

// sleep looks, at once when timeout is 0, else as soon as something is ready. It may return early.
func (p *Poller) sleep(timeout time.Duration) error {
	if timeout == 0 {
		p.look(uintptr(p.fd))
		return nil
	}
	until := time.Time{}
	if timeout > 0 {
		now := time.Now()
		until = now.Add(timeout)
		// A deadline before that is as good: setting one takes longer than a turn in vain now and then.
		if p.deadline.After(now) && p.deadline.Before(until) {
			until = p.deadline
		}
	}
	if !until.Equal(p.deadline) {
		if err := p.file.SetReadDeadline(until); err != nil {
			return err
		}
		p.deadline = until
	}
	return p.conn.Read(p.look)
}

// Wake makes wait return. Safe from any goroutine; several pending wake-ups take one write.
func (p *Poller) Wake() {
	if !p.pending.CompareAndSwap(false, true) {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(p.wakeFD, one[:])
}

func (p *Poller) Close() {
	if p.wakeFD >= 0 {
		unix.Close(p.wakeFD)
	}
	switch {
	case p.file != nil:
		p.file.Close()
	case p.fd >= 0:
		unix.Close(p.fd)
	}
}
