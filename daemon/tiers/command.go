package tiers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
)

// The operations of `uma-cli kv`: drop, pin, unpin and save cached prefixes in the pool, or stored parts in memory and
// on disk. A target is "all", the name that kv lists (the start of a hash, at least MinHash characters), or a number.

// MinHash is the minimum length of a hash prefix that names a target.
const MinHash = 4

// Do carries out q on the stored part whose name begins with the target. done is nil if no part of uid has this name;
// an operator names parts of all users.
func (s *Stores) Do(q wire.KVQuestion, uid uint32, operator bool) (done *reports.KVDone, drop *Drop, err error) {
	if s.Cache == nil || len(q.Target) < MinHash {
		return nil, nil, nil
	}
	var found []snapshot.Info
	for _, i := range s.Cache.List() {
		if (operator || i.Namespace == snapshot.Namespace(uid)) && strings.HasPrefix(report.StoredName(&i), q.Target) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil, nil
	case 1:
	default:
		return nil, nil, fmt.Errorf("%q names %d stored prefixes; write more of the hash", q.Target, len(found))
	}
	part, what := &found[0], ""
	switch q.Op {
	case wire.KVDrop:
		drop, what = s.NewDrop(uid, false, operator), "dropped, with the parts that continue it"
		drop.part, drop.partP0 = &part.Key, part.P0
		if part.Named {
			name, of := part.Name, uint64(part.Namespace)
			drop.views = func(hash [32]byte, ns uint64) bool { return hash == name && ns == of }
		}
		if s.Remote != nil && !part.Named {
			s.Remote.Offers.end(func(o *offer) bool { return o.ns == uint64(part.Namespace) })
			s.Remote.Offers.Lose() // the values that remain are offered from the pool
		}
	case wire.KVPin:
		what, err = "pinned, with the parts before it; not evicted", s.Cache.Pin(part.Key, true)
	case wire.KVUnpin:
		what, err = "unpinned; may be evicted", s.Cache.Pin(part.Key, false)
	case wire.KVSave:
		what = s.SavedWhere()
		s.Persist(part.Key)
	}
	if err != nil {
		return nil, nil, err
	}
	tokens, noun := part.P1-part.P0, "The embeddings of an image or a sound"
	if part.Named {
		tokens = 0
	} else {
		noun = fmt.Sprintf("A stored part of %d tokens", tokens)
	}
	return &reports.KVDone{
		Op: q.Op.String(), Target: q.Target, Done: 1, Tokens: tokens, Bytes: part.Bytes,
		Text: fmt.Sprintf("%s: %s.", noun, what),
	}, drop, nil
}

// Persist writes a saved prefix to disk on another goroutine.
func (s *Stores) Persist(key snapshot.Key) {
	if s.Cache.DiskError() != nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Cache.Save(ctx, key); err != nil && !errors.Is(err, snapshot.ErrClosed) {
			s.o.Log.Warn("kv save", "error", err)
		}
	}()
}

// SavedWhere names the store of a saved prefix.
func (s *Stores) SavedWhere() string {
	switch {
	case s.Cache == nil:
		return "not stored (--cache-ram 0)"
	case s.Cache.DiskError() == nil:
		return "copied to memory and queued for the disk"
	case s.o.Config.CacheDir == "":
		return "copied to memory (start uma-serve with --cache-dir to keep them on disk)"
	}
	return "copied to memory, not to disk: " + s.Cache.DiskError().Error()
}
