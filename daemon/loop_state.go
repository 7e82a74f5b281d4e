package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/daemon/drafts"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/recorder"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/telemetry"
)

// ending is the way to the loop's end.
type ending struct {
	over bool // the loop has ended; owned by who holds aside

	draining bool
	stop     bool

	// stopBy is the deadline of the shutdown (unix ns); 0 = none. Serve writes it before it puts cmdStop or cmdDrain.
	stopBy atomic.Int64
}

// chores are the times at which the loop did what it does now and then, and what it has warned of.
type chores struct {
	scheduled  time.Duration // duration of the newest core.Next
	infeasible bool          // the warning about an infeasible ITL target was logged
	limited    account.Limited

	lastSweep  time.Time // newest sweepStalled
	published  time.Time // newest publish
	lastReap   time.Time
	stale      []uint64
	lastQueued time.Time // newest reportQueued
}

// reused is scratch of every step.
type reused struct {
	planText []byte // of logPlan
	scratch  sampler.Scratch
	commands []command
	event    wire.Event // the newest; send copies it
	stats    runtime.RowStats
	tick     account.Tick
	reportOf stepReport // of the newest step
	top      []wire.TokenLogprob
	thought  []byte // text of the current token
	answer   []byte
	flush    []ipc.Client
	timer    *time.Timer
}

// journal holds the loop's reports: metrics, views, traces, and ended requests for why.
type journal struct {
	debug      bool // the log writes debug lines
	passes     account.Passes
	live       *live.Views
	rec        *recorder.Recorder  // nil without --trace
	events     *kvevents.Reporter  // nil: without --kv-events
	tel        *telemetry.Exporter // nil without --telemetry-endpoint
	recent     [wire.MaxLast]report.Request
	recentNext int
	tracked    *meridian.Registry
}

// embedWork is the work on requests for embeddings.
type embedWork struct {
	embedder  *prepare.Embedder
	encoder   bool             // the model reads texts whole, and generates nothing
	hidden    runtime.Embedder // eng; nil: it makes no embeddings
	embeds    []*request       // requests for embeddings that have not ended
	embedTurn int              // whose turn it is to hand a text to the core
	inputs    int              // inputs of embeds that are not forgotten
	maxInputs int              // inputs beside the first of each request for embeddings that run at once
	vector    []float32        // scratch
}

// engineSide has the abilities of the engine and the facts of its model; they do not change.
type engineSide struct {
	draft  *drafts.Model      // nil: there is none
	viewer runtime.Viewer     // eng, if its model reads images; else nil
	argmx  runtime.RowScanner // eng, if it finds a row\'s largest logit faster than Go does; else nil
	probe  runtime.RowProber
	vocab  runtime.Vocab
	caps   runtime.Capabilities
	tags   *meridian.Tags // nil: the model does not mark its thinking
	mixes  *adapters.Mixes

	info runtime.ModelInfo

	cells     int           // of the core's ledger
	itlTarget time.Duration // default ITL target of a request
}

// loopState is the part of the loop's state that other goroutines read. The loop writes it.
type loopState struct {
	// busySince is the time (unix ns) since which a step is due: the end of the newest moment without a request that
	// can advance, or of the newest copy of cells. 0 = the loop sleeps and no request can advance. Never 0 while it
	// hangs.
	busySince atomic.Int64
	lastStep  atomic.Int64 // end of the newest decode, unix ns; 0 = none yet
	// engine sequences with cells that the prefix tree does not list; counted when the loop idles
	resident atomic.Int64
	requests atomic.Int64 // live requests, queued ones included
	prices   atomic.Pointer[[]reports.InfoPrice]
}
