package snapshot

import (
	"context"
	"errors"
	"slices"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// Delete removes a part and every part behind it from all tiers, even pinned ones, and returns when their files are
// removed. It waits for the disk.
func (c *Cache) Delete(ctx context.Context, key Key) (parts int, err error) {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return 0, ErrClosed
	}
	n := c.mu.index.Get(key)
	if n == nil {
		c.mu.Unlock()
		return 0, ErrNotFound
	}
	all := []*index.Node{n}
	for i := 0; i < len(all); i++ {
		c.mu.index.Children(all[i], func(child *index.Node) { all = append(all, child) })
	}
	return c.deleteParts(ctx, all)
}

// DeleteNamespaces removes all parts of the namespaces that want accepts from all tiers, even pinned ones, and their
// files of other models and engines in the directory, the quarantined ones too. It returns when the files are removed:
// it waits for the disk, and first until the headers of all files have been read. Files of an unknown version stay.
func (c *Cache) DeleteNamespaces(ctx context.Context, want func(Namespace) bool) (parts int, err error) {
	c.mu.Lock()
	if c.mu.unscanned > 0 && !c.mu.closed {
		j := c.addJob(&job{kind: awaitScan})
		c.mu.Unlock()
		if err := c.wait(ctx, j); err != nil {
			return 0, err
		}
		c.mu.Lock()
	}
	if c.mu.closed {
		c.mu.Unlock()
		return 0, ErrClosed
	}
	var all []*index.Node
	c.mu.index.Each(func(n *index.Node) {
		if want(n.Namespace) {
			all = append(all, n)
		}
	})
	for _, n := range c.mu.disk.Nodes() {
		if of(n).foreign && want(n.Namespace) {
			all = append(all, n)
		}
	}
	// Each part before those that continue it, as deleteParts needs them.
	slices.SortFunc(all, func(a, b *index.Node) int { return a.P0 - b.P0 })
	var damaged *job
	if c.o.Dir != "" && c.diskErr == nil {
		damaged = c.addJob(&job{kind: clearQuarantine, want: want})
	}
	if parts, err = c.deleteParts(ctx, all); damaged != nil {
		err = errors.Join(err, c.wait(ctx, damaged))
	}
	return parts, err
}

// deleteParts removes parts, each after those that continue it, which are behind it in the list. The lock is held;
// deleteParts unlocks it and waits for the files.
func (c *Cache) deleteParts(ctx context.Context, all []*index.Node) (parts int, err error) {
	var bufs []*Buffer
	var jobs []*job
	for _, n := range slices.Backward(all) {
		var j *job
		if bufs, j = c.removePart(of(n), bufs); j != nil {
			jobs = append(jobs, j)
		}
	}
	c.check()
	c.mu.Unlock()
	release(bufs)
	for _, j := range jobs {
		err = errors.Join(err, c.wait(ctx, j))
	}
	return len(all), err
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
