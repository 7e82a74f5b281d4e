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
// # Tiers and goroutines
//
//	decode loop ── Put ──► host memory (segmented LRU, byte cap)
//	     ▲                     │ writer goroutine: bounded queue, compress?, temp file, fsync, rename, fsync
//	     │                     ▼
//	     └─ Fetch/Next ◄── disk (segmented LRU, byte cap): reader goroutines verify the checksum before Next returns a part
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
	pool    *bufferPool
	diskErr error // why there is no disk tier; written by Open only
	lock    interface{ Close() error }

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
	c := &Cache{o: o, pool: newPool(o.RAMBytes / 16)}
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
		background()
		c.scanRest(rest)
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

// Match is the result of Lookup.
type Match struct {
	Key    Key   // of the last part; Fetch takes it
	Tokens int   // tokens of the query that are cached
	Held   int   // positions the parts hold, ≥ Tokens: remove the positions beyond Tokens after the restore
	Whole  int   // end of the last part whose tokens all agree with the query, ≤ Tokens: Put may continue there
	Parts  int   // to restore
	Bytes  int64 // to restore, uncompressed
	Tier   Tier  // the slowest tier of any of the parts
}

// Lookup finds the longest cached prefix of tokens that ns may use and counts the answer. It reads memory only, never
// waits, and does not allocate. Do not pass the last token of a prompt: it must be computed for its logits.
func (c *Cache) Lookup(ns Namespace, tokens []Token) (Match, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.lookup(ns, tokens)
	c.mu.stats.lookups++
	if ok {
		c.mu.stats.hits[m.Tier]++
		c.mu.stats.hitTokens[m.Tier] += uint64(m.Tokens)
	}
	return m, ok
}

// Peek is Lookup without counting, for repeated questions about one request.
func (c *Cache) Peek(ns Namespace, tokens []Token) (Match, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookup(ns, tokens)
}

func (c *Cache) lookup(ns Namespace, tokens []Token) (m Match, ok bool) {
	n, matched := c.mu.index.Lookup(ns, tokens, c.o.WholeParts)
	if n == nil {
		return Match{}, false
	}
	m = Match{Key: n.Key, Tokens: matched, Held: n.P1, Whole: n.P1}
	if matched < n.P1 {
		m.Whole = n.P0
	}
	for ; n != nil; n = n.Parent {
		p := of(n)
		m.Parts++
		m.Bytes += p.raw
		if p.buf == nil {
			m.Tier = Disk
		}
	}
	return m, true
}

