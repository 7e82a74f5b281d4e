package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

type jobKind uint8

const (
	writePart jobKind = iota
	removeFile
	quarantineFile
	clearQuarantine // removes the quarantined files of the namespaces that want accepts
	awaitScan       // nothing: it ends when all headers have been read
)

// job is one change of the directory. Only the writer changes names in it, one job after another, so that a removal and
// a later write of the same part cannot overlap.
type job struct {
	kind jobKind
	part *part                // writePart
	key  Key                  // of the part; quarantineFile: zero when the name contains none
	name string               // quarantineFile
	want func(Namespace) bool // clearQuarantine
	must bool                 // writePart: requested by Save, so try even while writing is paused

	done chan struct{} // closed at the end of the job, after err is set
	err  error
}

const (
	// maxFailures failed writes in a row pause writing for pauseWrites, to spare a full or failing disk.
	maxFailures = 3
	pauseWrites = 30 * time.Second
	// sliceBytes is the amount hashed and written at a time: it fits into a core's cache.
	sliceBytes = 1 << 20
)

var errDropped = errors.New("the part left memory before it was written")

// addJob appends to the writer's list. The lock is held.
func (c *Cache) addJob(j *job) *job {
	j.done = make(chan struct{})
	if j.kind == writePart {
		j.part.queued = true
		c.mu.queuedBytes += j.part.raw
	}
	c.mu.jobs = append(c.mu.jobs, j)
	c.work.Broadcast()
	return j
}

// enqueue queues the writing of p. The lock is held.
func (c *Cache) enqueue(p *part) {
	switch {
	case c.diskErr != nil || p.queued || p.node.Disk.In():
	case p.raw > c.mu.disk.Cap || c.mu.queuedBytes > 0 && c.mu.queuedBytes+p.raw > c.queueBytes():
		c.mu.stats.drops++
	case c.o.Now().Before(c.mu.paused):
		c.mu.stats.drops++
	default:
		c.addJob(&job{kind: writePart, part: p, key: p.node.Key})
	}
}

// endJob ends a job; it is called once for each. The lock is held.
func (c *Cache) endJob(j *job, err error) {
	if j.kind == writePart {
		j.part.queued = false
		c.mu.queuedBytes -= j.part.raw
		if err != nil {
			c.mu.stats.drops++
		}
	}
	j.err = err
	close(j.done)
}

// dropJobs ends all queued jobs. The lock is held.
func (c *Cache) dropJobs(err error) {
	for _, j := range c.mu.jobs {
		c.endJob(j, err)
	}
	c.mu.jobs = nil
}

// writer carries out jobs until the cache is closed and the queue is empty.
func (c *Cache) writer() {
	z := newCompressor()
	defer z.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.disk.Over(0) > 0 { // the cap was larger at the last start
		if err := c.evictDisk(); err != nil {
			c.ioError("remove a file", err)
			break
		}
	}
	for {
		for len(c.mu.jobs) == 0 {
			if c.mu.closed {
				return
			}
			c.work.Wait()
		}
		j := c.mu.jobs[0]
		c.mu.jobs = c.mu.jobs[1:]
		var err error
		switch j.kind {
		case writePart:
			err = c.writeChain(j, z)
		case removeFile, quarantineFile:
			err = c.clear(j)
		case clearQuarantine:
			c.mu.Unlock()
			err = c.clearQuarantine(j.want)
			c.mu.Lock()
			c.ioError("remove a damaged file", err)
		}
		c.endJob(j, err)
		if p := j.part; p != nil && p.node.Named && p.buf != nil { // written, or never to be
			b := c.dropHost(p)
			c.mu.Unlock()
			b.Release()
			c.mu.Lock()
		}
		c.check()
	}
}

// clear removes or quarantines a file, unless the part has been written again since. The lock is held, but released
// during the work.
func (c *Cache) clear(j *job) error {
	if n := c.mu.index.Get(j.key); n != nil && n.Disk.In() {
		return nil
	}
	if j.kind == removeFile {
		c.mu.Unlock()
		err := c.remove(j.key)
		c.mu.Lock()
		c.ioError("remove a file", err)
		return err
	}
	c.mu.Unlock()
	err := c.quarantine(j.name)
	c.mu.Lock()
	c.ioError("set a damaged file aside", err)
	return err
}

