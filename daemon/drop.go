package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/runtime"
)

const (
	// dropTimeout bounds how long a drop waits for a disk or a fabric.
	dropTimeout = time.Minute
	// maxDrops bounds the drops at one time: each has a goroutine.
	maxDrops = 4
)

// copies is what a drop leaves to be done beside the loop: what lies outside of the pool.
type copies struct {
	uid       uint32
	all       bool // everything of uid
	everybody bool // uid may drop what others own
	files     []func(context.Context) error
	parts     int
	keys      []string      // on the fabric
	part      *snapshot.Key // a stored part, with what goes on from it
	partP0    int
}

// newCopies begins a drop. With all, it takes the names of all that this process has on the fabric.
func (s *stores) newCopies(uid uint32, all, everybody bool) *copies {
	if s.cache == nil {
		return nil
	}
	c := &copies{uid: uid, all: all, everybody: everybody}
	if all && s.remote != nil {
		for key, ns := range s.remote.sent {
			if everybody || ns == uid {
				c.keys = append(c.keys, key)
				delete(s.remote.sent, key)
			}
		}
	}
	return c
}

// dropPrefix takes the copies of a prefix that has just left the pool, but for what others begin with too.
func (s *stores) dropPrefix(c *copies, ns uint32, tokens []runtime.Token) {
	if c == nil {
		return
	}
	n, gone := s.cache.DeletePrefix(snapshot.Namespace(ns), tokens)
	c.parts += n
	c.files = append(c.files, gone)
	if s.remote == nil {
		return
	}
	keep := 0
	if !c.all {
		keep = s.l.core.Tree().Lookup(&kvsnap.Prompt{NS: ns, Tokens: append(tokens[:len(tokens):len(tokens)], 0), NoWait: true}).Len
		if m, ok := s.cache.Peek(snapshot.Namespace(ns), tokens); ok {
			keep = max(keep, m.Tokens)
		}
	}
	from := len(c.keys)
	c.keys = s.remote.keys(c.keys, ns, tokens, keep)
	for _, key := range c.keys[from:] {
		delete(s.remote.sent, key)
	}
}

// drop removes copies, says in done how many they were, and returns when they are gone. It runs beside the loop.
func (s *stores) drop(c *copies, done *wire.KVDone) error {
	if s.dropping.Add(1) > maxDrops {
		s.dropping.Add(-1)
		return fmt.Errorf("%d drops are under way; the pool is emptied, ask again for the copies outside of it", maxDrops)
	}
	defer s.dropping.Add(-1)
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	keys := map[string]struct{}{}
	for _, k := range c.keys {
		keys[k] = struct{}{}
	}
	mine := func(ns snapshot.Namespace) bool { return c.everybody || uint32(ns) == c.uid }
	if s.remote != nil && (c.all || c.part != nil) {
		// What an earlier process has pushed is known by what it has stored.
		s.cache.Sequences(func(ns snapshot.Namespace, part snapshot.Key) bool {
			return mine(ns) && (c.part == nil || part == *c.part)
		}, func(ns snapshot.Namespace, tokens []runtime.Token) {
			for _, k := range s.remote.keys(nil, uint32(ns), tokens, c.partP0) {
				keys[k] = struct{}{}
			}
		})
	}
	var errs []error
	for _, gone := range c.files {
		errs = append(errs, gone(ctx))
	}
	if c.part != nil {
		n, err := s.cache.Delete(ctx, *c.part)
		if errors.Is(err, snapshot.ErrNotFound) {
			err = nil // it went by itself
		}
		c.parts, errs = c.parts+n, append(errs, err)
	}
	if c.all {
		spaces := map[snapshot.Namespace]bool{snapshot.Namespace(c.uid): true}
		for _, i := range s.cache.List() {
			spaces[i.Namespace] = mine(i.Namespace)
		}
		for ns, ok := range spaces {
			if ok {
				n, err := s.cache.DeleteNamespace(ctx, ns)
				c.parts, errs = c.parts+n, append(errs, err)
			}
		}
	}
	removed := 0
	if s.remote != nil {
		n, err := s.remote.out.Delete(ctx, slices.Sorted(maps.Keys(keys)))
		if err != nil {
			err = fmt.Errorf("%d of %d pieces are left on the fabric, until they expire: %w", len(keys)-n, len(keys), err)
		}
		removed, errs = n, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s Not all copies are gone: %w", done.Text, err)
	}
	if c.parts > 0 {
		done.Text += fmt.Sprintf(" %d stored parts went with it.", c.parts)
	}
	if removed > 0 {
		done.Text += fmt.Sprintf(" %d pieces were removed from the fabric.", removed)
	}
	return nil
}
