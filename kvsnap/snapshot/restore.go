package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

const (
	// readers is the number of goroutines that read files: one waits for the disk while the other verifies.
	readers = 2
	// readAhead is the number of parts that a restore holds or reads before Next asks for them.
	readAhead = 4
)

// Status is the answer of Restore.Next.
type Status uint8

const (
	Ready   Status = iota // the next part
	Waiting               // the next part is being read; notify will be called
	Done                  // Next has returned all parts
	Failed                // the next part cannot be read; the parts before it are a valid shorter prefix; Err says why
)

func (s Status) String() string { return [...]string{"ready", "waiting", "done", "failed"}[s] }

// Part is one range to restore.
type Part struct {
	P0, P1 int    // positions [P0, P1)
	Bytes  []byte // for Engine.Restore; verified. Valid until the next Next or Close
	Tier   Tier   // the tier it came from
}

// Restore returns the parts of one match, in order. It belongs to one goroutine, the decode loop; none of its methods
// waits.
type Restore struct {
	c      *Cache
	notify func()
	begin  time.Time
	tier   Tier // the slowest tier so far
	chain  []*part

	// Under Cache.mu: parts from next on, up to readAhead of them, are ready, failed or being read.
	got    []fetched // parallel to chain
	next   int       // the part that Next returns next
	asked  int       // number of parts requested, from the beginning of chain; next ≤ asked
	closed bool
	ended  bool // counted in the histogram

	current *Buffer // of the Part returned last
}

type fetched struct {
	buf  *Buffer
	tier Tier
	err  error
}

// read is one file being read for all restores that want it (single flight).
type read struct {
	part    *part
	waiters []waiter
	done    bool
}

type waiter struct {
	r *Restore
	i int
}

// Fetch begins to restore a match. The cache calls notify, from one of its goroutines and without its lock, when a part
// for which Next answered Waiting may be ready; notify must not block. Fetch counts as a use of the parts and never
// waits. Close the Restore afterwards. Fetch fails with ErrNotFound when the last part has left the cache since Lookup.
func (c *Cache) Fetch(m Match, notify func()) (*Restore, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, ErrClosed
	}
	n := c.mu.index.Get(m.Key)
	if n == nil || !n.Usable() {
		return nil, ErrNotFound
	}
	return c.restore(n, notify), nil
}

// restore begins to restore the chain that ends with n. The lock is held.
func (c *Cache) restore(n *index.Node, notify func()) *Restore {
	r := &Restore{c: c, notify: notify, begin: c.o.Now()}
	c.touch(n)
	for ; n != nil; n = n.Parent {
		of(n).holds++
		r.chain = append(r.chain, of(n))
	}
	slices.Reverse(r.chain)
	r.got = make([]fetched, len(r.chain))
	r.ask()
	return r
}

// Next returns the next part. The bytes of the one before become invalid.
func (r *Restore) Next() (Part, Status) {
	r.drop()
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.closed {
		return Part{}, Failed
	}
	if r.next == len(r.chain) {
		if !r.ended {
			r.ended = true
			c.mu.stats.restored(r.tier, c.o.Now().Sub(r.begin))
		}
		return Part{}, Done
	}
	r.ask()
	g := &r.got[r.next]
	switch {
	case g.err != nil:
		return Part{}, Failed
	case g.buf == nil:
		return Part{}, Waiting
	}
	p := r.chain[r.next]
	r.current, g.buf = g.buf, nil
	r.tier = max(r.tier, g.tier)
	r.next++
	if !p.node.Named {
		c.mu.stats.pagesIn[g.tier] += uint64(len(p.node.Tokens))
	}
	return Part{P0: p.node.P0, P1: p.node.P1, Bytes: r.current.bytes, Tier: g.tier}, Ready
}

// Share returns the buffer of the part that Next returned last, with a reference that the caller releases; nil when
// there is none.
func (r *Restore) Share() *Buffer {
	if r.current == nil {
		return nil
	}
	return r.current.ref()
}

