package constrain

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// A compilation can take seconds, and all users share the intake goroutine. A request whose grammar is not compiled
// therefore waits while a builder goroutine compiles it: one build of each user at a time, users in turn. After the
// build the request goes through intake again.

// builders is the number of builds that run at once.
const builders = 2

// Waiter is the part of a request that waits for its grammars. The caller makes one for each request and passes it to
// each Get; the cache owns it while the request waits.
type Waiter struct {
	Owner uint32        // user
	Job   any           // the caller's; Get drops it when the request waits no longer
	Since time.Time     // the beginning of its first wait; zero: it did not wait
	Took  time.Duration // all of its waits together

	begun time.Time   // the beginning of the newest wait
	built []*compiled // results of the builds that it waited for
}

// buildQueue is one user's builds, in the order of arrival.
type buildQueue struct {
	owner  uint32
	busy   bool // builds[0] runs
	builds []*build
}

// build compiles one grammar for one user. Invariant: waiters is empty only if the build runs and stop is set.
type build struct {
	*Source
	waiters []*Waiter
	stop    atomic.Bool
}

// enqueue adds w to the build of src. The caller holds c.mu.
func (c *Cache) enqueue(src *Source, w *Waiter) {
	w.begun = c.now()
	if w.Since.IsZero() {
		w.Since = w.begun
	}
	c.count(+1)
	u := c.users[w.Owner]
	if u == nil {
		u = &buildQueue{owner: w.Owner}
		c.users[u.owner] = u
		c.turns = append(c.turns, u)
	}
	for _, o := range u.builds {
		if o.Key == src.Key && !o.stop.Load() {
			o.waiters = append(o.waiters, w)
			return
		}
	}
	u.builds = append(u.builds, &build{Source: src, waiters: []*Waiter{w}})
	c.dispatch()
}

func (c *Cache) count(n int) {
	c.waiting += n
	c.metrics.GrammarCompiling.Set(int64(c.waiting))
}

// dispatch starts the next builds in turn. The caller holds c.mu.
func (c *Cache) dispatch() {
	for c.running < builders && len(c.turns) > 0 {
		u := c.turns[0]
		c.turns = slices.Delete(c.turns, 0, 1)
		u.busy = true
		c.running++
		b := u.builds[0]
		// not nil: compiled for another user since, or the user's spending is too high
		of := c.known(b.Source, u.owner)
		c.builders.Go(func() { c.build(u, b, of) })
	}
}

// build compiles b, unless its result of is known, and gives its waiters back. It runs in a builder goroutine.
func (c *Cache) build(u *buildQueue, b *build, of *compiled) {
	fresh := of == nil
	if fresh {
		of = c.run(u.owner, b)
	}
	c.mu.Lock()
	if fresh {
		c.charge(u.owner, of.took)
	}
	if fresh && !b.stop.Load() {
		c.keep(of)
	}
	list, now := b.waiters, c.now()
	b.waiters = nil
	c.count(-len(list))
	for _, w := range list {
		w.Took += now.Sub(w.begun)
		w.built = append(w.built, of)
	}
	c.running--
	u.busy = false
	if c.drop(u, b); len(u.builds) > 0 {
		c.turns = append(c.turns, u)
	}
	c.dispatch()
	c.mu.Unlock()
	if len(list) > 0 {
		c.back(list)
	}
}

// run compiles b for owner.
func (c *Cache) run(owner uint32, b *build) *compiled {
	c.mu.Lock()
	before := c.before
	c.mu.Unlock()
	of := &compiled{key: b.Key, owner: owner, vocab: c.vocabulary()}
	limits := limits
	limits.Stop = b.stop.Load
	began := c.now()
	if before != nil {
		before(b.Key, limits.Stop)
	}
	g, free, err := b.compile(limits)
	if of.took = c.now().Sub(began); err != nil {
		of.bad = wire.Errorf(wire.BadRequest, "%s: %v", b.Field, err)
		of.bytes.Store(int64(len(of.bad.Message)))
	} else {
		of.grammar, of.free = g, free
		of.bytes.Store(int64(g.Bytes()))
	}
	c.metrics.GrammarCompile.Observe(of.took)
	return of
}

// BeforeBuild has f called in the builder goroutine before each build, for tests: with Source.Key, and a function that
// reports whether the build is to stop.
func (c *Cache) BeforeBuild(f func(key [32]byte, stop func() bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = f
}

// drop removes b from u. The caller holds c.mu.
func (c *Cache) drop(u *buildQueue, b *build) {
	u.builds = slices.DeleteFunc(u.builds, func(o *build) bool { return o == b })
	if len(u.builds) == 0 && !u.busy {
		delete(c.users, u.owner)
		c.turns = slices.DeleteFunc(c.turns, func(o *buildQueue) bool { return o == u })
	}
}

// Withdraw removes a cancelled request of owner, and stops its build if no other request waits for it. It returns false
// if w does not wait.
func (c *Cache) Withdraw(owner uint32, w *Waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[owner]
	if u == nil {
		return false
	}
	for i, b := range u.builds {
		at := slices.Index(b.waiters, w)
		if at < 0 {
			continue
		}
		b.waiters = slices.Delete(b.waiters, at, at+1)
		c.count(-1)
		switch {
		case len(b.waiters) > 0:
		case u.busy && i == 0:
			b.stop.Store(true)
		default:
			c.drop(u, b)
		}
		return true
	}
	return false
}

// Close stops all builds, refuses new ones with e and returns the requests that wait.
func (c *Cache) Close(e *wire.Error) (list []*Waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = e
	for _, u := range c.users {
		for _, b := range slices.Clone(u.builds) {
			list = append(list, b.waiters...)
			b.waiters = nil
			if b.stop.Store(true); !u.busy || b != u.builds[0] {
				c.drop(u, b)
			}
		}
	}
	c.count(-len(list))
	return list
}

// Wait returns when the builder goroutines have ended, after Close.
func (c *Cache) Wait() { c.builders.Wait() }

// EachWaiting calls f for each request that waits, with what it waits for, whether that is being compiled, and since
// when it waits. f must not call c.
func (c *Cache) EachWaiting(f func(w *Waiter, src *Source, runs bool, since time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.users {
		for i, b := range u.builds {
			for _, w := range b.waiters {
				f(w, b.Source, u.busy && i == 0, w.begun)
			}
		}
	}
}
