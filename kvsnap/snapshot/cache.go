// Package snapshot keeps copies of KV cells in host memory and on disk, so that a prompt need not be computed again
// after its cells were evicted or the daemon restarted.
//
// # Parts
//
// The unit is a part: the cells of positions [p0, p1) of a token sequence, as Engine.Snapshot wrote them. The decode
// loop copies a conversation out in parts small enough to fit between two steps (Put, one after another, beginning at
// 0), and restores it in the same way (Fetch, then Next once per step), so that neither direction delays running
// answers. Each part is useful at once: the parts stored before an interruption are a shorter prefix. A conversation
// that grows adds parts; conversations with a common beginning share its parts.
//
// # Visibility
//
// A part belongs to a namespace (the peer's uid, set by the server). It is found only by look-ups of that namespace, or
// by every namespace if it was stored under format.System. It is restored only when its tokens and those of all parts
// before it equal the query's, and when engine, model and KV types are equal.
//
// # Named parts
//
// A named part (named.go) has bytes that are no cells, the embeddings of an image: it is found by a name, in the
// namespace that stored it. It shares files, cap and eviction order of the disk with the others, and is in host memory
// only until it is written.
//
// # Tiers and goroutines
//
//	decode loop ── Put ──► host memory (segmented LRU, byte cap)
//	     ▲                     │ writer goroutine: bounded queue, compress?, temp file, fsync, rename, fsync
//	     │                     ▼
//	     └─ Fetch/Next ◄── disk (segmented LRU, byte cap)
//	                            reader goroutines verify the checksum before Next returns a part
//
// Lookup, Put, Fetch and Next never touch a file and never wait for one: their lock protects list operations only. A
// failure of the disk costs a miss and increments a counter.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// Types of package format, for callers of this package.
type (
	Token     = format.Token
	Key       = format.Hash
	Namespace = format.Namespace
)

// Tier is a place of storage.
type Tier uint8

const (
	Host Tier = iota // this process's memory
	Disk             // a file
	tiers
)

func (t Tier) String() string { return [...]string{"host", "disk"}[t] }

// part is the cache's record of a part; all fields are guarded by Cache.mu.
type part struct {
	node index.Node

	// buf is the payload in memory, with one reference that the cache holds. Invariant: buf != nil == node.Host.In().
	buf *Buffer
	raw int64 // payload bytes

	queued  bool  // a write job is queued or running
	foreign bool  // a file of another origin: it counts towards the disk cap but is not in the index
	reading *read // the current disk read, shared by all restores that want the part
	// restores in progress that need it, plus pins of it or of a part behind it: it cannot be evicted while > 0
	holds  int
	pinned []*part // the chain that Pin of this part protects; nil when it is not pinned

	created, used time.Time
}

func hostElem(n *index.Node) *index.Elem { return &n.Host }
func diskElem(n *index.Node) *index.Elem { return &n.Disk }
func of(n *index.Node) *part             { return n.Owner.(*part) }

// Cache is the snapshot cache. All methods are safe from any goroutine. The decode loop may call only those that say
// "never waits".
type Cache struct {
	o       Options
	ram     atomic.Int64 // the host tier's cap; mu.host.Cap is the same under the lock
	pool    *bufferPool
	diskErr error // why there is no disk tier; written by Open only
	lock    interface{ Close() error }
	strays  []string // temporary files that could not be removed, owned by the writer; see writeFile

	mu struct {
		sync.Mutex
		index  *index.Index
		host   *index.Queue
		disk   *index.Queue
		closed bool

		jobs        []*job // for the writer, in order
		queuedBytes int64  // of parts waiting to be written
		reads       []*read
		stats       counters
		paused      time.Time // no writes until then, because the disk fails
		failures    int       // failed writes in a row
		unscanned   int       // files whose headers have not been read yet
	}
	work    *sync.Cond // on mu: signals new jobs or reads, the end of a job, and closing
	workers sync.WaitGroup
}

// Open makes a cache. Its error is about the options. If the disk tier is unavailable (another daemon uses the
// directory, permissions, I/O errors), the cache works without one and DiskError says why.
func Open(o Options) (*Cache, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	c := &Cache{o: o, pool: newPool(o.RAMBytes / idleShare)}
	c.ram.Store(o.RAMBytes)
	c.work = sync.NewCond(&c.mu)
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	c.mu.index = index.New(seed)
	c.mu.host, c.mu.disk = index.NewQueue(o.RAMBytes), index.NewQueue(o.DiskBytes)
	if o.Dir == "" {
		c.diskErr = fmt.Errorf("%w: no directory was given", ErrNoDisk)
		return c, nil
	}
	rest, err := c.openDisk()
	if err != nil {
		c.diskErr = fmt.Errorf("%w: %w", ErrNoDisk, err)
		return c, nil
	}
	c.workers.Add(1 + readers)
	go func() {
		defer c.workers.Done()
		Background()
		c.scanRest(rest)
		if o.Scanned != nil {
			o.Scanned()
		}
		c.writer()
	}()
	for range readers {
		go func() {
			defer c.workers.Done()
			c.reader()
		}()
	}
	return c, nil
}

