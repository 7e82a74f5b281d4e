// Package cluster simulates many servers on one clock: requests come to a router that sends each to one of them, and
// with prefill-decode disaggregation a request's prompt is computed on one server and its answer on another.
//
// Memory does not depend on the number of requests: they are streamed from the workload and only aggregates are kept.
// It grows with instances × KV blocks in use, about 60 bytes a block.
package cluster

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Routings are the routing policies, the default first.
//
//	round-robin      one after the other, whatever their load
//	least-loaded     the server with the fewest requests, ties to the lowest number
//	prefix-affinity  requests of one prefix group or session to the same server, unless it has more than
//	                 1.25 times the mean load: then the next one (consistent hashing with bounded loads)
var Routings = []string{"round-robin", "least-loaded", "prefix-affinity"}

// Config is a cluster of equal servers.
type Config struct {
	Server    blis.Config
	Instances int
	Routing   string

	// PrefillInstances > 0 turns disaggregation on: so many of the instances only compute prompts, the others only
	// answers. A request with one output token ends on the prefill side.
	PrefillInstances int
	// KVBytesPerToken, TransferGBs and TransferBaseUs are the costs of moving a prompt's KV cache: base +
	// tokens·bytes/bandwidth.
	KVBytesPerToken float64
	TransferGBs     float64
	TransferBaseUs  int64
}

// Report has the results of a cluster's run.
type Report struct {
	Metrics   *sim.Metrics
	Injected  int64   // requests that reached the router: counted there
	Moved     int64   // KV caches moved from prefill to decode servers
	InFlight  int64   // of them still on the wire at the end
	MovedUs   int64   // Σ of their transfer times, microseconds
	PerServer []int64 // requests each server was sent
	Stuck     *sim.Stuck
}

// Numbers returns the aggregate as JSON-ready values.
func (r *Report) Numbers(cfg *Config) map[string]any {
	n := r.Metrics.Numbers(&cfg.Server.Config)
	n["instances"], n["routing"], n["injected_requests"] = cfg.Instances, cfg.Routing, r.Injected
	if cfg.PrefillInstances > 0 {
		n["prefill_instances"], n["kv_transfers"] = cfg.PrefillInstances, r.Moved
		n["kv_transfer_mean_ms"] = 0.0
		if r.Moved > 0 {
			n["kv_transfer_mean_ms"] = float64(r.MovedUs) / float64(r.Moved) / 1000
		}
	}
	n["requests_per_instance_max"] = slices.Max(r.PerServer)
	n["requests_per_instance_min"] = slices.Min(r.PerServer)
	return n
}

// Check returns an error that names each wrong field.
func (c *Config) Check() error {
	if err := c.Server.Validate(); err != nil {
		return err
	}
	switch {
	case c.Instances < 1 || c.Instances > 1<<20:
		return fmt.Errorf("instances = %d: must be between 1 and %d", c.Instances, 1<<20)
	case !slices.Contains(Routings, c.Routing):
		return fmt.Errorf("routing %q is unknown; valid are %s", c.Routing, strings.Join(Routings, ", "))
	case c.PrefillInstances < 0 || c.PrefillInstances >= c.Instances && c.PrefillInstances > 0:
		return fmt.Errorf("prefill instances = %d: must leave at least one of the %d instances to decode",
			c.PrefillInstances, c.Instances)
	case c.PrefillInstances > 0 && c.Server.BatchFormation == "uma" && c.Server.NoPrefixCache:
		return fmt.Errorf("disaggregation with batch formation uma needs the prefix cache, in which moved KV caches " +
			"arrive: no_prefix_cache is set")
	case c.PrefillInstances > 0 && !(c.TransferGBs > 0 && c.KVBytesPerToken >= 0 && c.TransferBaseUs >= 0):
		return fmt.Errorf("disaggregation needs a transfer bandwidth > 0 and KV bytes per token and base latency ≥ 0")
	}
	return nil
}

// pool is a set of servers that a router chooses from.
type pool struct {
	first, n int
	next     int   // round-robin
	load     []int // requests on each server
	total    int
	least    tree
}

type run struct {
	cfg     Config
	rep     *Report
	engines []*sim.Engine
	events  tree // engines by their next event
	front   pool // where requests arrive
	back    pool // where they decode, with disaggregation
	wire    []move
	rounds  []move // arrivals that a closed loop has sent ahead
	sent    int64  // number of them so far
	horizon int64

	src      workload.Source
	reactive workload.Reactive // src, when it is one
	next     workload.Request  // of src
	more     bool              // there is a next
	follow   workload.Request
}

// move is a request that reaches a pool later: with its KV cache on the wire, or as a closed loop's next round.
type move struct {
	at, no int64
	spec   workload.Request
}

func (m move) before(o move) bool { return m.at < o.at || m.at == o.at && m.no < o.no }

// Run simulates until nothing is left to do, the horizon, or a livelock.
func Run(cfg Config, src workload.Source) (*Report, error) {
	r, err := newRun(cfg, src)
	if err != nil {
		return nil, err
	}
	for r.advance() {
	}
	return r.finish()
}

