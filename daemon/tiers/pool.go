package tiers

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/sched/price"
)

// What kv tells of the pool and does with prefixes in it.

// Command carries out q on behalf of uid. If drop is not nil, the caller runs Drop(drop, done) on another goroutine
// before it answers with done.
func (s *Stores) Command(q wire.KVQuestion, uid uint32) (done *reports.KVDone, drop *Drop, err error) {
	operator, all := s.o.Config.Privileged(uid), q.Target == "all"
	targets := s.targets(q.Target, uid, operator)
	switch {
	case all:
	case len(targets) == 0:
		done, drop, err = s.Do(q, uid, operator)
		if done == nil && err == nil {
			err = fmt.Errorf("nothing cached or stored is named %q; `uma-cli kv` lists the names "+
				"(a running request's cells cannot be dropped, cancel it)", q.Target)
		}
		return done, drop, err
	case len(targets) > 1:
		return nil, nil, fmt.Errorf("%q names %d cached prefixes; write more of the hash", q.Target, len(targets))
	}
	if q.Op == wire.KVDrop {
		if drop = s.NewDrop(uid, all, operator); all {
			s.forgetViews(ofUser(uid, operator))
		}
	}
	done = &reports.KVDone{Op: q.Op.String(), Target: q.Target}
	var failed error // the last error
	for i := range targets {
		e := &targets[i]
		if err := s.apply(q.Op, e, drop); err != nil {
			failed = err
			continue
		}
		done.Done++
		done.Tokens += e.Tokens
		done.Bytes += int64(e.Tokens) * int64(s.o.Info.KVBytesPerToken)
	}
	if failed != nil && done.Done == 0 {
		return nil, nil, failed
	}
	done.Text = s.doneText(q.Op, done, failed)
	return done, drop, nil
}

// targets returns the idle prefixes in the pool that target names, of uid or, for an operator, of all users.
func (s *Stores) targets(target string, uid uint32, operator bool) (targets []kvsnap.Entry) {
	for _, e := range s.o.Loop.Core().Tree().Entries(nil) {
		if e.Running || e.NS != uint64(uid) && !operator {
			continue
		}
		if target == "all" || len(target) >= MinHash && strings.HasPrefix(e.Hash, target) ||
			strconv.FormatUint(e.ID, 10) == target {
			targets = append(targets, e)
		}
	}
	return targets
}

// apply carries out an operation on a prefix in the pool. A drop adds the prefix's copies outside the pool to drop.
func (s *Stores) apply(op wire.KVOp, e *kvsnap.Entry, drop *Drop) error {
	switch op {
	case wire.KVDrop:
		tokens, _ := s.o.Loop.Core().Tree().Tokens(e.ID)
		if err := s.o.Loop.Core().Drop(e.ID); err != nil {
			return err
		}
		s.DropPrefix(drop, e.NS, tokens[:e.Tokens])
	case wire.KVPin:
		return s.o.Loop.Core().Pin(e.ID)
	case wire.KVUnpin:
		return s.o.Loop.Core().Unpin(e.ID)
	case wire.KVSave:
		key, err := s.Save(e.ID)
		if err != nil {
			return err
		}
		s.Persist(key)
	}
	return nil
}

// doneText returns a sentence about the operation on the prefixes that done counts. failed is the error of others, or
// nil.
func (s *Stores) doneText(op wire.KVOp, done *reports.KVDone, failed error) string {
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
		text += s.SavedWhere() + "."
	}
	if failed != nil {
		text += " Others failed: " + failed.Error() + "."
	}
	return text
}

// Report reports the cells, the tiers and the cached prefixes: uid's, or those of all users for an operator. at is the
// core's instant of now; running returns the client's name of a running request, and the class of its cells.
func (s *Stores) Report(tree bool, uid uint32, now time.Time, at core.Instant,
	running func(core.ID) (name, class string)) *reports.KVReport {
	c := s.o.Loop.Core()
	pool := report.Pool{Cells: c.Tree().Cells(), Total: c.Scheduler().Config().Cells,
		CellBytes: s.o.Info.KVBytesPerToken, BlockTokens: s.o.Config.KVBlockTokens, SeqsMax: s.o.caps.MaxSequences,
		Stats: c.Tree().Stats()}
	rep := report.KV(&pool, s.Tiers())
	if s.Cache != nil {
		rep.Snapshots = s.Cache.Stats().Snapshots
	}
	all := s.o.Config.Privileged(uid)
	for _, e := range c.Tree().Entries(nil) {
		if e.NS != uint64(uid) && !all {
			continue
		}
		w := pool.Prefix(&e, kvsnap.Instant(at))
		if name, class := running(core.ID(e.Req)); e.Running && class != "" {
			w.Request, w.Class = name, class
		}
		rep.Entries = append(rep.Entries, w)
	}
	rep.Entries = append(rep.Entries, s.Entries(uid, all, now)...)
	if tree && all {
		rep.Tree = c.Tree().Dump()
	} else if tree {
		rep.Tree = "(only root and the server's user may see the tree: it shows the prefixes of all users)"
	}
	return rep
}

// shownTokens are the lengths of prompts whose prices info shows, where the context has room for them.
var shownTokens = [...]int{1024, 8192}

// Prices returns for info what a prompt costs from each tier and computed.
func (s *Stores) Prices() (all []reports.InfoPrice) {
	for _, tier := range []core.Tier{core.Host, core.Disk, core.Fabric} {
		last := 0
		for _, n := range shownTokens {
			n = min(n, s.o.caps.ContextTokens)
			if p, ok := s.o.Loop.Core().Weigh(tier, n); ok && n > last {
				all = append(all, reports.InfoPrice{Tier: Wire[tier], Tokens: n, RestoreMs: wire.Ms(p.Restore),
					ComputeMs: wire.Ms(p.Compute), Used: p.Way == price.WayRestore})
				last = n
			}
		}
	}
	return all
}
