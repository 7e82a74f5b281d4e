// Package link has the messages between a front (package daemon/front) and its engine processes, besides those with
// which package ipc passes connections.
package link

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Kinds of messages. Bodies are JSON unless a comment says otherwise.
const (
	// Start is the first message of a front: an EngineStart.
	Start = ipc.LinkUser + iota
	// Keys follows when --api-keys has changed: the digests of package apikeys.
	Keys
	// Unload asks the engine process to give its connections back and to end; its body says why, as text.
	Unload
	// Stop asks it to drain and to end, as SIGTERM does; a second one, at once.
	Stop
	// Names replaces EngineStart.Names: a list of names.
	Names
	// Supervise passes the descriptor on which the front answers the kernel's questions about system calls (package
	// sandbox).
	Supervise
	// Status is sent by an engine process: an EngineStatus, while the model loads and when it is ready or has
	// failed.
	Status
	// HostTier is the cap of the host tier in bytes, a number.
	HostTier
	// Keep is sent by an engine process: for how long its model is to stay after the last request, a number of
	// nanoseconds; -1 = for ever, KeepDefault = as configured.
	Keep
	// KVEvents is sent by an engine process: a kvevents.Message.
	KVEvents
	// Adapter asks an engine process to load or unload an adapter: an AdapterChange, with the file of one that is
	// loaded. Its answer has the same kind: an AdapterChanged.
	Adapter
	// Metrics is sent by an engine process that ends: what it has counted, in Prometheus's text format.
	Metrics
)

// The descriptors that an engine process inherits.
const (
	FD      = 3
	TableFD = 4
	LeaseFD = 5 // the table of leases
)

// KeepDefault, as the body of Keep, means what the configuration says.
const KeepDefault = math.MinInt64

// HostTierMessage is the body of HostTier for a cap in bytes.
func HostTierMessage(bytes int64) []byte { return strconv.AppendInt(nil, bytes, 10) }

// EngineArg is the first argument of an engine process; the second one is the model's name, for ps.
const EngineArg = "engine-process"

// DevicesArg is the first argument of a process that writes the engine's runtime.Backends to stdout, as JSON. The
// drivers of devices run in it before any engine process is confined.
const DevicesArg = "engine-devices"

// EngineStart is the first message from a front to an engine process: configuration, names and listeners.
type EngineStart struct {
	Config  json.RawMessage   `json:"config"`
	Sources map[string]string `json:"sources"` // of the options, by name
	Model   string            `json:"model"`   // the name in logs and metrics
	// Added are the names of adapters that requests have added: the model is loaded without one that cannot be.
	Added   []string `json:"added,omitempty"`
	Names   []string `json:"names"`   // by which requests may select the model
	Default bool     `json:"default"` // requests that name no model are for this one
	Any     bool     `json:"any"`     // every name is this model's
	// FileName: answers have the name that the model's file has, as without a front.
	FileName bool `json:"file_name"`

	Socket    string                 `json:"socket"`
	Listen    []string               `json:"listen"`
	Listeners []reports.InfoListener `json:"listeners"`
	Keys      json.RawMessage        `json:"keys,omitempty"` // nil: without --api-keys
	Sandbox   bool                   `json:"sandbox"`
	Turns     bool                   `json:"turns"`          // the front answers requests for tools of MCP servers
	Seat      *lease.Seat            `json:"seat,omitempty"` // in the table of leases; nil: the process takes no lease
}

// AdapterChange asks for an adapter to be loaded, or with Unload for that of its name to be unloaded.
type AdapterChange struct {
	Ticket uint64           `json:"ticket"` // of the answer
	Load   wire.LoadAdapter `json:"load"`
	Unload bool             `json:"unload,omitempty"`
}

// AdapterChanged answers an AdapterChange.
type AdapterChanged struct {
	Ticket uint64                `json:"ticket"`
	Code   wire.Code             `json:"code,omitempty"` // of an error
	Error  string                `json:"error,omitempty"`
	List   []reports.InfoAdapter `json:"list,omitempty"`
}

// EngineStatus is a status report from an engine process to its front.
type EngineStatus struct {
	State    string  `json:"state"` // loading, ready or failed
	Progress float64 `json:"progress,omitempty"`
	Error    string  `json:"error,omitempty"`
	// Stalled is the time of the last progress while requests are live and no step ends; zero otherwise.
	Stalled time.Time `json:"stalled,omitzero"`

	Name    string             `json:"name,omitempty"` // as the file has it
	GPU     bool               `json:"gpu,omitempty"`  // layers are on a graphics processor
	Context int                `json:"context,omitempty"`
	Memory  reports.InfoMemory `json:"memory,omitzero"`
	// Devices is the memory of discrete devices that the process has, in bytes by device, by its engine's figures;
	// empty = none, or it is not known.
	Devices map[string]int64     `json:"devices,omitempty"`
	Sandbox *reports.InfoSandbox `json:"sandbox,omitempty"`
}

// States of an EngineStatus.
const (
	EngineLoading = "loading"
	EngineReady   = "ready"
	EngineFailed  = "failed"
)
