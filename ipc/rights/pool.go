package rights

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Pool counts the files of all connections that are open, for each user. To read or to close a file may never end,
// where its file system is a program of its user's (FUSE); both are done on goroutines, and the file counts until then.
// The zero value has none. Safe for concurrent use.
type Pool struct {
	mu  sync.Mutex
	all int
	by  map[uint32]int
}

const (
	maxOpen    = 512          // files of all users, below the descriptors that connections need
	maxOpenOne = 2 * MaxFiles // files of a user
)

// take counts fds in, and returns them. Those above room, or a limit, are closed, and Lost takes their place.
func (p *Pool) take(owner uint32, fds []int, room int) (kept []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[uint32]int{}
	}
	var over []int
	lost := false
	for _, fd := range fds {
		switch {
		case fd == Lost:
			lost = true
		case len(kept) == room || p.all == maxOpen || p.by[owner] == maxOpenOne:
			over, lost = append(over, fd), true
		default:
			kept = append(kept, fd)
			p.all++
			p.by[owner]++
		}
	}
	if len(over) > 0 {
		go closeAll(over)
	}
	if lost {
		kept = append(kept, Lost)
	}
	return kept
}

func (p *Pool) give(owner uint32, n int) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all -= n
	if p.by[owner] -= n; p.by[owner] == 0 {
		delete(p.by, owner)
	}
}

// Open returns how many files are open.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// Close closes files of owner beside the caller.
func (p *Pool) Close(owner uint32, fds []int) {
	if len(fds) > 0 {
		go p.close(owner, fds)
	}
}

func (p *Pool) close(owner uint32, fds []int) { p.give(owner, closeAll(fds)) }

// closeAll closes fds and returns how many they were.
func closeAll(fds []int) (n int) {
	for _, fd := range fds {
		if fd != Lost {
			unix.Close(fd)
			n++
		}
	}
	return n
}

// Wanted are the files of a frame that its request names.
type Wanted struct {
	Files  []int // all files of the frame
	Which  []int // the indices of those that are read
	Limit  int   // of their bytes in all
	Within time.Duration
}

// Read reads files of owner from their beginnings and closes them all, beside the caller. done is called once, on
// another goroutine, after w.Within at the latest.
func (p *Pool) Read(owner uint32, w Wanted, done func(data [][]byte, err error)) {
	type result struct {
		data [][]byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := readAll(w)
		read <- result{data, err}
		p.close(owner, w.Files)
	}()
	go func() {
		late := time.NewTimer(w.Within)
		defer late.Stop()
		select {
		case r := <-read:
			done(r.data, r.err)
		case <-late.C:
			done(nil, fmt.Errorf("to read the frame's files took longer than %v", w.Within))
		}
	}()
}

func readAll(w Wanted) (data [][]byte, err error) {
	left := w.Limit
	for _, k := range w.Which {
		b, err := readOne(w.Files, k, left)
		if err != nil {
			return nil, err
		}
		left -= len(b)
		data = append(data, b)
	}
	return data, nil
}

func readOne(files []int, k, limit int) ([]byte, error) {
	switch {
	case k < len(files) && files[k] == Lost, k >= len(files) && slices.Contains(files, Lost):
		return nil, fmt.Errorf("fd:%d was not taken in: a frame may have %d files, a user %d that are not read yet, "+
			"all users %d", k, MaxFiles, maxOpenOne, maxOpen)
	case k >= len(files):
		return nil, fmt.Errorf("fd:%d is missing: %d files came with the frame; send them with its bytes "+
			"(SCM_RIGHTS), one frame with a call of sendmsg", k, len(files))
	}
	var st unix.Stat_t
	if err := unix.Fstat(files[k], &st); err != nil {
		return nil, fmt.Errorf("fd:%d: %w", k, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("fd:%d is no regular file; send one, or a memfd", k)
	}
	if st.Size > int64(limit) {
		return nil, fmt.Errorf("fd:%d has %d bytes, and %d are left of what a request may have (--max-frame-bytes); "+
			"send a smaller file", k, st.Size, limit)
	}
	data := make([]byte, st.Size)
	n := 0
	for n < len(data) {
		m, err := unix.Pread(files[k], data[n:], int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EBADF:
			return nil, fmt.Errorf("fd:%d is not open for reading", k)
		case err != nil:
			return nil, fmt.Errorf("read fd:%d: %w", k, err)
		case m == 0:
			return nil, fmt.Errorf("read fd:%d: %w: it became shorter meanwhile", k, io.ErrUnexpectedEOF)
		}
		n += m
	}
	if n == 0 {
		return nil, fmt.Errorf("fd:%d is empty", k)
	}
	return data, nil
}
