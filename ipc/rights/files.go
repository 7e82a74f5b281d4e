package rights

// MaxFiles is the most files that a frame may have.
const MaxFiles = 64

// Files are the files that a client has sent with the bytes of its connection, until the frame that they belong to is
// whole. It owns them. Not safe for concurrent use.
//
// A client sends a frame's files with the frame's bytes, and one frame with a call of sendmsg. The kernel ends a read
// behind the bytes that files came with. So files that came with a read belong to the last frame that has bytes in it.
type Files struct {
	pool  *Pool
	owner uint32
	frame []int // of the frame that is being read
	fresh []int // that came with the newest bytes
}

// New returns the Files of a connection of owner.
func (p *Pool) New(owner uint32) Files { return Files{pool: p, owner: owner} }

// Add takes in the files that came with the newest bytes. Lost takes the place of those that are too many.
func (f *Files) Add(fds []int) {
	if len(fds) == 0 {
		return
	}
	room := max(0, MaxFiles-len(f.frame)-len(f.fresh))
	f.fresh = append(f.fresh, f.pool.take(f.owner, fds, room)...)
}

// Frame returns the files of the frame that has just become whole. They are the caller's, who gives them to Pool.Read
// or Pool.Close. last: none of the newest bytes are behind it.
func (f *Files) Frame(last bool) (fds []int) {
	if last {
		f.Split()
	}
	fds, f.frame = f.frame, nil
	return fds
}

// Return takes back what Frame has returned: the frame is not handled yet.
func (f *Files) Return(fds []int) { f.frame = fds }

// Split is called when the newest bytes have been split into frames.
func (f *Files) Split() {
	if len(f.fresh) > 0 {
		f.frame, f.fresh = append(f.frame, f.fresh...), nil
	}
}

// Drop closes f's files.
func (f *Files) Drop() {
	if len(f.frame)+len(f.fresh) > 0 {
		f.pool.Close(f.owner, append(f.frame, f.fresh...))
		f.frame, f.fresh = nil, nil
	}
}

// Pass calls send with each of f's files, for another process, and drops them. fresh: it came with the newest bytes.
func (f *Files) Pass(send func(fd int, fresh bool)) {
	for _, fd := range f.frame {
		send(fd, false)
	}
	for _, fd := range f.fresh {
		send(fd, true)
	}
	f.Drop()
}

// Put takes in a file that another process has passed.
func (f *Files) Put(fd int, fresh bool) {
	kept := f.pool.take(f.owner, []int{fd}, MaxFiles)
	if fresh {
		f.fresh = append(f.fresh, kept...)
	} else {
		f.frame = append(f.frame, kept...)
	}
}
