//go:build linux

package poll

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// modelKqueue answers as kqueue does for stream sockets (kqueue(2) of FreeBSD and macOS): the read filter fires while
// there is input or the peer's direction is shut, the write filter while the buffer has the room of its low-water mark
// or the peer is gone; EV_EOF tells of the end.
type modelKqueue struct {
	filters map[[2]int]kqueueChange // by descriptor and filter
	sockets []*modelSocket
}

type modelSocket struct {
	fd, peer     int
	unread, full bool
	shut, gone   bool // the peer has shut its direction; has closed
	in           Interest
	watched      bool
}

func (m *modelKqueue) apply(t *testing.T, fd int, changes []kqueueChange) {
	t.Helper()
	for _, c := range changes {
		key := [2]int{fd, int(c.filter)}
		if _, ok := m.filters[key]; !c.add && !ok {
			t.Fatalf("descriptor %d has no filter %d to delete: ENOENT", fd, c.filter)
		}
		if delete(m.filters, key); c.add {
			m.filters[key] = c
		}
	}
}

func (m *modelKqueue) wait() (answers []kqueueAnswer) {
	for _, s := range m.sockets {
		if _, ok := m.filters[[2]int{s.fd, int(filterRead)}]; ok && (s.unread || s.shut || s.gone) {
			answers = append(answers, kqueueAnswer{fd: s.fd, filter: filterRead, eof: s.shut || s.gone})
		}
		if c, ok := m.filters[[2]int{s.fd, int(filterWrite)}]; ok && (s.gone || !s.full && !c.hangupOnly) {
			answers = append(answers, kqueueAnswer{fd: s.fd, filter: filterWrite, eof: s.gone})
		}
	}
	return answers
}

// means describes what a loop learns of a descriptor: input or an end that it asked for, room, that the peer is gone.
func means(in Interest, r Readiness) string {
	read := in&WantRead != 0 && r&CanRead != 0
	room := in&WantWrite != 0 && r&(CanWrite|HungUp) != 0
	gone := in == 0 && r&HungUp != 0
	return fmt.Sprintf("read %t, write %t, gone %t", read, room, gone)
}

// TestKqueueAsEpoll plays random lives of sockets on Linux's epoll and, by the changes that the kqueue poller would
// make, on a model of kqueue. After each event both tell the loop the same of every descriptor, and the model never
// sees a change that the kernel would refuse.
func TestKqueueAsEpoll(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p, err := New()
		if err != nil {
			t.Fatal(err)
		}
		m := &modelKqueue{filters: map[[2]int]kqueueChange{}}
		for range 4 {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			m.sockets = append(m.sockets, &modelSocket{fd: pair[0], peer: pair[1]})
		}
		buf := make([]byte, 1<<16)
		drain := func(fd int) {
			for {
				if n, err := unix.Read(fd, buf); n <= 0 || err != nil {
					return
				}
			}
		}
		for step := range 200 {
			s := m.sockets[rng.IntN(len(m.sockets))]
			what := rng.IntN(9)
			switch {
			case what == 0 && !s.shut && !s.gone:
				unix.Write(s.peer, []byte("x"))
				s.unread = true
			case what == 1:
				drain(s.fd)
				s.unread = false
			case what == 2 && !s.gone:
				for {
					if n, err := unix.SendmsgN(s.fd, buf, nil, nil, unix.MSG_NOSIGNAL); n <= 0 || err != nil {
						break
					}
				}
				s.full = true
			case what == 3 && !s.gone:
				drain(s.peer)
				s.full = false
			case what == 4 && !s.gone && rng.IntN(4) == 0:
				unix.Shutdown(s.peer, unix.SHUT_WR)
				s.shut = true
			case what == 5 && !s.gone && rng.IntN(6) == 0:
				drain(s.peer) // a close with unread input would be a reset
				unix.Close(s.peer)
				s.gone, s.full = true, false
			case what == 6 && s.watched:
				p.Del(s.fd, s.in)
				list, n := kqueueDeletes(s.in)
				m.apply(t, s.fd, list[:n])
				s.watched = false
			default:
				in := Interest(rng.IntN(4))
				if s.watched {
					err = p.Mod(s.fd, s.in, in)
				} else {
					err = p.Add(s.fd, in)
				}
				if err != nil {
					t.Fatal(err)
				}
				list, n := kqueueChanges(s.in, s.watched, in)
				m.apply(t, s.fd, list[:n])
				s.in, s.watched = in, true
			}
			events, err := p.Wait(0, nil)
			if err != nil {
				t.Fatal(err)
			}
			real, model := map[int]Readiness{}, map[int]Readiness{}
			for _, ev := range events {
				real[ev.FD] |= ev.Ready
			}
			for _, a := range m.wait() {
				ev, _ := a.event()
				model[ev.FD] |= ev.Ready
			}
			for i, s := range m.sockets {
				if got, want := means(s.in, model[s.fd]), means(s.in, real[s.fd]); got != want {
					t.Fatalf("seed %d, step %d (%d), socket %d %+v: kqueue tells %s, epoll %s", seed, step, what, i, *s,
						got, want)
				}
			}
		}
		for _, s := range m.sockets {
			unix.Close(s.fd)
			if !s.gone {
				unix.Close(s.peer)
			}
		}
		p.Close()
	}
}

// TestKqueueAnswers: the answers of the kernel, as its manual describes them, and the events that they become.
func TestKqueueAnswers(t *testing.T) {
	for _, c := range []struct {
		answer kqueueAnswer
		want   Event
		wake   bool
	}{
		{kqueueAnswer{fd: 7, filter: filterRead}, Event{7, CanRead}, false},
		{kqueueAnswer{fd: 7, filter: filterRead, eof: true}, Event{7, CanRead}, false}, // the read returns 0
		{kqueueAnswer{fd: 7, filter: filterWrite}, Event{7, CanWrite}, false},
		{kqueueAnswer{fd: 7, filter: filterWrite, eof: true}, Event{7, HungUp}, false},
		{kqueueAnswer{filter: filterUser}, Event{}, true},
	} {
		if ev, wake := c.answer.event(); ev != c.want || wake != c.wake {
			t.Errorf("%+v: %+v, %t; want %+v, %t", c.answer, ev, wake, c.want, c.wake)
		}
	}
}
