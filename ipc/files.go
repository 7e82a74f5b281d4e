package ipc

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/rights"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// filesWithin is the longest time that the files of a frame are read.
const filesWithin = 10 * time.Second

// request hands a request, whose id is in flight, to the Handler. If it names files that came with its frame, they are
// read before, and no further message of c meanwhile.
func (l *Loop) request(c *Conn, r *wire.Request, files []int) {
	images, numbers := r.ByDescriptor()
	if len(images) == 0 || l.cfg.Router != nil { // a front serves no requests
		l.shares.files.Close(c.peer.UID, files)
		l.h.Request(c, r)
		return
	}
	c.hold(false)
	c.frames.reading = true
	want := rights.Wanted{Files: files, Which: numbers, Within: filesWithin,
		Limit: cmp.Or(l.cfg.MaxFrameBytes, wire.DefaultMaxFrameBytes)}
	l.shares.files.Read(c.peer.UID, want, func(data [][]byte, err error) {
		l.Do(func() {
			c.frames.reading = false
			for i := range data {
				images[i].File = data[i]
			}
			switch {
			case c.gone || c.ending():
				c.Done(r.ID)
			case err != nil:
				l.refuseMessage(c, wire.Error{ID: r.ID, Code: wire.BadRequest, Message: err.Error()})
				c.Done(r.ID)
			default:
				l.h.Request(c, r)
			}
			if !c.gone {
				l.readOn(c)
			}
		})
	})
}

// readOn ends hold.
func (l *Loop) readOn(c *Conn) {
	c.mu.Lock()
	c.held = false
	if c.closing == stayOpen && !c.readEnd {
		if err := c.watch(c.interest | poll.WantRead); err != nil {
			c.end(atOnce, IOError)
		}
	}
	c.notice()
	c.mu.Unlock()
	rest := c.rest
	c.rest = nil
	l.consume(c, rest)
}

// passedFile is a file of a connection that is about to arrive over a Link.
type passedFile struct {
	fd    int
	fresh bool
}

// keepFile keeps a file for the connection that comes next.
func (k *Link) keepFile(m LinkMessage) error {
	if m.lost {
		return nil
	}
	if m.FD < 0 || len(m.Body) != 1 || len(k.files[m.Conn]) > rights.MaxFiles {
		if m.FD >= 0 {
			unix.Close(m.FD)
		}
		return errLink
	}
	if k.files == nil {
		k.files = map[uint32][]passedFile{}
	}
	k.files[m.Conn] = append(k.files[m.Conn], passedFile{m.FD, m.Body[0] == 1})
	return nil
}

// dropFiles closes the files that came for a connection which has not arrived.
func (k *Link) dropFiles(number uint32) {
	for _, f := range k.files[number] {
		unix.Close(f.fd)
	}
	delete(k.files, number)
}

// takeFiles gives c the files that came over k for its number.
func (k *Link) takeFiles(c *Conn, number uint32) {
	for _, f := range k.files[number] {
		c.frames.files.Put(f.fd, f.fresh)
	}
	delete(k.files, number)
}

// passFiles sends c's files over k, before c itself.
func (k *Link) passFiles(c *Conn, number uint32) {
	c.frames.files.Pass(func(fd int, fresh bool) {
		body := []byte{0}
		if fresh {
			body[0] = 1
		}
		if fd != rights.Lost {
			_ = k.Send(linkFile, number, fd, body) // the connection's own message tells of an error
		}
	})
}
