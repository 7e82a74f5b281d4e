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
