package daemon

import (
	"fmt"
	"os"
	goruntime "runtime"
	gometrics "runtime/metrics"
	"time"

	"github.com/uma-serve/uma-serve/internal/buildinfo"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// stallAfter: a daemon that has work but made no progress for this long is not healthy. A step is bounded by the
// batch size; half a minute is far beyond any step of a model that is usable at all.
const stallAfter = 30 * time.Second

// Health is the answer to {"type":"health"} and GET /health. Status is
//
//	ok        it answers requests
//	loading   the model is being read; Progress says how far, Requests how many wait for it
//	draining  it finishes what runs and takes nothing new
//	stalled   it has work but no step has ended for half a minute; StalledSince says since when
type Health struct {
	Type          string  `json:"type"` // "health"
	Status        string  `json:"status"`
	Progress      float64 `json:"load_progress"`
	UptimeMs      int64   `json:"uptime_ms"`
	LastStepAgeMs *int64  `json:"last_step_age_ms"` // null before the first
	Requests      int64   `json:"requests"`         // running and queued
	// StalledSince is when the last sign of progress was (RFC 3339, UTC) and StalledMs how long ago; only while Status
	// is stalled.
	StalledSince string `json:"stalled_since,omitempty"`
	StalledMs    int64  `json:"stalled_ms,omitempty"`
}

func (s *Server) health() Health {
	now := time.Now()
	h := Health{Type: "health", Status: "ok", Progress: 1, UptimeMs: now.Sub(s.start).Milliseconds()}
	l := s.loop.Load()
	if l == nil {
		h.Status, h.Progress, h.Requests = "loading", s.loadProgress(), s.room.count()
		if s.draining.Load() {
			h.Status = "draining"
		}
		return h
	}
	h.Requests = l.state.requests.Load()
	if last := l.state.lastStep.Load(); last != 0 {
		age := (now.UnixNano() - last) / int64(time.Millisecond)
		h.LastStepAgeMs = &age
	}
	if s.draining.Load() {
		h.Status = "draining"
	}
	// Stalled also while it drains: a service manager that waits for the end of the drain would wait in vain.
	if since, ok := l.state.stalled(now, stallAfter); ok {
		h.Status, h.StalledSince, h.StalledMs = "stalled", since.UTC().Format(time.RFC3339), now.Sub(since).Milliseconds()
		s.log.Error("no decode step has ended although there is work", "since", h.StalledSince, "requests", h.Requests)
	}
	return h
}

// stalled reports whether the loop has work but made no progress for longer than limit, and when it last did.
func (st *loopState) stalled(now time.Time, limit time.Duration) (since time.Time, ok bool) {
	busy := st.busySince.Load()
	since = time.Unix(0, max(busy, st.lastStep.Load()))
	return since, busy != 0 && now.Sub(since) > limit
}

// Info is the answer to {"type":"info"} and GET /info: what is served, by what, with what left over.
type Info struct {
	Type    string        `json:"type"` // "info"
	Status  string        `json:"status"`
	Version string        `json:"version"`
	Engine  string        `json:"engine"`
	Go      string        `json:"go"`
	PID     int           `json:"pid"`
	Socket  string        `json:"socket"`
	Uptime  int64         `json:"uptime_ms"`
	Model   *InfoModel    `json:"model"` // null while loading
	Caps    *Capabilities `json:"capabilities"`
	Config  InfoConfig    `json:"config"`
	Memory  InfoMemory    `json:"memory"`
	Live    InfoLive      `json:"live"`
	// Cost is what the scheduler has learned of a step's time on this machine; null before the first step.
	Cost *wire.CostModel `json:"cost_model"`
}

// Capabilities is the engine's, as it stands.
type Capabilities = runtime.Capabilities

// InfoModel adds what intake found out to the engine's facts.
type InfoModel struct {
	runtime.ModelInfo
	ChatTemplate   bool     `json:"chat_template"`
	TemplateSource string   `json:"chat_template_source"`
	NoChat         string   `json:"no_chat_reason,omitempty"`
	Thinks         bool     `json:"think_tags"`
	ThinkMarkers   string   `json:"think_markers"` // the family of docs/templates.md, "" when nothing tells
	ThinkSwitch    []string `json:"think_switch"`  // the template's variables for it
}

// InfoConfig is the part of the configuration a client may want to know.
type InfoConfig struct {
	Policy         string  `json:"policy"`
	Parallel       int     `json:"parallel"`
	MaxQueue       int     `json:"max_queue"`
	MaxSessions    int     `json:"max_sessions"`
	MaxFrameBytes  int     `json:"max_frame_bytes"`
	MaxPromptBytes int     `json:"max_prompt_bytes"`
	MaxTokens      int     `json:"max_tokens"`
	TickBudgetMs   float64 `json:"tick_budget_ms"`
	ITLTargetMs    float64 `json:"itl_target_ms"`
	// PolicyOptions are those that Policy obeys; of the two above it may be neither.
	PolicyOptions []PolicyOption `json:"policy_options"`
}

// InfoMemory is the memory ledger, in bytes.
type InfoMemory struct {
	Weights  int64 `json:"weights_bytes"`
	Repacked int64 `json:"repacked_bytes"` // copies of weights for the processor's kernels: anonymous memory
	KV       int64 `json:"kv_bytes"`
	GoHeap   int64 `json:"go_heap_bytes"`
	RSS      int64 `json:"rss_bytes"`
}

// InfoLive counts what is in use right now. With nothing running, requests, sequences, resident and live cells are
// all zero: that is how a leak shows.
type InfoLive struct {
	Sessions    int   `json:"sessions"`
	InFlight    int   `json:"in_flight"` // requests that clients wait for, in intake too
	Requests    int64 `json:"requests"`
	Sequences   int   `json:"sequences"`          // held by running requests
	Resident    int64 `json:"resident_sequences"` // that hold cells in the engine, counted when it last fell idle
	LiveCells   int   `json:"kv_cells_live"`
	FreeCells   int   `json:"kv_cells_free"` // the others: free, or held by cached prefixes alone
	Goroutines  int   `json:"goroutines"`
	Descriptors int   `json:"file_descriptors"` // -1 where the system does not say
}

func (s *Server) info() Info {
	h := s.health()
	in := Info{
		Type: "info", Status: h.Status, Version: buildinfo.Version, Engine: buildinfo.Engine(), Go: goruntime.Version(),
		PID: os.Getpid(), Socket: s.listener.Path(), Uptime: h.UptimeMs,
		Config: InfoConfig{
			Policy: s.cfg.Policy, Parallel: s.cfg.Parallel, MaxQueue: s.cfg.MaxQueue, MaxSessions: s.cfg.MaxSessions,
			MaxFrameBytes: s.cfg.MaxFrameBytes, MaxPromptBytes: s.cfg.MaxPromptBytes, MaxTokens: s.cfg.MaxTokens,
			TickBudgetMs: s.cfg.TickBudgetMs, ITLTargetMs: s.cfg.Meridian.ITLTargetMs,
			PolicyOptions: s.cfg.policyOptions(),
		},
	}
	in.Memory = s.memory()
	in.Live = InfoLive{
		Sessions: int(s.poller.Stats().Sessions.Load()), Requests: h.Requests, InFlight: int(s.poller.Stats().InFlight.Load()),
		Goroutines: goruntime.NumGoroutine(), Descriptors: openDescriptors(),
	}
	if l := s.loop.Load(); l != nil {
		m := s.model.Load()
		in.Model = &InfoModel{ModelInfo: m.info, ChatTemplate: m.template != nil, TemplateSource: m.source, Thinks: m.tags.Known(),
			ThinkMarkers: m.tags.Family(), ThinkSwitch: []string{}}
		if m.template != nil {
			in.Model.ThinkSwitch = append(in.Model.ThinkSwitch, m.thinking.Names()...)
		}
		if m.noChat != nil {
			in.Model.NoChat = m.noChat.Error()
		}
		in.Caps = &m.caps
		st := s.metrics.Scheduler()
		in.Live.Sequences = st.Prefilling + st.Decoding
		in.Live.LiveCells, in.Live.FreeCells = st.LiveCells, st.FreeCells+st.PoolCells
		in.Live.Resident = l.state.resident.Load()
		if c := st.Cost; c.Steps > 0 {
			in.Cost = &wire.CostModel{A: c.A, B: c.B, C: c.C, D: c.D, Samples: c.Steps, Error: c.Error}
		}
	}
	return in
}

// memory is the ledger: what the model maps, what the engine has copied of that, the KV pool, the Go heap, and what the
// system says of the whole.
func (s *Server) memory() (m InfoMemory) {
	if md := s.model.Load(); md != nil {
		m.Weights, m.Repacked = int64(md.info.Bytes), int64(md.info.RepackedBytes)
		m.KV = int64(md.info.KVBytesPerToken) * int64(md.caps.ContextTokens)
	}
	// runtime/metrics, not ReadMemStats: that one stops the world, the decode loop included.
	sample := []gometrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	gometrics.Read(sample)
	m.GoHeap = int64(sample[0].Value.Uint64() + sample[1].Value.Uint64())
	m.RSS = residentBytes()
	return m
}

// residentBytes is the process's resident set, 0 where the system does not tell.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if n, _ := fmt.Sscan(string(b), &size, &resident); n != 2 {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

func openDescriptors() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if d, err := os.ReadDir(dir); err == nil {
			return len(d) - 1 // the directory itself is one of them
		}
	}
	return -1
}
