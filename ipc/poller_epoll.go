//go:build linux

package ipc

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// poller reports ready descriptors. It identifies a descriptor by its number: the Loop closes descriptors only at the
// end of a turn, so that a number is not reused within one.
type poller struct {
	fd      int
	wakeFD  int
	pending atomic.Bool // a wake-up was written and not yet seen
	events  [eventsPerTurn]unix.EpollEvent
}

func newPoller() (*poller, error) {
	p := &poller{fd: -1, wakeFD: -1}
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.close()
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	if err = p.add(p.wakeFD, wantRead); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func epollMask(in interest) (mask uint32) {
	if in&wantRead != 0 {
		mask |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if in&wantWrite != 0 {
		mask |= unix.EPOLLOUT
	}
	return mask // EPOLLHUP and EPOLLERR are always reported
}

// add starts watching fd.
func (p *poller) add(fd int, in interest) error {
	ev := unix.EpollEvent{Events: epollMask(in), Fd: int32(fd)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

// mod changes the events of fd. Safe from any goroutine while fd is open.
func (p *poller) mod(fd int, _, in interest) error {
	ev := unix.EpollEvent{Events: epollMask(in), Fd: int32(fd)}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &ev)
}

// del stops watching fd.
func (p *poller) del(fd int, _ interest) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) // ENOENT: it was not watched
}

// wait appends the ready descriptors to dst. It returns at once when timeout is 0, waits without limit when it is
// negative, and returns early on wake.
func (p *poller) wait(timeout time.Duration, dst []event) ([]event, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], pollMs(timeout))
	if err == unix.EINTR {
		return dst, nil
	}
	if err != nil {
		return dst, fmt.Errorf("wait for events: %w", err)
	}
	for i := range p.events[:n] {
		ev := &p.events[i]
		if int(ev.Fd) == p.wakeFD {
			var b [8]byte
			_, _ = unix.Read(p.wakeFD, b[:])
			// Clear it before the caller checks for work, so that later work wakes again.
			p.pending.Store(false)
			continue
		}
		var r readiness
		if ev.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
			r |= canRead
		}
		if ev.Events&unix.EPOLLOUT != 0 {
			r |= canWrite
		}
		if ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			r |= hungUp
		}
		dst = append(dst, event{int(ev.Fd), r})
	}
	return dst, nil
}

// wake makes wait return. Safe from any goroutine; several pending wake-ups take one write.
func (p *poller) wake() {
	if !p.pending.CompareAndSwap(false, true) {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(p.wakeFD, one[:])
}

func (p *poller) close() {
	for _, fd := range []int{p.wakeFD, p.fd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