// DiskError returns why there is no disk tier; nil when there is one.
func (c *Cache) DiskError() error { return c.diskErr }

// Buffer returns memory for a part of n bytes. Fill it, then Put it or Release it.
func (c *Cache) Buffer(n int) (*Buffer, error) {
	if ram := c.ram.Load(); n <= 0 || int64(class(n)) > ram {
		return nil, fmt.Errorf("part of %d bytes: %w of %d bytes", n, ErrTooLarge, ram)
	}
	return c.pool.get(n)
}

// Put stores the cells of positions [p0, len(tokens)); tokens are those of the whole sequence so far and are copied.
// buf belongs to the cache afterwards, even on an error. Put never waits: the file is written in the background.
// Storing a part again marks it as used. The errors are ErrNoPrefix when [0, p0) is not cached, ErrTooLarge, ErrNoRoom
// and ErrClosed.
func (c *Cache) Put(ns Namespace, tokens []Token, p0 int, buf *Buffer) (Key, error) {
	p := &part{buf: buf, raw: int64(len(buf.bytes)), created: c.o.Now()}
	n := &p.node
	if p0 < 0 || p0 >= len(tokens) || len(tokens)-p0 > format.MaxPartTokens {
		buf.Release()
		return Key{}, fmt.Errorf("part [%d, %d): need 0 ≤ first < end and at most %d positions", p0, len(tokens),
			format.MaxPartTokens)
	}
	n.Namespace, n.P0, n.P1, n.Tokens, n.Owner = ns, p0, len(tokens), slices.Clone(tokens[p0:]), p
	n.Before, n.After = format.PrefixHashes(tokens, p0)
	h := c.header(p)
	n.Key = h.Key()

	c.mu.Lock()
	evicted, err := c.put(p, tokens[:p0])
	c.mu.Unlock()
	release(evicted)
	if err != nil {
		buf.Release()
		return Key{}, err
	}
	return n.Key, nil
}

// put is Put under the lock. On an error the buffer still belongs to the caller.
func (c *Cache) put(p *part, prefix []Token) (evicted []*Buffer, err error) {
	if c.mu.closed {
		return nil, ErrClosed
	}
	n := &p.node
	// It is stored already: the caller releases the second copy.
	if old := c.mu.index.Get(n.Key); old != nil && of(old).buf != nil {
		c.touch(old)
		return []*Buffer{p.buf}, nil
	}
	var before *index.Node
	if n.P0 > 0 {
		if before = c.mu.index.Tail(n.Namespace, prefix); before == nil {
			return nil, fmt.Errorf("part [%d, %d): %w", n.P0, n.P1, ErrNoPrefix)
		}
	}
	addHolds(before, 1) // making room must not evict the parts before this one
	evicted, err = c.makeRoom(p.buf.size())
	addHolds(before, -1)
	if err != nil {
		return evicted, fmt.Errorf("part [%d, %d): %w", n.P0, n.P1, err)
	}
	if old := c.mu.index.Get(n.Key); old != nil { // only its file exists
		of(old).buf = p.buf
		p = of(old)
	} else {
		c.mu.index.Add(n)
	}
	p.used = c.o.Now()
	c.mu.host.Push(&p.node, p.buf.size(), hostElem)
	if !n.Named {
		c.mu.stats.snapshots++
		c.mu.stats.pagesOut[Host] += uint64(len(p.node.Tokens))
	}
	if c.enqueue(p); n.Named && !p.queued { // it is on disk already, or will never be
		evicted = append(evicted, c.dropHost(p))
	}
	c.check()
	return evicted, nil
}

// addHolds adds d to the holds of the chain that ends with n.
func addHolds(n *index.Node, d int) {
	for ; n != nil; n = n.Parent {
		of(n).holds += d
	}
}

// makeRoom evicts from the host tier until need more bytes fit. The caller releases the buffers after unlocking,
// because unmapping takes time.
func (c *Cache) makeRoom(need int64) (evicted []*Buffer, err error) {
	if need > c.mu.host.Cap {
		return nil, ErrTooLarge
	}
	for c.mu.host.Over(need) > 0 {
		v := c.mu.host.Victim(func(n *index.Node) bool { return of(n).holds == 0 && !of(n).queued })
		if v == nil { // the disk is too slow: drop a queued write rather than exceed the cap
			v = c.mu.host.Victim(func(n *index.Node) bool { return of(n).holds == 0 })
		}
		if v == nil {
			return evicted, ErrNoRoom
		}
		c.mu.stats.evictions[Host]++
		evicted = append(evicted, c.dropHost(of(v)))
	}
	return evicted, nil
}