// ioError counts and reports a failed operation; it ignores a nil error. The lock is held.
func (c *Cache) ioError(what string, err error) {
	if err == nil {
		return
	}
	c.mu.stats.ioErrors++
	c.tell(what, err)
}

// damaged counts and reports a damaged file. The lock is held.
func (c *Cache) damaged(name string, err error) {
	c.mu.stats.quarantined++
	c.tell("damaged file "+name, err)
}

func (c *Cache) tell(what string, err error) {
	c.mu.stats.lastError = what + ": " + err.Error()
	if c.o.Failed != nil {
		c.o.Failed(what, err)
	}
}

// remove removes a part's file durably.
func (c *Cache) remove(key Key) error {
	if err := c.o.FS.Remove(c.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return c.o.FS.SyncDir(c.o.Dir)
}

// writeChain writes a part after the parts before it, because a part without its beginning is useless after a restart.
// The lock is held, but released during the work.
func (c *Cache) writeChain(j *job, z *compressor) error {
	if !j.must && c.o.Now().Before(c.mu.paused) {
		return errors.New("writing is paused after errors")
	}
	var chain []*part
	for n := &j.part.node; n != nil; n = n.Parent {
		if !n.Disk.In() {
			chain = append(chain, of(n))
		}
	}
	if n := &j.part.node; !n.Usable() && !n.Named {
		return errDropped
	}
	for i := len(chain) - 1; i >= 0; i-- {
		p := chain[i]
		if p.buf == nil || c.mu.index.Get(p.node.Key) != &p.node {
			return errDropped
		}
		err := c.writePart(p, z)
		if errors.Is(err, syscall.ENOSPC) && c.shrink() == nil {
			err = c.writePart(p, z)
		}
		if err != nil {
			c.ioError("write a file", err)
			if c.mu.failures++; c.mu.failures >= maxFailures {
				c.mu.paused = c.o.Now().Add(pauseWrites)
			}
			return fmt.Errorf("write part [%d, %d): %w", p.node.P0, p.node.P1, err)
		}
		c.mu.failures = 0
	}
	return nil
}

// queueBytes returns the most that waits to be written. The lock is held.
func (c *Cache) queueBytes() int64 {
	if c.o.QueueBytes > 0 {
		return c.o.QueueBytes
	}
	return c.mu.host.Cap / 4
}

// evictDisk removes the next victim's file. The lock is held, but released during the work.
func (c *Cache) evictDisk() error {
	v := c.mu.disk.Victim(func(n *index.Node) bool { return of(n).holds == 0 })
	if v == nil {
		return ErrNoRoom
	}
	p := of(v)
	// Before the lock is released, or a look-up could find a part whose file is being removed.
	c.mu.disk.Remove(&v.Disk)
	c.mu.stats.evictions[Disk]++
	if p.buf == nil {
		c.forget(p)
	}
	c.mu.Unlock()
	err := c.remove(v.Key)
	c.mu.Lock()
	return err
}

// shrink frees space on a file system that is full although the cap is not reached.
func (c *Cache) shrink() error {
	want := c.mu.disk.Bytes() * 7 / 8
	if c.mu.disk.Len() == 0 {
		return ErrNoRoom
	}
	for c.mu.disk.Len() > 0 && c.mu.disk.Bytes() > want {
		if err := c.evictDisk(); err != nil {
			return err
		}
	}
	return nil
}

// writePart writes one file. The lock is held, but released during the work, while a reference keeps p's bytes.
func (c *Cache) writePart(p *part, z *compressor) error {
	buf := p.buf.ref()
	defer buf.Release()
	var chain []*part // this part and those before it must not be evicted for it
	for n := &p.node; n != nil; n = n.Parent {
		chain = append(chain, of(n))
		of(n).holds++
	}
	defer func() {
		for _, q := range chain {
			q.holds--
		}
	}()
	h := c.header(p)
	need := int64(h.Size()) + h.Raw + format.ChecksumBytes // before compression
	if need > c.mu.disk.Cap {
		return ErrTooLarge
	}
	for c.mu.disk.Over(need) > 0 {
		if err := c.evictDisk(); err != nil {
			return err
		}
	}
	c.mu.Unlock()
	err := c.writeFile(&h, buf.bytes, z)
	c.mu.Lock()
	if err != nil {
		return err
	}
	if c.mu.index.Get(p.node.Key) != &p.node { // deleted during the write
		c.mu.Unlock()
		err := c.remove(p.node.Key)
		c.mu.Lock()
		return errors.Join(errDropped, err)
	}
	c.mu.disk.Push(&p.node, h.FileSize(), diskElem)
	c.mu.stats.written++
	if !p.node.Named {
		c.mu.stats.pagesOut[Disk] += uint64(len(p.node.Tokens))
	}
	c.mu.stats.writtenRaw += uint64(h.Raw)
	c.mu.stats.writtenStored += uint64(h.Stored)
	return nil
}

// writeFile makes a complete and durable file, or none. When the folder is moved away meanwhile, the temporary file is
// out of reach: it is removed when the folder can be written to again.
func (c *Cache) writeFile(h *format.Header, payload []byte, z *compressor) (err error) {
	if z.wins(payload) {
		if small := z.compress(payload); small != nil {
			payload, h.Flags = small, format.FlagZstd
		}
	}
	h.Stored = int64(len(payload))
	head, err := h.Append(nil)
	if err != nil {
		return err
	}
	fsys, name := c.o.FS, c.path(h.Key())
	f, err := fsys.Create(name + tempSuffix)
	if errors.Is(err, fs.ErrExist) { // left by an earlier write
		if err = fsys.Remove(name + tempSuffix); err == nil {
			f, err = fsys.Create(name + tempSuffix)
		}
	}
	if err != nil {
		return err
	}
	c.removeStrays()
	sum := format.NewSummer()
	put := func(b []byte) {
		for len(b) > 0 && err == nil {
			k := min(len(b), sliceBytes)
			sum.Add(b[:k])
			_, err = f.Write(b[:k])
			b = b[k:]
		}
	}
	put(head)
	put(payload)
	if s := sum.Sum(); err == nil {
		_, err = f.Write(s[:])
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = fsys.Rename(name+tempSuffix, name)
	}
	if err == nil {
		// After a failure here the file may or may not be durable. It is complete; remove it below if possible.
		if err = fsys.SyncDir(filepath.Dir(name)); err == nil {
			return nil
		}
		return errors.Join(err, fsys.Remove(name))
	}
	if e := fsys.Remove(name + tempSuffix); e != nil {
		c.strays = append(c.strays, name+tempSuffix)
		err = errors.Join(err, ignoreMissing(e))
	}
	return err
}

// removeStrays removes the temporary files of failed writes, in a folder that is there.
func (c *Cache) removeStrays() {
	for _, name := range c.strays {
		_ = c.o.FS.Remove(name) // one that stays is removed at the next start
	}
	c.strays = c.strays[:0]
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// compressor decides whether to compress, and compresses. It belongs to one goroutine.
type compressor struct {
	enc *zstd.Encoder
	out []byte
}

const (
	// sampleBytes is the size of the sample that decides whether to compress a payload.
	sampleBytes = 256 << 10
	// maxRatio is the largest compression ratio of the sample with which zstd is used; docs/snapshot-format.md has the
	// measurement.
	maxRatio = 0.75
)

func newCompressor() *compressor {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("snapshot: zstd: " + err.Error()) // constant options
	}
	return &compressor{enc: enc}
}

func (z *compressor) close() { z.enc.Close() }

// wins compresses a sample from the middle of b, because a payload begins with positions and lengths, which do not
// represent the cells.
func (z *compressor) wins(b []byte) bool {
	n := min(len(b), sampleBytes)
	from := (len(b) - n) / 2
	z.out = z.enc.EncodeAll(b[from:from+n], z.out[:0])
	return float64(len(z.out)) <= maxRatio*float64(n)
}

// compress returns b as one zstd frame, valid until the next call; nil when that is not smaller.
func (z *compressor) compress(b []byte) []byte {
	z.out = z.enc.EncodeAll(b, z.out[:0])
	if len(z.out) >= len(b) {
		return nil
	}
	return z.out
}
