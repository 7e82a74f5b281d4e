package daemon

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
)

// kvDo carries out q on behalf of uid. If drop is not nil, the caller runs stores.Drop(drop, done) on another goroutine
// before it answers with done.
func (l *loop) kvDo(q wire.KVQuestion, uid uint32) (done *reports.KVDone, drop *tiers.Drop, err error) {
	operator, all := l.cfg.Privileged(uid), q.Target == "all"
	targets := l.kvTargets(q.Target, uid, operator)
	switch {
	case all:
	case len(targets) == 0:
		done, drop, err = l.stores.Do(q, uid, operator)
		if done == nil && err == nil {
			err = fmt.Errorf("nothing cached or stored is named %q; `uma-cli kv` lists the names "+
				"(a running request's cells cannot be dropped, cancel it)", q.Target)
		}
		return done, drop, err
	case len(targets) > 1:
		return nil, nil, fmt.Errorf("%q names %d cached prefixes; write more of the hash", q.Target, len(targets))
	}
	if q.Op == wire.KVDrop {
		drop = l.stores.NewDrop(uid, all, operator)
	}
	done = &reports.KVDone{Op: q.Op.String(), Target: q.Target}
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
		if e.Running || e.NS != uint64(uid) && !operator {
			continue
		}
		if target == "all" || len(target) >= tiers.MinHash && strings.HasPrefix(e.Hash, target) ||
			strconv.FormatUint(e.ID, 10) == target {
			targets = append(targets, e)
		}
	}
	return targets
}

// kvApply carries out an operation on a prefix in the pool. A drop adds the prefix's copies outside the pool to drop.
func (l *loop) kvApply(op wire.KVOp, e *kvsnap.Entry, drop *tiers.Drop) error {
	switch op {
	case wire.KVDrop:
		tokens, _ := l.core.Tree().Tokens(e.ID)
		if err := l.core.Drop(e.ID); err != nil {
			return err
		}
		l.stores.DropPrefix(drop, e.NS, tokens[:e.Tokens])
	case wire.KVPin:
		return l.core.Pin(e.ID)
	case wire.KVUnpin:
		return l.core.Unpin(e.ID)
	case wire.KVSave:
		key, err := l.stores.Save(e.ID)
		if err != nil {
			return err
		}
		l.stores.Persist(key)
	}
	return nil
}

// kvDoneText returns a sentence about the operation on the prefixes that done counts. failed is the error of others, or
// nil.
func (l *loop) kvDoneText(op wire.KVOp, done *reports.KVDone, failed error) string {
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
		text += l.stores.SavedWhere() + "."
	}
	if failed != nil {
		text += " Others failed: " + failed.Error() + "."
	}
	return text
}
