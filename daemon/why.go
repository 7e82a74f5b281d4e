package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// The answers to why and kv: what the decode loop knows of a request's life and of the KV cells. Only the loop may look
// at that, so it answers between two steps.

// ask has fn run by the decode loop, which then answers on c.
func (s *Server) ask(c *ipc.Conn, id string, fn func(l *loop, now time.Time) []byte) {
	l := s.loop.Load()
	if l == nil || !l.mail.put(command{kind: cmdAsk, ask: func(l *loop, now time.Time) {
		if frame := fn(l, now); frame != nil { // nil: it answers later
			reply(c, frame)
		}
	}}) {
		e := s.stillLoading()
		if s.draining.Load() {
			e = shuttingDown()
		}
		e.ID = id
		c.Reply(wire.AppendError(nil, e))
	}
}

// reply sends an answer as the connection's protocol has it.
func reply(c *ipc.Conn, frame []byte) {
	if c.Protocol() == wire.Newline {
		c.Reply(append(frame[4:], '\n'))
		return
	}
	c.Reply(frame)
}

// past is what is remembered of a request that has ended.
type past struct {
	id     sched.ReqID
	wireID string
	owner  uint32
	class  sched.Class
	ended  string
	at     time.Time // its arrival
	took   time.Duration
	ttft   time.Duration
	form   *wire.WhyForm
	usage  wire.WhyUsage
	force  meridian.Force // Reason NoReason: its thinking was not ended by force
	calls  []malformedCall
}

// remember keeps r's summary for why.
func (l *loop) remember(r *request, how string, now time.Time) {
	l.past[l.pastNext%len(l.past)] = past{
		id: r.ID, wireID: r.wireID, owner: r.Owner, class: r.Class, ended: how, at: r.arrived, took: now.Sub(r.arrived),
		ttft: r.timings().TTFT, usage: r.whyUsage(), form: r.form.why(), force: r.ctl.LastForce(), calls: r.malformed,
	}
	l.pastNext++
}

func (r *request) whyUsage() wire.WhyUsage {
	return wire.WhyUsage{
		PromptTokens: r.Prompt, CachedTokens: r.cached, CacheTier: r.tier.String(), CacheMiss: r.miss,
		CompletionTokens: r.Generated(), ThinkTokens: r.ctl.ThinkTokens(),
	}
}

// why answers a why question: newest request first, only the asker's own unless the asker is root or the server's user.
func (l *loop) why(q wire.WhyQuestion, uid uint32, now time.Time) *wire.WhyReport {
	rep := &wire.WhyReport{Requests: []wire.WhyRequest{}}
	number, byNumber := uint64(0), false
	if rest, ok := strings.CutPrefix(q.Request, "#"); ok {
		var err error
		number, err = strconv.ParseUint(rest, 10, 64)
		byNumber = err == nil
	}
	wanted := func(id sched.ReqID, wireID string, owner uint32) bool {
		switch {
		case owner != uid && !l.cfg.privileged(uid):
			return false
		case byNumber:
			return uint64(id) == number
		}
		return q.Request == "" || wireID == q.Request
	}
	// What is told is found among what is remembered, however many requests came since: the loop has answers to write.
	for id, r := range l.requests {
		if !r.finished && wanted(id, r.wireID, r.Owner) {
			rep.Requests = append(rep.Requests, l.whyLive(r, now))
		}
	}
	for i := range l.past {
		p := &l.past[i]
		if p.id == 0 || !wanted(p.id, p.wireID, p.owner) {
			continue
		}
		w := wire.WhyRequest{
			Request: p.wireID, Number: uint64(p.id), UID: p.owner, Class: className(p.class), State: "done", Ended: p.ended,
			AgeMs: wire.Ms(now.Sub(p.at)), TookMs: wire.Ms(p.took), TTFTMs: wire.Ms(p.ttft), Usage: p.usage, Form: p.form,
		}
		l.decisions(&w, p.id, p.at, &p.force, p.calls)
		rep.Requests = append(rep.Requests, w)
	}
	slices.SortFunc(rep.Requests, func(a, b wire.WhyRequest) int { return cmp.Compare(b.Number, a.Number) })
	rep.Requests = rep.Requests[:min(len(rep.Requests), cmp.Or(q.Last, wire.MaxLast))]
	return rep
}

