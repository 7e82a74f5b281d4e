package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
)

// The operations of `uma-cli kv`: drop, pin, unpin and save cached prefixes in the pool, or stored parts in memory and
// on disk. A target is "all", the name that kv lists (the start of a hash, at least minHash characters), or a number.

// minHash is the minimum length of a hash prefix that names a target.
const minHash = 4

// kvDo carries out q on behalf of uid. If drop is not nil, the caller runs stores.drop(drop, done) on another goroutine
// before it answers with done.
func (l *loop) kvDo(q wire.KVQuestion, uid uint32) (done *wire.KVDone, drop *dropJob, err error) {
	operator, all := l.cfg.Privileged(uid), q.Target == "all"
	targets := l.kvTargets(q.Target, uid, operator)
	switch {
	case all:
	case len(targets) == 0:
		done, drop, err = l.stores.kvDo(q, uid, operator)
		if done == nil && err == nil {
			err = fmt.Errorf("nothing cached or stored is named %q; `uma-cli kv` lists the names "+
				"(a running request's cells cannot be dropped, cancel it)", q.Target)
		}
		return done, drop, err
	case len(targets) > 1:
		return nil, nil, fmt.Errorf("%q names %d cached prefixes; write more of the hash", q.Target, len(targets))
	}
	if q.Op == wire.KVDrop {
		drop = l.stores.newDrop(uid, all, operator)
	}
	done = &wire.KVDone{Op: q.Op.String(), Target: q.Target}
	var failed error // the last error
	for i := range targets {
		e := &targets[i]
		if err := l.kvApply(q.Op, e, drop); err != nil {
			failed = err
			continue
		}
		done.Done++
		done.Tokens += e.Tokens
		done.Bytes += int64(e.Tokens) * int64(l.cellBytes)
	}
	if failed != nil && done.Done == 0 {
		return nil, nil, failed
	}
	done.Text = l.kvDoneText(q.Op, done, failed)
	return done, drop, nil
}

// kvTargets returns the idle prefixes in the pool that target names, of uid or, for an operator, of all users.
func (l *loop) kvTargets(target string, uid uint32, operator bool) (targets []kvsnap.Entry) {
	for _, e := range l.core.Tree().Entries(nil) {
		if e.Running || e.NS != uid && !operator {
			continue
		}
		if target == "all" || len(target) >= minHash && strings.HasPrefix(e.Hash, target) ||
			strconv.FormatUint(e.ID, 10) == target {
			targets = append(targets, e)
		}
	}
	return targets
}

// kvApply carries out an operation on a prefix in the pool. A drop adds the prefix's copies outside the pool to drop.
func (l *loop) kvApply(op wire.KVOp, e *kvsnap.Entry, drop *dropJob) error {
	switch op {
	case wire.KVDrop:
		tokens, _ := l.core.Tree().Tokens(e.ID)
		if err := l.core.Drop(e.ID); err != nil {
			return err
		}
		l.stores.dropPrefix(drop, e.NS, tokens[:e.Tokens])
	case wire.KVPin:
		return l.core.Pin(e.ID)
	case wire.KVUnpin:
		return l.core.Unpin(e.ID)
	case wire.KVSave:
		key, err := l.stores.save(e.ID)
		if err != nil {
			return err
		}
		l.stores.persist(key)
	}
	return nil
}

// kvDoneText returns a sentence about the operation on the prefixes that done counts. failed is the error of others, or
// nil.
func (l *loop) kvDoneText(op wire.KVOp, done *wire.KVDone, failed error) string {
	noun := "prefixes"
	if done.Done == 1 {
		noun = "prefix"
	}
	text := fmt.Sprintf("%d cached %s, %d tokens: ", done.Done, noun, done.Tokens)
	switch op {
	case wire.KVDrop:
		text += "dropped."
	case wire.KVPin:
		text += "pinned; not evicted."
	case wire.KVUnpin:
		text += "unpinned; may be evicted."
	case wire.KVSave:
		text += l.stores.savedWhere() + "."
	}
	if failed != nil {
		text += " Others failed: " + failed.Error() + "."
	}
	return text
}

// kvDo carries out q on the stored part whose name begins with the target. done is nil if no part of uid has this name;
// an operator names parts of all users.
func (s *stores) kvDo(q wire.KVQuestion, uid uint32, operator bool) (done *wire.KVDone, drop *dropJob, err error) {
	if s.cache == nil || len(q.Target) < minHash {
		return nil, nil, nil
	}
	var found []snapshot.Info
	for _, i := range s.cache.List() {
		if (operator || uint32(i.Namespace) == uid) && strings.HasPrefix(report.StoredName(&i), q.Target) {
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
		drop, what = s.newDrop(uid, false, operator), "dropped, with the parts that continue it"
		drop.part, drop.partP0 = &part.Key, part.P0
		if s.remote != nil {
			s.remote.offers.end(func(o *offer) bool { return o.ns == uint32(part.Namespace) })
			s.remote.offers.lose() // the values that remain are offered from the pool
		}
	case wire.KVPin:
		what, err = "pinned, with the parts before it; not evicted", s.cache.Pin(part.Key, true)
	case wire.KVUnpin:
		what, err = "unpinned; may be evicted", s.cache.Pin(part.Key, false)
	case wire.KVSave:
		what = s.savedWhere()
		s.persist(part.Key)
	}
	if err != nil {
		return nil, nil, err
	}
	tokens := part.P1 - part.P0
	return &wire.KVDone{
		Op: q.Op.String(), Target: q.Target, Done: 1, Tokens: tokens, Bytes: part.Bytes,
		Text: fmt.Sprintf("A stored part of %d tokens: %s.", tokens, what),
	}, drop, nil
}

// persist writes a saved prefix to disk on another goroutine.
func (s *stores) persist(key snapshot.Key) {
	if s.cache.DiskError() != nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.cache.Save(ctx, key); err != nil && !errors.Is(err, snapshot.ErrClosed) {
			s.l.log.Warn("kv save", "error", err)
		}
	}()
}

// savedWhere names the store of a saved prefix.
func (s *stores) savedWhere() string {
	switch {
	case s.cache == nil:
		return "not stored (--cache-ram 0)"
	case s.cache.DiskError() == nil:
		return "copied to memory and queued for the disk"
	case s.l.cfg.CacheDir == "":
		return "copied to memory (start uma-serve with --cache-dir to keep them on disk)"
	}
	return "copied to memory, not to disk: " + s.cache.DiskError().Error()
}
