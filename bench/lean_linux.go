package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// RunClient does a job with one thread on epoll. The engine computes on every core of the machine, so everything that
// the client does between two tokens slows down what it measures. It reads time once a wake-up, parses no more of an
// event than its kind and request, and waits in raw system calls: around the others Go's runtime wakes its monitor
// thread (sysmon), once a token.
func RunClient(j ClientJob) ([][]int64, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ep)
	type conn struct {
		fd    int
		split split.Frames
	}
	conns := make([]conn, min(max(j.Connections, 1), j.Streams))
	for i := range conns {
		c := &conns[i]
		c.split.Max = wire.MaxEventBytes
		if c.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return nil, err
		}
		defer unix.Close(c.fd)
		if err := unix.Connect(c.fd, &unix.SockaddrUnix{Name: j.Socket}); err != nil {
			return nil, fmt.Errorf("connect to the daemon: %w", err)
		}
		if err := unix.SetNonblock(c.fd, true); err != nil {
			return nil, err
		}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, c.fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, err
		}
	}
	times := make([][]int64, j.Streams)
	start := time.Now()
	for i := range times {
		times[i] = make([]int64, 0, j.Tokens)
		req := defaults
		req.ID, req.Prompt, req.MaxTokens, req.Stream, req.NoProgress = strconv.Itoa(i), j.Text, j.Tokens, true, true
		if j.Text == "" {
			req.Prompt = prompt(i, j.Round, j.Prompt)
		}
		req.Sampling.Temperature, req.Sampling.IgnoreEOS = 0, true
		if _, err := unix.Write(conns[i%len(conns)].fd, frames.AppendRequest(nil, &req, &defaults)); err != nil {
			return nil, err
		}
	}
	events := make([]unix.EpollEvent, len(conns))
	buf := make([]byte, 16<<10)
	for left := j.Streams; left > 0; {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&events[0])),
			uintptr(len(events)), ^uintptr(0), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		now := time.Since(start).Nanoseconds()
		for _, ev := range events[:n] {
			c := &conns[ev.Fd]
			k, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&buf[0])),
				uintptr(len(buf)))
			switch {
			case errno == unix.EAGAIN:
				continue
			case errno != 0:
				return nil, errno
			case k == 0:
				return nil, errors.New("the daemon closed the connection")
			}
			for in := buf[:k]; len(in) > 0; {
				payload, rest, err := c.split.Next(in)
				if err != nil {
					return nil, err
				}
				in = rest
				if payload == nil {
					continue
				}
				kind, i := which(payload)
				switch {
				case kind == wire.EventToken && i < len(times):
					times[i] = append(times[i], now)
				case kind == wire.EventEOS && i < len(times) && len(times[i]) == j.Tokens:
					left--
				default:
					return nil, fmt.Errorf("the daemon answered %s", payload)
				}
			}
		}
	}
	return times, nil
}

// which parses the head of an event, {"event":"token","id":"7",…, for its kind and request.
func which(payload []byte) (wire.EventKind, int) {
	kind := wire.EventUnknown
	rest, ok := bytes.CutPrefix(payload, []byte(`{"event":"token","id":"`))
	if ok {
		kind = wire.EventToken
	} else if rest, ok = bytes.CutPrefix(payload, []byte(`{"event":"eos","id":"`)); ok {
		kind = wire.EventEOS
	}
	i := 0
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		i = 10*i + int(c-'0')
	}
	return kind, i
}