func (l *loop) whyLive(r *request, now time.Time) wire.WhyRequest {
	state, _, _ := l.core.Scheduler().Why(r.ID)
	w := wire.WhyRequest{
		Request: r.wireID, Number: uint64(r.ID), UID: r.Owner, Class: className(r.Class), State: r.stateName(state),
		AgeMs: wire.Ms(now.Sub(r.arrived)), TTFTMs: wire.Ms(r.timings().TTFT), Usage: r.whyUsage(), Form: r.form.why(),
	}
	f := r.ctl.LastForce()
	l.decisions(&w, r.ID, r.arrived, &f, r.malformed)
	return w
}

// forced tells why thinking was ended by force, with what was known then.
func forced(f *meridian.Force, arrived time.Duration) wire.Decision {
	at := wire.Ms(time.Duration(f.DecidedAt) - arrived)
	text := fmt.Sprintf("Its thinking was ended after %d tokens: %s", f.Tokens, f.Reason)
	if f.Probes > 0 {
		text += fmt.Sprintf(" (%d probes, entropy of the newest %.3f nats, EMA variance %.2g nats²)", f.Probes, f.X, f.Var)
	}
	return wire.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "forced_" + f.Reason.String(), Text: text + "."}
}

// decisions tells the scheduler's decisions about a request, why its thinking was ended and which calls were malformed, in
// the order of time.
func (l *loop) decisions(w *wire.WhyRequest, id sched.ReqID, arrived time.Time, f *meridian.Force, calls []malformedCall) {
	w.Decisions = []wire.Decision{}
	log, _ := l.core.Scheduler().Decisions(nil, id)
	at := func(t sched.Instant) float64 { return wire.Ms(time.Duration(t) - arrived.Sub(l.epoch)) }
	for _, d := range log {
		w.Decisions = append(w.Decisions, wire.Decision{
			AtMs: at(d.First), LastMs: at(d.Last), Times: d.Times, Reason: d.Reason.String(), Text: d.Reason.Explain(),
			Tokens: d.Tokens, Latest: d.Latest,
		})
	}
	if f.Reason != meridian.NoReason {
		w.Decisions = append(w.Decisions, forced(f, arrived.Sub(l.epoch)))
	}
	for i := range calls {
		w.Decisions = append(w.Decisions, calls[i].decision(arrived))
	}
	slices.SortStableFunc(w.Decisions, func(a, b wire.Decision) int { return cmp.Compare(a.AtMs, b.AtMs) })
}

func className(c sched.Class) string {
	if c == sched.Background {
		return "background"
	}
	return "interactive"
}

// kvReport answers a kv question: what the cache holds.
func (l *loop) kvReport(tree bool, uid uint32, now time.Time) *wire.KVReport {
	c, st := l.core.Tree().Cells(), l.core.Tree().Stats()
	rep := &wire.KVReport{
		Cells:         wire.KVCells{Total: l.caps.ContextTokens, Own: c.Own, Shared: c.Shared, Cached: c.Cached, Pinned: c.Pinned, Free: c.Free},
		BytesPerToken: int64(l.cellBytes), BlockTokens: l.cfg.KVBlockTokens, SeqsUsed: st.Entries + st.Runs, SeqsMax: l.caps.MaxSequences,
		Lookups: st.Lookups, Hits: st.Hits, CachedTokens: st.CachedTokens, Entries: []wire.KVEntry{},
	}
	if st.Lookups > 0 {
		rep.HitRatio = float64(st.Hits) / float64(st.Lookups)
	}
	held := int64(l.caps.ContextTokens - c.Free)
	rep.Tiers = append(rep.Tiers, wire.KVTier{
		Tier: wire.TierDevice, Entries: st.Entries, Tokens: held, Bytes: held * int64(l.cellBytes),
		CapBytes: int64(l.caps.ContextTokens) * int64(l.cellBytes), Hits: st.Hits, HitTokens: st.CachedTokens, Evictions: st.Evictions,
	})
	rep.Tiers = append(rep.Tiers, l.stores.tiers()...)
	if l.stores.cache != nil {
		rep.Snapshots = l.stores.cache.Stats().Snapshots
	}
	all := l.cfg.privileged(uid)
	age := func(t kvsnap.Instant) float64 { return wire.Ms(time.Duration(l.instant(now)) - time.Duration(t)) }
	for _, e := range l.core.Tree().Entries(nil) {
		if e.NS != uid && !all {
			continue
		}
		w := wire.KVEntry{
			Name: e.Hash, Kind: "prefix", Tier: wire.TierDevice, Class: blocks.Prefix.String(), Number: e.Req, UID: e.NS, Seq: int(e.Seq),
			Tokens: e.Tokens, OwnTok: e.OwnCells, Bytes: int64(e.Tokens) * int64(l.cellBytes), OwnBytes: e.OwnBytes,
			AgeMs: age(e.Created), IdleMs: age(e.Used), Hits: e.Hits, Turns: e.Turns, Pinned: e.Pinned, Hash: e.Hash, Why: e.Why,
		}
		if e.Running {
			w.Kind, w.Name = "request", "#"+strconv.FormatUint(e.Req, 10)
			if e.Req == 0 {
				w.Kind, w.Why = "restore", "is being read back"
			} else if r := l.requests[sched.ReqID(e.Req)]; r != nil {
				w.Request, w.Class = r.wireID, l.core.TierOf(&r.Request).String()
			}
		}
		rep.Entries = append(rep.Entries, w)
	}
	rep.Entries = append(rep.Entries, l.stores.entries(uid, all, now)...)
	if tree && all {
		rep.Tree = l.core.Tree().Dump()
	} else if tree {
		rep.Tree = "(the tree shows everybody's prefixes: only the server's own user may see it)"
	}
	return rep
}