func newRun(cfg Config, src workload.Source) (*run, error) {
	cfg.Server.Collect = sim.Aggregate
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	server := cfg.Server.Server()
	model, err := cfg.Server.Latency()
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, rep: &Report{Metrics: &sim.Metrics{}, PerServer: make([]int64, cfg.Instances)}, src: src,
		horizon: math.MaxInt64}
	if cfg.Server.HorizonUs > 0 {
		r.horizon = cfg.Server.HorizonUs
	}
	r.events.init(cfg.Instances, math.MaxInt64)
	r.front = newPool(0, cfg.Instances)
	if p := cfg.PrefillInstances; p > 0 {
		r.front, r.back = newPool(0, p), newPool(p, cfg.Instances-p)
	}
	r.reactive, _ = src.(workload.Reactive)
	for i := range cfg.Instances {
		sink := sim.Sink{Ended: func(req *workload.Request, how workload.Outcome,
			now int64) {
			r.ended(i, req, how, now)
		}}
		if r.back.n > 0 && i < r.back.first {
			sink.Prefilled = r.prefilled
		}
		e, err := sim.NewEngine(server, model, r.rep.Metrics, sink)
		if err != nil {
			return nil, err
		}
		r.engines = append(r.engines, e)
	}
	r.more = src.Next(&r.next)
	return r, nil
}

// advance executes the earliest event. At equal times an arrival of the workload comes first, then a later round of a
// closed loop, then a KV cache from the wire, then an engine. It returns false when the simulation is over.
func (r *run) advance() bool {
	const engine, arrival, wire, round = 0, 1, 2, 3
	inst, at := r.events.min()
	from := engine
	if len(r.wire) > 0 && r.wire[0].at <= at {
		at, from = r.wire[0].at, wire
	}
	if len(r.rounds) > 0 && r.rounds[0].at <= at {
		at, from = r.rounds[0].at, round
	}
	if r.more && r.next.Arrival <= at {
		at, from = r.next.Arrival, arrival
	}
	if at == math.MaxInt64 || at > r.horizon {
		return false
	}
	switch from {
	case engine:
		e := r.engines[inst]
		e.Advance()
		r.reschedule(inst)
		if s := e.Stuck(); s != nil && r.rep.Stuck == nil {
			r.rep.Stuck = s
		}
	case arrival:
		r.rep.Injected++
		r.send(&r.front, &r.next)
		r.more = r.src.Next(&r.next)
	case wire:
		m := pop(&r.wire)
		r.send(&r.back, &m.spec)
	case round:
		m := pop(&r.rounds)
		r.rep.Injected++
		r.send(&r.front, &m.spec)
	}
	return !r.halted()
}

// halted reports whether a livelock ends the simulation: without a horizon nothing else would.
func (r *run) halted() bool { return r.rep.Stuck != nil && r.horizon == math.MaxInt64 }

// ended is called when a request leaves server i; a closed loop's next round may follow.
func (r *run) ended(i int, req *workload.Request, how workload.Outcome, now int64) {
	p := &r.front
	if i >= r.back.first && r.back.n > 0 {
		p = &r.back
	}
	p.change(i, -1)
	if how != workload.Moved && r.reactive != nil && r.reactive.Ended(req, how, now, &r.follow) &&
		r.follow.Arrival <= r.horizon {
		r.sent++
		push(&r.rounds, move{r.follow.Arrival, r.sent, r.follow})
	}
}

func (r *run) finish() (*Report, error) {
	for _, e := range r.engines {
		e.Finish()
	}
	r.rep.InFlight = int64(len(r.wire))
	if f, ok := r.src.(workload.Fallible); ok {
		if err := f.Err(); err != nil {
			return nil, err
		}
	}
	if r.halted() {
		return r.rep, r.rep.Stuck
	}
	return r.rep, nil
}

// prefilled takes a request from a prefill server and puts its KV cache on the wire.
func (r *run) prefilled(req *workload.Request, end, first int64) bool {
	took := r.cfg.TransferBaseUs + int64(math.Ceil(float64(req.Input)*r.cfg.KVBytesPerToken/(r.cfg.TransferGBs*1e3)))
	spec := *req
	spec.Prefilled, spec.Origin, spec.FirstToken, spec.Arrival = true, req.Arrival, first, end+took
	r.rep.Moved++
	r.rep.MovedUs += took
	push(&r.wire, move{spec.Arrival, r.rep.Moved, spec})
	return true
}

// send lets a request arrive at one server of a pool.
func (r *run) send(p *pool, req *workload.Request) {
	i := r.choose(p, req)
	p.change(i, 1)
	r.rep.PerServer[i]++
	r.engines[i].ArriveNow(req)
	r.reschedule(i)
}

func (r *run) reschedule(i int) {
	at, ok := r.engines[i].Next()
	if !ok {
		at = math.MaxInt64
	}
	r.events.set(i, at)
}

func (r *run) choose(p *pool, req *workload.Request) int {
	switch r.cfg.Routing {
	case "least-loaded":
		i, _ := p.least.min()
		return p.first + i
	case "prefix-affinity":
		key := uint64(0)
		switch {
		case req.Session != "":
			key = workload.NamedStream(req.Session)
		case req.Prefix != "":
			key = workload.NamedStream(req.Prefix)
		default:
			i, _ := p.least.min()
			return p.first + i
		}
		bound := int(math.Ceil(1.25 * float64(p.total+1) / float64(p.n)))
		for k := range p.n {
			if i := int((key + uint64(k)) % uint64(p.n)); p.load[i] < bound {
				return p.first + i
			}
		}
	}
	i := p.next
	p.next = (p.next + 1) % p.n
	return p.first + i
}

func newPool(first, n int) pool {
	p := pool{first: first, n: n, load: make([]int, n)}
	p.least.init(n, 0)
	return p
}

func (p *pool) change(i, by int) {
	p.load[i-p.first] += by
	p.total += by
	p.least.set(i-p.first, int64(p.load[i-p.first]))
}
