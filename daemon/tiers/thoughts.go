package tiers

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/fabric"
)

// Finished thoughts outside the pool (--think-evict offload). A thought goes out in one batch of MRDN frames, exactly
// its cells: to the fabric, or without one to a part of this process's memory that --cache-ram includes.

// thoughtShare is the part of --cache-ram that thoughts have where there is no fabric: one in so many.
const thoughtShare = 4

// openThoughts opens the place for finished thoughts, of at most capBytes when it is in memory.
func (s *Stores) openThoughts(capBytes int64) error {
	if s.Remote != nil {
		s.Thoughts = s.Remote
		return nil
	}
	f, err := fabric.Open(fmt.Sprintf("memory?cap=%d", capBytes)) // a map in this process
	if err != nil {
		return err
	}
	s.Thoughts = newRemote(f, s.o)
	s.room.Store(capBytes)
	s.memory, _ = f.(memory)
	return nil
}

// memory is a fabric that knows its size.
type memory interface {
	Bytes() int64
	Len() int
	Resize(capBytes int64)
}

// withThoughts adds the finished thoughts in memory to the host tier.
func (s *Stores) withThoughts(host snapshot.TierStats) snapshot.TierStats {
	if s.memory == nil {
		return host
	}
	t := s.Thoughts.tier(0)
	host.Tokens += s.memory.Bytes() / int64(max(s.o.Info.KVBytesPerToken, 1)) // they are not compressed
	host.Bytes, host.Cap = host.Bytes+s.memory.Bytes(), host.Cap+s.room.Load()
	host.Parts += s.memory.Len()
	host.PagesIn, host.PagesOut = host.PagesIn+t.PagesIn, host.PagesOut+t.PagesOut
	return host
}

// thoughtBatch is the batch that core is putting together.
type thoughtBatch struct {
	req    core.ID
	jobs   []fabric.PushJob
	failed bool
	ns     uint64
}

// offloadBlock adds cells to the batch of a thought, and sends it with the last of them. What cannot be sent stays in
// the pool.
func (s *Stores) offloadBlock(op *core.Op) {
	b := &s.batch
	if b.req != op.Req || op.First == op.From {
		*b = thoughtBatch{req: op.Req, ns: op.NS}
	}
	begin := time.Now()
	p, frame, at, err := s.Thoughts.frame(op.NS, op.Tokens, op.Src, op.From)
	s.count(begin, op.To-op.From)
	if err != nil {
		s.o.Log.Debug("offload of a thought", "error", err)
		b.failed = true
	} else {
		b.jobs = append(b.jobs, s.Thoughts.job(&p, frame, at, s.Thoughts.blocksOf(op.To-op.From), frameTier(op.Use)))
	}
	if op.Last && !b.failed {
		s.sendThought(b)
	}
}

// sendThought queues a batch. When all of it is stored, core hears of it.
func (s *Stores) sendThought(b *thoughtBatch) {
	var left atomic.Int32
	left.Store(int32(len(b.jobs)))
	req, tier := b.req, core.Host
	if s.Thoughts == s.Remote {
		tier = core.Fabric
	}
	for i := range b.jobs {
		counted := b.jobs[i].Done
		b.jobs[i].Done = func(err error) {
			if err == nil && left.Add(-1) == 0 {
				s.o.Loop.Offloaded(req, tier)
			}
			counted(err)
		}
		if !s.Thoughts.tryPush(b.jobs[i], b.ns) {
			break // without it the batch is never complete
		}
	}
	s.Thoughts.flush()
	b.jobs = nil
}