// Resize gives the host tier another cap, in bytes, and evicts what exceeds it: first what has reached the disk or was
// to stay in memory only, then what waits to be written. Parts that a restore or a pin needs stay and may exceed a
// smaller cap until they are free.
func (c *Cache) Resize(bytes int64) {
	bytes = max(bytes, 1) // a part is then too large, whatever its size
	c.mu.Lock()
	c.ram.Store(bytes)
	c.mu.host.Cap = bytes
	evicted, _ := c.makeRoom(0) // ErrNoRoom: the remaining parts are in use
	c.mu.stats.returned += uint64(len(evicted))
	c.check()
	c.mu.Unlock()
	release(evicted)
	c.pool.resize(bytes / idleShare)
}

// dropHost removes p from the host tier, and from the index if no other tier has it.
func (c *Cache) dropHost(p *part) *Buffer {
	c.mu.host.Remove(&p.node.Host)
	b := p.buf
	p.buf = nil
	if !p.node.Disk.In() {
		c.forget(p)
	}
	return b
}

// forget removes p from the index.
func (c *Cache) forget(p *part) {
	if c.mu.index.Get(p.node.Key) == &p.node {
		c.mu.index.Remove(&p.node)
	}
}

func release(bufs []*Buffer) {
	for _, b := range bufs {
		b.Release()
	}
}

// touch marks the chain that ends with n as used, in both tiers.
func (c *Cache) touch(n *index.Node) {
	now := c.o.Now()
	for p := n; p != nil; p = p.Parent {
		of(p).used = now
	}
	c.mu.host.Hit(n, hostElem)
	c.mu.disk.Hit(n, diskElem)
}

// Save writes a part and those before it to disk, unless they are there, and waits for it.
func (c *Cache) Save(ctx context.Context, key Key) error {
	if c.diskErr != nil {
		return c.diskErr
	}
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	n := c.mu.index.Get(key)
	if n == nil {
		c.mu.Unlock()
		return ErrNotFound
	}
	p := of(n)
	if p.node.Disk.In() {
		c.mu.Unlock()
		return nil
	}
	j := c.addJob(&job{kind: writePart, part: p, key: key, must: true})
	c.mu.Unlock()
	return c.wait(ctx, j)
}

// Close stops the cache. It writes the queued parts until ctx ends and drops the rest. Restores in progress fail; their
// buffers stay valid until released.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.mu.closed = true
	var notify []func()
	for _, r := range c.mu.reads {
		n, _ := c.finish(r, nil, ErrClosed)
		notify = append(notify, n...)
	}
	c.mu.reads = nil
	c.work.Broadcast()
	c.mu.Unlock()
	for _, f := range notify {
		f()
	}
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropJobs(ctx.Err())
	})
	c.workers.Wait()
	stop()
	var err error
	if c.lock != nil {
		c.removeStrays()
		c.touchFiles()
		err = c.lock.Close()
	}
	c.mu.Lock()
	var bufs []*Buffer
	for _, n := range c.mu.host.Nodes() {
		bufs = append(bufs, c.dropHost(of(n)))
	}
	c.mu.Unlock()
	release(bufs)
	c.pool.drain()
	return err
}

// header returns the header of p's file without the payload fields.
func (c *Cache) header(p *part) format.Header {
	n, origin := &p.node, c.o.Origin
	if n.Named {
		origin = c.o.Named
	}
	return format.Header{Origin: origin, Namespace: n.Namespace, P0: n.P0, P1: n.P1, Prefix: n.Before,
		Through: n.After, Tokens: n.Tokens,
		Created: p.created.Unix(), Raw: p.raw}
}

// check verifies the invariants in builds with invariants. The lock is held.
func (c *Cache) check() {
	if !invariants.Enabled {
		return
	}
	err := errors.Join(c.mu.index.Check(), c.mu.host.Check(), c.mu.disk.Check())
	c.mu.index.Each(func(n *index.Node) {
		switch p := of(n); {
		case (p.buf != nil) != n.Host.In():
			err = errors.Join(err, fmt.Errorf("[%d, %d): buffer and host queue disagree", n.P0, n.P1))
		case p.buf == nil && !n.Disk.In():
			err = errors.Join(err, fmt.Errorf("[%d, %d) is in no tier", n.P0, n.P1))
		case n.Named && p.buf != nil && !p.queued && !c.mu.closed:
			err = errors.Join(err, fmt.Errorf("[%d, %d) is named, and in memory though it is not written", n.P0, n.P1))
		case p.holds < 0:
			err = errors.Join(err, fmt.Errorf("[%d, %d) has %d holds", n.P0, n.P1, p.holds))
		}
	})
	if err != nil {
		panic("snapshot: " + err.Error())
	}
}