// kvDo does something to cached prefixes. Where copies is not nil, they are to be dropped beside the loop (store.drop) before
// the question is answered with done.
func (l *loop) kvDo(q wire.KVQuestion, uid uint32, now time.Time) (done *wire.KVDone, copies *copies, err error) {
	done = &wire.KVDone{Op: q.Op.String(), Target: q.Target}
	all := q.Target == "all"
	var targets []kvsnap.Entry
	for _, e := range l.core.Tree().Entries(nil) {
		if e.Running || e.NS != uid && !l.cfg.privileged(uid) {
			continue
		}
		if all || strings.HasPrefix(e.Hash, q.Target) && len(q.Target) >= 4 || strconv.FormatUint(e.ID, 10) == q.Target {
			targets = append(targets, e)
		}
	}
	if len(targets) == 0 && !all {
		if stored, copies, err := l.stores.kvDo(q, uid, l.cfg.privileged(uid)); stored != nil || err != nil {
			return stored, copies, err
		}
		return nil, nil, fmt.Errorf("nothing cached or stored is named %q; `uma-cli kv` lists the names (a running request's cells cannot be dropped, cancel it)", q.Target)
	}
	if !all && len(targets) > 1 {
		return nil, nil, fmt.Errorf("%q names %d cached prefixes; write more of the hash", q.Target, len(targets))
	}
	if q.Op == wire.KVDrop {
		copies = l.stores.newCopies(uid, all, l.cfg.privileged(uid))
	}
	var last error
	for _, e := range targets {
		var err error
		switch q.Op {
		case wire.KVDrop:
			tokens, _ := l.core.Tree().Tokens(e.ID)
			if err = l.core.Drop(e.ID); err == nil {
				l.stores.dropPrefix(copies, e.NS, tokens[:e.Tokens])
			}
		case wire.KVPin:
			err = l.core.Pin(e.ID)
		case wire.KVUnpin:
			err = l.core.Unpin(e.ID)
		case wire.KVSave:
			var key snapshot.Key
			if key, err = l.stores.save(e.ID); err == nil {
				l.stores.persist(key)
			}
		}
		if err != nil {
			last = err
			continue
		}
		done.Done++
		done.Tokens += e.Tokens
		done.Bytes += int64(e.Tokens) * int64(l.cellBytes)
	}
	if last != nil && done.Done == 0 {
		return nil, nil, last
	}
	what := map[wire.KVOp]string{
		wire.KVDrop: "gone", wire.KVPin: "kept from eviction", wire.KVUnpin: "evictable again", wire.KVSave: l.stores.savedWhere(),
	}[q.Op]
	noun := "prefixes"
	if done.Done == 1 {
		noun = "prefix"
	}
	done.Text = fmt.Sprintf("%d cached %s, %d tokens: %s.", done.Done, noun, done.Tokens, what)
	if last != nil {
		done.Text += " Of others: " + last.Error() + "."
	}
	return done, copies, nil
}