// Err returns why Next answered Failed.
func (r *Restore) Err() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.next < len(r.got) && r.got[r.next].err != nil {
		return r.got[r.next].err
	}
	if r.closed {
		return ErrClosed
	}
	return nil
}

// Close releases all parts. notify may be called once more afterwards.
func (r *Restore) Close() {
	r.drop()
	c := r.c
	c.mu.Lock()
	var bufs []*Buffer
	if !r.closed {
		r.closed = true
		for i, p := range r.chain {
			p.holds--
			if b := r.got[i].buf; b != nil {
				bufs = append(bufs, b)
				r.got[i].buf = nil
			}
		}
	}
	c.mu.Unlock()
	release(bufs)
}

func (r *Restore) drop() {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
}

// ask takes the parts up to readAhead from memory or requests reads. The lock is held.
func (r *Restore) ask() {
	for ; r.asked < min(r.next+readAhead, len(r.chain)); r.asked++ {
		p, g := r.chain[r.asked], &r.got[r.asked]
		switch {
		case p.buf != nil:
			g.buf = p.buf.ref()
		case r.c.mu.closed:
			g.err = ErrClosed
		case !p.node.Disk.In() || r.c.diskErr != nil:
			g.err = ErrNotFound
		default:
			g.tier = Disk
			if p.reading == nil {
				p.reading = &read{part: p}
				r.c.mu.reads = append(r.c.mu.reads, p.reading)
				r.c.work.Broadcast()
			}
			p.reading.waiters = append(p.reading.waiters, waiter{r, r.asked})
		}
	}
}

// reader reads files until the cache is closed.
func (c *Cache) reader() {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic("snapshot: zstd: " + err.Error()) // constant options
	}
	defer dec.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.mu.reads) == 0 {
			if c.mu.closed {
				return
			}
			c.work.Wait()
		}
		rd := c.mu.reads[0]
		c.mu.reads = c.mu.reads[1:]
		p := rd.part
		h := c.header(p)
		c.mu.Unlock()
		buf, err := c.readFile(p.node.Key, &h, dec)
		if err == nil {
			_ = c.o.FS.SetTime(c.path(p.node.Key), c.o.Now()) // preserves the order of use if the process is killed
		}
		c.mu.Lock()
		notify, bufs := c.finish(rd, buf, err)
		c.check()
		c.mu.Unlock()
		release(bufs)
		for _, f := range notify {
			f()
		}
		c.mu.Lock()
	}
}

// finish passes the outcome of a read to all restores that wait for it. The lock is held; the caller acts on the
// results after unlocking.
func (c *Cache) finish(rd *read, buf *Buffer, err error) (notify []func(), bufs []*Buffer) {
	if rd.done { // the cache has been closed
		if buf != nil {
			bufs = append(bufs, buf)
		}
		return nil, bufs
	}
	rd.done = true
	p := rd.part
	p.reading = nil
	if err != nil {
		c.readFailed(p, err)
	}
	switch {
	case p.buf != nil: // stored again during the read
		if buf != nil {
			bufs = append(bufs, buf)
		}
		buf, err = p.buf.ref(), nil
	case err != nil:
	case p.node.Named: // its reader keeps what it makes of it
	// A part that was read is likely to be read again: it enters the host tier if there is room.
	case c.mu.index.Get(p.node.Key) == &p.node:
		evicted, roomErr := c.makeRoom(buf.size())
		bufs = append(bufs, evicted...)
		if roomErr == nil {
			p.buf = buf.ref()
			c.mu.host.Push(&p.node, buf.size(), hostElem)
		}
	}
	for _, w := range rd.waiters {
		if w.r.closed {
			continue
		}
		if g := &w.r.got[w.i]; err != nil {
			g.err = err
		} else {
			g.buf = buf.ref()
		}
		if w.r.notify != nil {
			notify = append(notify, w.r.notify)
		}
	}
	if buf != nil {
		bufs = append(bufs, buf)
	}
	return notify, bufs
}

