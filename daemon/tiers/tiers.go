// Package tiers has the places for cells outside the KV pool: host memory and disk (kvsnap/snapshot), and a fabric that
// machines share (meridian/fabric). It executes the core's operations on them, and asks the decode loop for little.
//
//	store.go      opening and closing; restores, copies, snapshots
//	remote.go     the fabric; frames.go its frames, pull.go its reads, seals.go those of models with states
//	offers.go     what is pushed to the fabric again, and when its values are renewed; pieces.go what it has
//	thoughts.go   finished thoughts (--think-evict offload)
//	pool.go       kv drop, pin, unpin and save of prefixes in the pool, the kv report, prices for info
//	command.go    the same commands for stored parts; drop.go deletes copies
//	report.go     the tiers in a kv report; stored.go in KV events; size.go the host tier's cap
//	views.go      embeddings of images and sounds on disk
package tiers

import (
	"log/slog"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
)

// Loop is the decode loop, which owns the Stores. It calls their methods but Drop, HostBytes, Resize and those that say
// so, and only on its goroutine are these called:
type Loop interface {
	Core() *core.Core
	Result() *core.Result             // of the operations that are being carried out
	Input(in core.Input, t time.Time) // passes in to the core
	Progress(began time.Time)         // a copy began then: the loop does not hang

	// Stored, Offloaded and Offer are called by any goroutine and do not wait. The loop calls Poll for a restore whose
	// next part may be ready; tells the core which tier has a thought; and calls OfferSome when nothing runs.
	Stored(id core.RestoreID)
	Offloaded(id core.ID, in core.Tier)
	Offer()
}

// Options configure tiers. They do not change.
type Options struct {
	Config  *config.Config
	Engine  runtime.Engine // used on the loop's goroutine
	Info    runtime.ModelInfo
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Origin  format.Origin // of stored cells: engine, model and KV types
	Loop    Loop

	caps runtime.Capabilities
}

// part returns the number of tokens in a stored part.
func (o *Options) part() int { return core.PartTokensOf(o.Info.KVBytesPerToken, o.caps.SnapshotTokens) }
