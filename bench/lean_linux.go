package bench

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// RunClient does a job with one thread on epoll and as little else as possible: the engine computes on every core of
// the machine, so whatever a measuring client does between two tokens it takes from what it measures. It reads time
// once a wake-up, looks at no more of an event than which one it is, and waits in raw system calls: around the others
// Go's runtime wakes a thread of its own (sysmon), once a token.
func RunClient(j ClientJob) ([][]int64, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ep)
	type stream struct {
		fd    int
		split wire.Splitter
		times []int64
		done  bool
	}
	streams := make([]stream, j.Streams)
	for i := range streams {
		st := &streams[i]
		st.split.Max = wire.MaxEventBytes
		st.times = make([]int64, 0, j.Tokens)
		if st.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return nil, err
		}
		defer unix.Close(st.fd)
		if err := unix.Connect(st.fd, &unix.SockaddrUnix{Name: j.Socket}); err != nil {
			return nil, fmt.Errorf("connect to the daemon: %w", err)
		}
		if err := unix.SetNonblock(st.fd, true); err != nil {
			return nil, err
		}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, st.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, err
		}
	}
	for i := range streams {
		req := defaults
		req.ID, req.Prompt, req.MaxTokens, req.Stream = "b", prompt(i, j.Round, j.Prompt), j.Tokens, true
		req.Sampling.Temperature = 0
		req.Sampling.IgnoreEOS = true
		if _, err := unix.Write(streams[i].fd, wire.AppendRequest(nil, &req, &defaults)); err != nil {
			return nil, err
		}
	}
	events := make([]unix.EpollEvent, j.Streams)
	buf := make([]byte, 16<<10)
	start := time.Now()
	for left := j.Streams; left > 0; {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		now := time.Since(start).Nanoseconds()
		for _, ev := range events[:n] {
			st := &streams[ev.Fd]
			k, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(st.fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
			switch {
			case errno == unix.EAGAIN:
				continue
			case errno != 0:
				return nil, errno
			case k == 0 && !st.done:
				return nil, errors.New("the daemon closed the connection")
			}
			for in := buf[:k]; len(in) > 0; {
				payload, rest, err := st.split.Next(in)
				if err != nil {
					return nil, err
				}
				in = rest
				switch {
				case payload == nil:
				case bytes.HasPrefix(payload, []byte(`{"event":"token"`)):
					st.times = append(st.times, now)
				case bytes.HasPrefix(payload, []byte(`{"event":"eos"`)):
					if len(st.times) != j.Tokens {
						return nil, fmt.Errorf("stream %d got %d token events, want %d", ev.Fd, len(st.times), j.Tokens)
					}
					st.done = true
					left--
				default:
					return nil, fmt.Errorf("the daemon answered %s", payload)
				}
			}
		}
	}
	out := make([][]int64, len(streams))
	for i := range streams {
		out[i] = streams[i].times
	}
	return out, nil
}
