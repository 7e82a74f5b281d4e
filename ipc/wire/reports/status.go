package reports

import (
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// Health answers {"type":"health"} and GET /health. Status is one of
//
//	ok        the daemon answers requests
//	loading   the model is being read; Progress says how much of it, Requests how many wait for it
//	down      the default model of a front cannot be loaded, or has crashed too often
//	draining  the daemon finishes running requests and refuses new ones
//	stalled   requests are waiting and no decode step has ended for half a minute; StalledSince says since when
type Health struct {
	Type          string  `json:"type"` // "health"
	Status        string  `json:"status"`
	Progress      float64 `json:"load_progress"` // 0 … 1
	UptimeMs      int64   `json:"uptime_ms"`
	LastStepAgeMs *int64  `json:"last_step_age_ms"` // nil before the first decode step
	Requests      int64   `json:"requests"`         // running and queued
	// Listen are the Unix socket as unix://PATH, then the TCP addresses as http://ADDRESS:PORT.
	Listen []string `json:"listen"`
	// Models are the states of a front's models by name (see InfoServed), or "stalled"; absent where one process serves
	// one model.
	Models map[string]string `json:"models,omitempty"`
	// Arbiter is the state of the arbiter that shares devices between a front's models; nil where one process serves
	// one model.
	Arbiter *HealthArbiter `json:"arbiter,omitempty"`
	// StalledSince is the time of the last progress (RFC 3339, UTC), and StalledMs how long ago that was. Both are zero
	// unless Status is stalled.
	StalledSince string `json:"stalled_since,omitempty"`
	StalledMs    int64  `json:"stalled_ms,omitempty"`
}

// HealthArbiter is the state of the arbiter, through which the models of a front share their devices. Status is "ok",
// or "degraded" when a model has computed a step without the lease of its device in the last 10 seconds; Text says
// which, and why.
type HealthArbiter struct {
	Status  string      `json:"status"`
	Text    string      `json:"text,omitempty"`
	Devices []DeviceUse `json:"devices"`
}

// DeviceUse names the model that holds the lease of a device at the moment, and the models that wait for it.
type DeviceUse struct {
	Device  string   `json:"device"`           // cpu, gpu0, …
	Holder  string   `json:"holder,omitempty"` // a model's name; absent = the device is free
	HeldMs  float64  `json:"held_ms,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
}

// Info answers {"type":"info"} and GET /info: the model, the engine, the configuration, and the resources in use.
type Info struct {
	Type         string                `json:"type"` // "info"
	Status       string                `json:"status"`
	Version      string                `json:"version"`
	Engine       string                `json:"engine"` // the llama.cpp build
	Go           string                `json:"go"`
	PID          int                   `json:"pid"`
	Socket       string                `json:"socket"`
	Listeners    []InfoListener        `json:"listeners"`
	UptimeMs     int64                 `json:"uptime_ms"`
	Model        *InfoModel            `json:"model"`                 // nil while the model loads
	Draft        *InfoDraft            `json:"draft_model,omitempty"` // nil without one
	Capabilities *runtime.Capabilities `json:"capabilities"`          // nil while the model loads
	Config       InfoConfig            `json:"config"`
	Memory       InfoMemory            `json:"memory"`
	Devices      []InfoDevice          `json:"devices,omitempty"` // besides the processor
	Live         InfoLive              `json:"live"`
	CostModel    *CostModel            `json:"cost_model"` // nil before the first decode step
	Bandwidth    *InfoBandwidth        `json:"bandwidth,omitempty"`
	// of prompts in stores, as far as restores from there were measured
	Prices []InfoPrice `json:"prices,omitempty"`
	// nil while the model loads, and where the number of threads never changes
	Threads *InfoThreads `json:"threads,omitempty"`
	Power   *InfoPower   `json:"power,omitempty"` // nil while the model loads
	// of an engine process; nil for a daemon with one process
	Sandbox *InfoSandbox `json:"sandbox,omitempty"`
	Lease   *InfoLease   `json:"lease,omitempty"` // likewise
	// Models are those of a front, with their engine processes; absent where one process serves one model. The fields
	// above are then those of the default model's process, except sockets and connections, which are the front's.
	Models []InfoServed `json:"models,omitempty"`
}

// InfoDraft is the draft model, which guesses the next tokens of answers.
type InfoDraft struct {
	// Kind is "model", of --draft-model, "eagle3", "dflash" or "gemma4-assistant", a head in the place of one, or
	// "head": a layer of the model's file. The name is the model's then.
	Kind          string `json:"kind"`
	Name          string `json:"name"`
	Path          string `json:"path"`
	Description   string `json:"description"`
	ContextTokens int    `json:"n_ctx"`         // cells of its KV cache; 0: it reads the model's
	Sequences     int    `json:"max_sequences"` // requests that it guesses for at once
	Bytes         int64  `json:"bytes"`         // weights, repacked copies, KV cells; of a "head" its KV cells
	Failed        bool   `json:"failed"`        // it could not compute, and is not used any more
}

// InfoDevice is a device and what the model has in its memory, in bytes. The processor is listed where a part of the
// model is there, if the engine reports it.
type InfoDevice struct {
	runtime.Device
	Weights uint64 `json:"weights_bytes"`
	KV      uint64 `json:"kv_bytes"`
	Compute uint64 `json:"compute_bytes"`
	// Projector has the projector of images, Draft the draft model.
	Projector uint64 `json:"projector_bytes,omitempty"`
	Draft     uint64 `json:"draft_bytes,omitempty"`
}

// InfoThreads is the number of compute threads that steps use, with the reason for it.
type InfoThreads struct {
	Now  int `json:"now"`
	Most int `json:"most"` // while no other process takes a processor
	// Reason is undisturbed, taken (other processes take processors), waiting (compute threads wait for a processor),
	// throttled (by a quota) or trying (whether they are still disturbed).
	Reason string   `json:"reason"`
	Taken  *float64 `json:"cpus_taken"` // processors that other processes use; nil = not known
}

// InfoPower is the energy that answers cost, and the effect of --power.
type InfoPower struct {
	Mode           string   `json:"mode"`  // --power
	Quiet          bool     `json:"quiet"` // fewer threads are used
	OnBattery      bool     `json:"on_battery"`
	Joules         *float64 `json:"joules"`           // of the processor packages since the start; nil = no meter
	JoulesPerToken *float64 `json:"joules_per_token"` // nil = not known
}

// InfoPrice compares restoring a prompt from a store with computing it, as predicted now.
type InfoPrice struct {
	Tier      wire.CacheTier `json:"tier"`
	Tokens    int            `json:"tokens"`
	RestoreMs float64        `json:"restore_ms"`
	ComputeMs float64        `json:"compute_ms"`
	Used      bool           `json:"used"` // false: such a prompt is computed, although the store has it
}

// InfoBandwidth is the estimated traffic of the newest step, in bytes, and the moving averages of bytes by time, as
// predicted by the cost model and as measured.
type InfoBandwidth struct {
	Weights      int64   `json:"weights"`
	KV           int64   `json:"kv"`     // cells attended to and written
	Copies       int64   `json:"copies"` // cells copied between the pool and the tiers below it
	Activations  int64   `json:"activations"`
	PredictedGBs float64 `json:"predicted_gbps"`
	MeasuredGBs  float64 `json:"measured_gbps"`
}

// InfoSandbox is the confinement of an engine process by the kernel.
type InfoSandbox struct {
	// the version of the kernel's interface in use; 0 = the process may open any file of its user
	Landlock   int      `json:"landlock_abi"`
	Seccomp    bool     `json:"seccomp"` // it can start no program and open no connection
	NoNewPrivs bool     `json:"no_new_privs"`
	Missing    []string `json:"missing,omitempty"` // restrictions that are not in force, with the reasons
}

// InfoLease counts the leases of an engine process that shares its devices with others. Each step takes the lease of
// all of them.
type InfoLease struct {
	Devices   []string `json:"devices"` // that it computes on: cpu, gpu0, …
	Grants    uint64   `json:"grants"`  // steps that took the lease
	Contended uint64   `json:"contended"`
	WaitedMs  float64  `json:"waited_ms"` // all contended ones together
	HeldMs    float64  `json:"held_ms"`
	Yields    uint64   `json:"yields"`        // steps whose prompts made way for answers of other models
	Without   uint64   `json:"without_lease"` // steps that were computed without it, after a wait that was too long
	Lost      uint64   `json:"lost"`          // leases that another process had taken
	Repaired  uint64   `json:"repaired"`      // leases that none of the processes had held
}

// InfoServed is a model of a front.
type InfoServed struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Default bool     `json:"default,omitempty"`
	Pinned  bool     `json:"pinned,omitempty"`
	// State is unloaded, waiting (for memory), loading, ready, unloading, or down (after three crashes in a minute, or
	// a file that cannot be loaded; Error says why).
	State    string  `json:"state"`
	Progress float64 `json:"load_progress,omitempty"`
	Error    string  `json:"error,omitempty"`
	PID      int     `json:"pid,omitempty"` // of its engine process
	// MemoryBytes is the model's entry in the memory ledger, loaded or not: weights, KV cells, buffers, and
	// HostTierBytes, which its host tier holds.
	MemoryBytes   int64   `json:"memory_bytes"`
	HostTierBytes int64   `json:"host_tier_bytes,omitempty"`
	Connections   int     `json:"connections"` // that its engine process has
	InFlight      int     `json:"in_flight"`
	Waiting       int     `json:"waiting"` // connections that wait for it
	IdleMs        float64 `json:"idle_ms,omitempty"`
	Loads         int     `json:"loads"`
	Unloads       int     `json:"unloads"`
	Crashes       int     `json:"crashes"`
	Info          *Info   `json:"info,omitempty"` // of its engine process
}

// InfoListener is a socket that the daemon listens on.
type InfoListener struct {
	Network  string `json:"network"`  // unix or tcp
	Address  string `json:"address"`  // the path, or the address and port
	Accepted uint64 `json:"accepted"` // connections so far
	// Users is the identification of clients at a TCP address: "uid" by the kernel, "key" by their API keys, "uid, key"
	// by both. It is "uid" for the Unix socket.
	Users string `json:"users"`
	// Mode is the mode of a TCP address, --listen-mode; "" for the Unix socket.
	Mode string `json:"mode,omitempty"`
	TLS  bool   `json:"tls,omitempty"` // --tls-cert
}

// ContextTokens returns the number of cells in the KV pool, 0 while the model loads.
func (in *Info) ContextTokens() int {
	if in.Capabilities == nil {
		return 0
	}
	return in.Capabilities.ContextTokens
}

// InfoModel describes the model and its chat template.
type InfoModel struct {
	runtime.ModelInfo
	ChatTemplate   bool     `json:"chat_template"`
	TemplateSource string   `json:"chat_template_source"`     // the model's own, a file, or a built-in one and why
	NoChat         string   `json:"no_chat_reason,omitempty"` // reason for the lack of chat; "" = there is chat
	Thinks         bool     `json:"think_tags"`
	ThinkMarkers   string   `json:"think_markers"` // the family in docs/templates.md; "" when the family is unknown
	ThinkSwitch    []string `json:"think_switch"`  // the template variables that turn thinking on and off
	ThinkPast      []string `json:"think_past"`    // those that keep or drop thoughts of earlier turns
	// Embeddings is nil where the model makes none; NoEmbeddings then says why.
	Embeddings   *InfoEmbeddings `json:"embeddings,omitempty"`
	NoEmbeddings string          `json:"no_embeddings_reason,omitempty"`
	Ranking      *InfoRanking    `json:"ranking,omitempty"` // nil where the model ranks no documents
	Images       *runtime.Images `json:"images,omitempty"`  // nil where the model reads no images
	Adapters     []InfoAdapter   `json:"adapters,omitempty"`
}

// InfoAdapter is a LoRA adapter of the model.
type InfoAdapter struct {
	ID    int     `json:"id"`
	Name  string  `json:"name"`
	Path  string  `json:"path"`
	Scale float32 `json:"scale"` // in requests that choose no adapters
	Bytes int64   `json:"bytes,omitempty"`
	// Invocation are the tokens that activate it (aLoRA); empty: it applies from the first token on.
	Invocation []int32 `json:"invocation_tokens,omitempty"`
}

// InfoEmbeddings describes the embeddings of the model.
type InfoEmbeddings struct {
	Values  int             `json:"values"`          // of an embedding
	Pooling runtime.Pooling `json:"pooling"`         // --pooling, else the file's, else mean
	Longest int             `json:"longest_text"`    // tokens
	Sizes   []int           `json:"sizes,omitempty"` // smaller ones that the model was trained for (--embedding-sizes)
	AnySize bool            `json:"any_size,omitempty"`
	Assumed bool            `json:"pooling_assumed,omitempty"` // neither --pooling nor the file says so
}

// InfoRanking describes the model's ranking of documents.
type InfoRanking struct {
	Longest int `json:"longest_pair"` // tokens of a query, a document and the template around them
}

// InfoConfig is the part of the daemon's configuration that concerns clients.
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
	Speculate      int     `json:"speculate"` // most tokens guessed for a step of a request; 0 = none
	// NoSpeculation is the reason for which Speculate is 0; "" = it is not
	NoSpeculation string `json:"no_speculation,omitempty"`
	// NoHead is the reason why the head of the model's file makes no drafts; "" = it does, or the file has none
	NoHead string `json:"no_head,omitempty"`
	// PolicyOptions are the options that Policy obeys. Policy may ignore TickBudgetMs and ITLTargetMs.
	PolicyOptions []PolicyOption `json:"policy_options"`
	// Context names the limit of an automatic context (--ctx-size auto); "" where a number was given.
	Context string `json:"context,omitempty"`
}

// PolicyOption is an option of the scheduling policy in use.
type PolicyOption struct {
	Name  string  `json:"name"`  // of the command line, or of the file's [meridian] table
	Value float64 `json:"value"` // in the unit that Name ends with
}

// InfoMemory is the daemon's memory, in bytes.
type InfoMemory struct {
	Weights  int64 `json:"weights_bytes"`
	Repacked int64 `json:"repacked_bytes"` // copies of weights for the processor's kernels: anonymous memory
	KV       int64 `json:"kv_bytes"`
	Draft    int64 `json:"draft_bytes"` // of the draft model: weights, repacked copies, KV cells
	GoHeap   int64 `json:"go_heap_bytes"`
	RSS      int64 `json:"rss_bytes"` // 0 on systems that do not report it
}

// InfoLive counts the resources in use. In an idle daemon InFlight, Requests, Sequences, Resident and LiveCells are 0;
// any other value is a leak.
type InfoLive struct {
	Sessions    int   `json:"sessions"`  // connections
	InFlight    int   `json:"in_flight"` // requests that clients wait for, those in intake included
	Requests    int64 `json:"requests"`
	Sequences   int   `json:"sequences"`          // held by running requests
	Resident    int64 `json:"resident_sequences"` // that hold cells in the engine, counted when it last fell idle
	LiveCells   int   `json:"kv_cells_live"`
	FreeCells   int   `json:"kv_cells_free"` // free, or held by cached prefixes alone
	Goroutines  int   `json:"goroutines"`
	Descriptors int   `json:"file_descriptors"` // -1 on systems that do not report it
}

// ServedModels answers GET /v1/models.
type ServedModels struct {
	Object string        `json:"object"` // "list"
	Data   []ServedModel `json:"data"`   // empty while the model loads
}

// ServedModel is a model in the form of OpenAI's API, with llama-server's "meta".
type ServedModel struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`   // "model"
	Created int64           `json:"created"`  // start of the daemon, in seconds since 1970
	OwnedBy string          `json:"owned_by"` // "uma-serve"
	Meta    ServedModelMeta `json:"meta"`
	Aliases []string        `json:"aliases,omitempty"`
	Tags    []string        `json:"tags,omitempty"`
	Parent  string          `json:"parent,omitempty"` // of an adapter: its model
	Status  *ServedStatus   `json:"status,omitempty"` // of a front's model; nil: it is loaded
}

// ServedStatus is the state of a model behind a front, in the words of llama-server's router.
type ServedStatus struct {
	Value    string         `json:"value"`              // downloading, unloaded, loading or loaded
	Failed   bool           `json:"failed,omitempty"`   // it cannot be loaded
	Progress ServedDownload `json:"progress,omitempty"` // of a download
	Fit      *ServedFit     `json:"fit,omitempty"`      // nil: the file does not tell, or was not read
}

// ServedFit tells whether a model fits into the memory that models may have. llama-server does not have it.
type ServedFit struct {
	Fits  bool   `json:"fits"`
	Bytes int64  `json:"bytes"` // that it needs with the smallest context: weights, KV cells, buffers
	Room  int64  `json:"room"`  // --memory without what pinned models take
	Text  string `json:"text"`  // a sentence with the numbers, and what to do where it does not fit
	// DeviceBytes and DeviceRoom are Bytes and Room of discrete devices: what it needs there with the layers that
	// --gpu-layers asks for, at least one if that is auto. 0: it needs none, or there is no such device.
	DeviceBytes int64 `json:"device_bytes,omitempty"`
	DeviceRoom  int64 `json:"device_room,omitempty"`
}

// ServedDownload is the progress of the files of a model that is downloaded, by their names in the source.
type ServedDownload map[string]ServedFile

// ServedFile is the progress of a file that is downloaded, in bytes.
type ServedFile struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// ServedModelMeta has the names that llama-server uses.
type ServedModelMeta struct {
	Context      int   `json:"n_ctx"`       // cells in the KV pool
	TrainContext int   `json:"n_ctx_train"` // tokens
	Parameters   int64 `json:"n_params"`
	Bytes        int64 `json:"size"` // tensor data
	Vocabulary   int   `json:"n_vocab,omitempty"`
	Embedding    int   `json:"n_embd,omitempty"`
}

// Adapter returns m with the name of one of its adapters.
func (m ServedModel) Adapter(name string) ServedModel {
	m.ID, m.Parent, m.Aliases = name, m.ID, []string{m.ID + ":" + name}
	return m
}