// Buffer returns memory for a part of n bytes. Fill it, then Put it or Release it.
func (c *Cache) Buffer(n int) (*Buffer, error) {
	if n <= 0 || int64(class(n)) > c.o.RAMBytes {
		return nil, fmt.Errorf("part of %d bytes: %w of %d bytes", n, ErrTooLarge, c.o.RAMBytes)
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
	c.mu.stats.snapshots++
	c.mu.stats.pagesOut[Host] += uint64(len(p.node.Tokens))
	c.enqueue(p)
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

// Pin keeps a part, and those before it, in their tiers until it is unpinned. It fails with ErrNoRoom when pins would
// take more than half of the host tier. Pins end with the process.
func (c *Cache) Pin(key Key, pin bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.mu.index.Get(key)
	if n == nil {
		return ErrNotFound
	}
	p := of(n)
	if !pin || p.pinned != nil {
		if !pin {
			c.unpin(p)
		}
		return nil
	}
	var chain []*part
	for ; n != nil; n = n.Parent {
		chain = append(chain, of(n))
	}
	all := map[*part]bool{}
	add := func(parts []*part) {
		for _, q := range parts {
			all[q] = true
		}
	}
	add(chain)
	c.mu.index.Each(func(n *index.Node) { add(of(n).pinned) })
	var bytes int64
	for q := range all {
		bytes += q.raw
	}
	if bytes > c.mu.host.Cap/2 {
		return fmt.Errorf("pin %d bytes: half of the host tier is %d: %w", bytes, c.mu.host.Cap/2, ErrNoRoom)
	}
	for _, q := range chain {
		q.holds++
	}
	p.pinned = chain
	return nil
}

func (c *Cache) unpin(p *part) {
	for _, q := range p.pinned {
		q.holds--
	}
	p.pinned = nil
}

// Delete removes a part and every part behind it from all tiers, even pinned ones, and returns when their files are
// removed. It waits for the disk.
func (c *Cache) Delete(ctx context.Context, key Key) (parts int, err error) {
	return c.deleteWhere(ctx, func(x *index.Index) *index.Node { return x.Get(key) })
}

// DeleteNamespace removes all parts of a namespace, as Delete does.
func (c *Cache) DeleteNamespace(ctx context.Context, ns Namespace) (parts int, err error) {
	parts, err = c.deleteWhere(ctx, func(x *index.Index) (found *index.Node) {
		x.Each(func(n *index.Node) {
			if n.Namespace == ns {
				found = n
			}
		})
		return found
	})
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return parts, err
}

func (c *Cache) deleteWhere(ctx context.Context, next func(*index.Index) *index.Node) (parts int, err error) {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return 0, ErrClosed
	}
	var bufs []*Buffer
	var jobs []*job
	for {
		n := next(c.mu.index)
		if n == nil {
			break
		}
		// collect all before removing any: Children does not find a part whose parent is removed
		all := []*index.Node{n}
		for i := 0; i < len(all); i++ {
			c.mu.index.Children(all[i], func(child *index.Node) { all = append(all, child) })
		}
		for _, n := range slices.Backward(all) {
			var j *job
			if bufs, j = c.removePart(of(n), bufs); j != nil {
				jobs = append(jobs, j)
			}
			parts++
		}
	}
	c.check()
	c.mu.Unlock()
	release(bufs)
	if parts == 0 {
		return 0, ErrNotFound
	}
	for _, j := range jobs {
		err = errors.Join(err, c.wait(ctx, j))
	}
	return parts, err
}

// removePart removes p from all tiers. The lock is held. The caller releases the buffers after unlocking; job j, if not
// nil, ends when the file is removed.
func (c *Cache) removePart(p *part, bufs []*Buffer) (_ []*Buffer, j *job) {
	c.unpin(p)
	c.forget(p)
	if p.buf != nil {
		bufs = append(bufs, c.dropHost(p))
	}
	if p.node.Disk.In() {
		c.mu.disk.Remove(&p.node.Disk)
	}
	if c.diskErr == nil { // even without a known file: a write may be in progress or have failed half-way
		j = c.addJob(&job{kind: removeFile, key: p.node.Key})
	}
	return bufs, j
}

// DeletePrefix removes from all tiers the parts of ns whose tokens are a prefix of tokens, even pinned ones, except
// those that a part with other tokens continues. It never waits: when it returns, no look-up finds the parts, and their
// files are removed in the background. gone waits for the removal; the decode loop must not call it.
func (c *Cache) DeletePrefix(ns Namespace, tokens []Token) (parts int, gone func(context.Context) error) {
	c.mu.Lock()
	n, _ := c.mu.index.Lookup(ns, tokens, false)
	for n != nil && n.Parent != nil {
		n = n.Parent
	}
	var own []*index.Node // each before those that continue it
	var walk func(*index.Node)
	walk = func(n *index.Node) {
		if n.P1 <= len(tokens) && slices.Equal(n.Tokens, tokens[n.P0:n.P1]) {
			own = append(own, n)
			c.mu.index.Children(n, walk)
		}
	}
	if n != nil && !c.mu.closed {
		walk(n)
	}
	var bufs []*Buffer
	var jobs []*job
	for _, n := range slices.Backward(own) {
		goesOn := false
		c.mu.index.Children(n, func(*index.Node) { goesOn = true })
		if !goesOn && n.Namespace == ns {
			var j *job
			if bufs, j = c.removePart(of(n), bufs); j != nil {
				jobs = append(jobs, j)
			}
			parts++
		}
	}
	c.check()
	c.mu.Unlock()
	go release(bufs) // unmapping takes time
	return parts, func(ctx context.Context) (err error) {
		for _, j := range jobs {
			err = errors.Join(err, c.wait(ctx, j))
		}
		return err
	}
}

// Sequences calls f with the tokens of every stored prefix that no stored part continues and of which want accepts a
// part. f and want must not call the cache. It takes time linear in the tokens, so the decode loop must not call it.
func (c *Cache) Sequences(want func(ns Namespace, part Key) bool, f func(ns Namespace, tokens []Token)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.index.Each(func(n *index.Node) {
		goesOn, wanted := false, false
		c.mu.index.Children(n, func(*index.Node) { goesOn = true })
		for q := n; q != nil && !goesOn && !wanted; q = q.Parent {
			wanted = want(q.Namespace, q.Key)
		}
		if !wanted || !n.Usable() {
			return
		}
		tokens := make([]Token, n.P1)
		for q := n; q != nil; q = q.Parent {
			copy(tokens[q.P0:], q.Tokens)
		}
		f(n.Namespace, tokens)
	})
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
	n := &p.node
	return format.Header{Origin: c.o.Origin, Namespace: n.Namespace, P0: n.P0, P1: n.P1, Prefix: n.Before,
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
		case p.holds < 0:
			err = errors.Join(err, fmt.Errorf("[%d, %d) has %d holds", n.P0, n.P1, p.holds))
		}
	})
	if err != nil {
		panic("snapshot: " + err.Error())
	}
}
