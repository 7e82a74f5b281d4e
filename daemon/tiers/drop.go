package tiers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/runtime"
)

const (
	dropTimeout = time.Minute // for the disk and the fabric, per drop
	maxDrops    = 4           // at the same time; each has a goroutine
)

// Drop is the slow part of `kv drop`: it deletes the copies outside the pool, on a goroutine other than the loop's.
type Drop struct {
	uid      uint32
	all      bool // all copies of uid, of other models too
	operator bool // uid may drop the copies of all users
	deletes  []func(context.Context) error
	parts    int                                 // stored parts removed so far
	keys     []string                            // on the fabric
	thoughts []string                            // parts of thoughts in this process's memory
	part     *snapshot.Key                       // a stored part, deleted with the parts that continue it
	partP0   int                                 // its first position
	views    func(hash [32]byte, ns uint64) bool // of images, in the engine's memory; nil: none
}

// NewDrop begins a drop. With all it takes every key that this process has on the fabric and that uid may drop.
func (s *Stores) NewDrop(uid uint32, all, operator bool) *Drop {
	if s.Cache == nil {
		return nil
	}
	d := &Drop{uid: uid, all: all, operator: operator}
	if !all {
		return d
	}
	d.views = ofUser(uid, operator)
	if s.Remote != nil {
		d.keys = s.Remote.Pieces.Keys(d.may)
		s.Remote.Pieces.Forget(d.keys...)
		s.Remote.Offers.end(func(o *offer) bool { return d.may(o.ns) })
	}
	if s.Thoughts != nil && s.Thoughts != s.Remote {
		d.thoughts = s.Thoughts.Pieces.Keys(d.may)
		s.Thoughts.Pieces.Forget(d.thoughts...)
	}
	return d
}

// DropPrefix adds the copies of a prefix that has just left the pool, except the parts that it shares with another
// prefix.
func (s *Stores) DropPrefix(d *Drop, ns uint64, tokens []runtime.Token) {
	if d == nil {
		return
	}
	n, del := s.Cache.DeletePrefix(snapshot.Namespace(ns), tokens)
	d.parts += n
	d.deletes = append(d.deletes, del)
	if s.Remote == nil {
		return
	}
	shared := 0
	if !d.all {
		longer := append(tokens[:len(tokens):len(tokens)], 0)
		shared = s.o.Loop.Core().Tree().Lookup(&kvsnap.Prompt{NS: ns, Tokens: longer, NoWait: true}).Len
		if m, ok := s.Cache.Peek(snapshot.Namespace(ns), tokens); ok {
			shared = max(shared, m.Tokens)
		}
	}
	from := len(d.keys)
	d.keys = s.Remote.Keys(d.keys, ns, tokens, shared)
	s.Remote.Pieces.Forget(d.keys[from:]...)
	s.Remote.Offers.end(func(o *offer) bool { return o.ns == ns && kvsnap.CommonPrefix(o.tokens, tokens) > shared })
	s.Remote.Offers.Lose() // the values that remain are offered from the pool
}

// Drop deletes d's copies and adds their number to done. It runs on a goroutine other than the loop's.
func (s *Stores) Drop(d *Drop, done *reports.KVDone) error {
	if s.dropping.Add(1) > maxDrops {
		s.dropping.Add(-1)
		return fmt.Errorf("%d drops are running; the cells in the pool are dropped, repeat the command for the "+
			"copies outside it",
			maxDrops)
	}
	defer s.dropping.Add(-1)
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	keys, thoughts := s.fabricKeys(d), 0
	errs := []error{s.dropStored(ctx, d)}
	s.forgetViews(d.views) // now: before, a request could have loaded one from its file
	removed := 0
	if s.Remote != nil {
		s.Remote.Pieces.Forget(keys...)
		n, err := s.Remote.Out.Delete(ctx, keys)
		if err != nil {
			err = fmt.Errorf("%d of %d pieces remain on the fabric until they expire: %w", len(keys)-n, len(keys), err)
		}
		removed, errs = n, append(errs, err)
	}
	if len(d.thoughts) > 0 {
		var err error
		thoughts, err = s.Thoughts.Out.Delete(ctx, d.thoughts)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s Some copies remain: %w", done.Text, err)
	}
	if d.parts > 0 {
		done.Text += fmt.Sprintf(" %d stored parts were dropped with it.", d.parts)
	}
	if removed > 0 {
		done.Text += fmt.Sprintf(" %d pieces were removed from the fabric.", removed)
	}
	if thoughts > 0 {
		done.Text += fmt.Sprintf(" %d parts of thoughts were dropped from memory.", thoughts)
	}
	return nil
}

// mine reports whether d may drop the copies of a namespace.
func (d *Drop) mine(ns snapshot.Namespace) bool { return d.may(uint64(ns)) }

func (d *Drop) may(ns uint64) bool { return d.operator || ns == uint64(d.uid) }

// fabricKeys returns d's keys on the fabric, sorted. The stored parts name those that an earlier process pushed.
func (s *Stores) fabricKeys(d *Drop) []string {
	keys := map[string]struct{}{}
	for _, k := range d.keys {
		keys[k] = struct{}{}
	}
	if s.Remote != nil && (d.all || d.part != nil) {
		s.Cache.Sequences(func(ns snapshot.Namespace, part snapshot.Key) bool {
			return d.mine(ns) && (d.part == nil || part == *d.part)
		}, func(ns snapshot.Namespace, tokens []runtime.Token) {
			for _, k := range s.Remote.Keys(nil, uint64(ns), tokens, d.partP0) {
				keys[k] = struct{}{}
			}
		})
	}
	return slices.Sorted(maps.Keys(keys))
}

// dropStored deletes d's parts in memory and on disk.
func (s *Stores) dropStored(ctx context.Context, d *Drop) error {
	var errs []error
	for _, del := range d.deletes {
		errs = append(errs, del(ctx))
	}
	if d.part != nil {
		n, err := s.Cache.Delete(ctx, *d.part)
		if errors.Is(err, snapshot.ErrNotFound) {
			err = nil // evicted meanwhile
		}
		d.parts, errs = d.parts+n, append(errs, err)
	}
	if d.all {
		n, err := s.Cache.DeleteNamespaces(ctx, d.mine)
		d.parts, errs = d.parts+n, append(errs, err)
	}
	return errors.Join(errs...)
}