// kvDo does something to a stored part: what kv shows with a hash as its name. Nil when none is meant.
func (s *stores) kvDo(q wire.KVQuestion, uid uint32, all bool) (done *wire.KVDone, copies *copies, err error) {
	if s.cache == nil || len(q.Target) < 4 {
		return nil, nil, nil
	}
	var found []snapshot.Info
	for _, i := range s.cache.List() {
		if (all || uint32(i.Namespace) == uid) && strings.HasPrefix(storedName(&i), q.Target) {
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
	i := &found[0]
	done = &wire.KVDone{Op: q.Op.String(), Target: q.Target, Done: 1, Tokens: i.P1 - i.P0, Bytes: i.Bytes}
	what := "gone, with what went on from it"
	switch q.Op {
	case wire.KVDrop:
		copies = s.newCopies(uid, false, all)
		copies.part, copies.partP0 = &i.Key, i.P0
	case wire.KVPin, wire.KVUnpin:
		what = "evictable again"
		if q.Op == wire.KVPin {
			what = "kept, with what comes before it"
		}
		if err := s.cache.Pin(i.Key, q.Op == wire.KVPin); err != nil {
			return nil, nil, err
		}
	case wire.KVSave:
		what = s.savedWhere()
		s.persist(i.Key)
	}
	done.Text = fmt.Sprintf("A stored part of %d tokens: %s.", done.Tokens, what)
	return done, copies, nil
}

// storedName is what kv calls a stored part.
func storedName(i *snapshot.Info) string { return fmt.Sprintf("%x", i.Key[:8]) }

// tiers are the stores' part of a kv report.
func (s *stores) tiers() []wire.KVTier {
	if s.cache == nil {
		return []wire.KVTier{{Tier: wire.TierHost, Off: "--cache-ram is 0"}}
	}
	st := s.cache.Stats()
	of := func(name wire.CacheTier, t *snapshot.TierStats) wire.KVTier {
		return wire.KVTier{
			Tier: name, Entries: t.Parts, Bytes: t.Bytes, CapBytes: t.Cap, Tokens: t.Bytes / int64(max(s.l.cellBytes, 1)), Hits: t.Hits,
			HitTokens: t.HitTokens, Evictions: t.Evictions, PagesIn: t.PagesIn, PagesOut: t.PagesOut, RestoreMs: t.Restores.MeanMs(),
		}
	}
	host, disk := of(wire.TierHost, &st.Host), of(wire.TierDisk, &st.Disk)
	disk.Damaged, disk.LastError = st.Quarantined, st.LastError
	host.Errors = s.refused[metrics.Host].Load()
	if disk.Off, disk.Errors = st.Disabled, st.IOErrors+s.refused[metrics.Disk].Load(); s.l.cfg.CacheDir == "" {
		disk.Off = "start uma-serve with --cache-dir to keep cells on disk"
	}
	out := []wire.KVTier{host, disk}
	if s.remote != nil {
		f, g := s.remote.out.Stats(), s.remote.guard.Stats()
		errs := s.refused[metrics.Fabric].Load() + f.PushesDropped + f.PullsDropped
		for r, n := range g.Errors {
			if fabric.Reason(r) != fabric.ReasonCorrupt {
				errs += n
			}
		}
		out = append(out, wire.KVTier{
			Tier: wire.TierFabric, Damaged: g.Errors[fabric.ReasonCorrupt], LastError: g.LastError, Paused: g.Breaker == fabric.BreakerOpen,
			PagesIn: f.BlocksIngested * uint64(s.l.cfg.KVBlockTokens), PagesOut: f.BlocksOffloaded * uint64(s.l.cfg.KVBlockTokens),
			Bytes: int64(f.BytesOffloaded), Errors: errs,
		})
	}
	return out
}

// entries are the stored parts of a kv report.
func (s *stores) entries(uid uint32, all bool, now time.Time) (out []wire.KVEntry) {
	if s.cache == nil {
		return nil
	}
	for _, i := range s.cache.List() {
		if uint32(i.Namespace) != uid && !all {
			continue
		}
		tier := wire.TierHost
		if i.HostBytes == 0 {
			tier = wire.TierDisk
		}
		hash := storedName(&i)
		out = append(out, wire.KVEntry{
			Name: hash, Kind: "snapshot", Tier: tier, Class: blocks.Prefix.String(), UID: uint32(i.Namespace), Seq: -1, From: i.P0,
			Tokens: i.P1 - i.P0, OwnTok: i.P1 - i.P0, Bytes: i.Bytes, OwnBytes: i.Bytes, AgeMs: wire.Ms(now.Sub(i.Created)),
			IdleMs: wire.Ms(now.Sub(i.Used)), Hits: int(i.Hits), Pinned: i.Pinned, Hash: hash, Why: "copied out of the pool",
		})
	}
	return out
}

// persist writes a saved prefix to disk, beside the loop.
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

func (s *stores) savedWhere() string {
	switch {
	case s.cache == nil:
		return "nowhere"
	case s.cache.DiskError() == nil:
		return "copied to memory and on their way to disk"
	case s.l.cfg.CacheDir == "":
		return "copied to memory (start uma-serve with --cache-dir to keep them on disk)"
	}
	return "copied to memory, not to disk: " + s.cache.DiskError().Error()
}