// readFailed removes a damaged or missing file from the index. A file that could not be read for another reason
// remains.
func (c *Cache) readFailed(p *part, err error) {
	if !p.node.Disk.In() {
		return
	}
	switch {
	case errors.Is(err, format.ErrFormat), errors.Is(err, format.ErrVersion):
		c.damaged(format.Name(p.node.Key), err)
		c.addJob(&job{kind: quarantineFile, key: p.node.Key, name: format.Name(p.node.Key)})
	case isMissing(err):
	case errors.Is(err, ErrClosed):
		return
	default:
		c.ioError("read a file", err)
		return
	}
	c.mu.disk.Remove(&p.node.Disk)
	if p.buf == nil {
		c.forget(p)
	}
}

func isMissing(err error) bool { return err != nil && ignoreMissing(err) == nil }

// readFile reads a part's file and verifies that it is want. The caller owns the buffer's one reference.
func (c *Cache) readFile(key Key, want *format.Header, dec *zstd.Decoder) (*Buffer, error) {
	f, err := c.o.FS.Open(c.path(key))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	// The writer compresses only when that makes a file smaller, so the raw size bounds the file's size. Check it
	// before allocating.
	if limit := int64(want.Size()) + want.Raw + format.ChecksumBytes; size > limit {
		return nil, fmt.Errorf("%w: the file has %d bytes, the part at most %d", format.ErrFormat, size, limit)
	}
	if size < format.LeadBytes {
		return nil, fmt.Errorf("%w: the file has %d bytes", format.ErrFormat, size)
	}
	buf, err := c.pool.get(int(size))
	if err != nil {
		return nil, err
	}
	defer func() {
		if buf != nil {
			buf.Release()
		}
	}()
	sum, b := format.NewSummer(), buf.bytes
	for off := 0; off < len(b); off += sliceBytes {
		s := b[off:min(off+sliceBytes, len(b))]
		if err := readFull(f, s, int64(off)); err != nil {
			return nil, err
		}
		if end := len(b) - format.ChecksumBytes; off < end {
			sum.Add(s[:min(len(s), end-off)])
		}
	}
	h, err := format.Parse(b, size)
	if err != nil {
		return nil, err
	}
	if err := sum.Check(b[max(0, len(b)-format.ChecksumBytes):]); err != nil {
		return nil, err
	}
	if h.Key() != key || h.Origin != want.Origin || h.Namespace != want.Namespace || h.P0 != want.P0 ||
		h.P1 != want.P1 ||
		h.Prefix != want.Prefix || h.Raw != want.Raw || !slices.Equal(h.Tokens, want.Tokens) {
		return nil, fmt.Errorf("%w: it is not the part that its name and the index say", format.ErrFormat)
	}
	payload := b[h.Size() : int64(h.Size())+h.Stored]
	if h.Flags&format.FlagZstd == 0 {
		buf.bytes = payload
		out := buf
		buf = nil
		return out, nil
	}
	var frame zstd.Header
	if err := frame.Decode(payload); err != nil || !frame.HasFCS || frame.FrameContentSize != uint64(h.Raw) {
		return nil, fmt.Errorf("%w: payload: its zstd frame does not declare %d bytes", format.ErrFormat, h.Raw)
	}
	out, err := c.pool.get(int(h.Raw))
	if err != nil {
		return nil, err
	}
	plain, err := dec.DecodeAll(payload, out.bytes[:0])
	switch {
	case err != nil:
		err = fmt.Errorf("%w: payload: %w", format.ErrFormat, err)
	case int64(len(plain)) != h.Raw:
		err = fmt.Errorf("%w: payload decompresses to %d bytes, not %d", format.ErrFormat, len(plain), h.Raw)
	case &plain[0] != &out.bytes[0]:
		copy(out.bytes, plain) // the decoder needed more room than the payload
	}
	if err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}
