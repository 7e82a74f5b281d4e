package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/quota"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/runtime"
)

// Config holds the options of uma-serve, after Load has merged defaults < file < UMA_* environment < flags. A flag's
// name is also its TOML key and, upper-cased with underscores and the prefix UMA_, its environment variable. The fields
// of Meridian are keys of the table [meridian] and of --meridian; common ones have an option too.
type Config struct {
	// Model and engine; names as in llama-server.
	Model        string // file or name; "" = HFRepo, or the built-in model
	HFRepo       string // of Hugging Face: ORG/REPO[:QUANT]
	ModelsDir    string // "" = store.DefaultDir
	Offline      bool
	ChatTemplate string // name or file; "" = the model's
	CtxSize      int    // tokens; 0 = the training context, or AutoContext
	// RequestCtxSize is the largest context of one request, in tokens; 0 = all of CtxSize, or ShareContext.
	RequestCtxSize int
	Parallel       int
	BatchSize      int
	UBatchSize     int
	Threads        int
	Power          string // PowerAuto, PowerFast or PowerQuiet
	GPULayers      int
	CPUMoE         int // the first layers, whose experts stay in host memory; -1 = all
	FlashAttn      string
	CacheTypeK     string
	CacheTypeV     string
	MLock          bool
	NoMMap         bool
	NoRepack       bool
	NoKVOffload    bool
	Kernels        string
	Seed           int64 // < 0: a new one for each request that names none

	// Embeddings.
	Pooling        string // "" = as the model's file says
	EmbeddingSizes string // numbers, "any", or "" = none but the full one

	// Socket and limits.
	Socket         string
	SocketMode     string // octal
	SocketGroup    string
	Listen         []string // TCP addresses
	TLSCert        string   // file, or SelfMadeCert; "" = --listen speaks plain HTTP
	TLSKey         string   // file
	ListenMode     string   // octal
	ListenGroup    string
	APIKeys        string   // file; "" = none
	AllowedHosts   []string // further values of the Host header
	CORSOrigins    []string
	RouterUsers    []string // whose header X-Uma-User is believed
	MaxSessions    int      // connections
	MaxQueue       int      // requests waiting
	Limits         quota.Limits
	NoNewline      bool // lines of text are refused
	NoPage         bool // the page is not served
	NoSlots        bool // GET /slots is refused
	StrictFields   bool // an unknown field of an HTTP body is refused
	MaxFrameBytes  int
	MaxPromptBytes int
	MaxTokens      int // default and maximum of a request's max_tokens; 0 = as many as fit in the context
	IdleTimeout    time.Duration

	// Scheduling.
	Policy       string
	TickBudgetMs float64
	// StartTargetTokens bounds the prompt tokens of a step until larger ones are measured.
	StartTargetTokens int
	Speculate         string
	SpecType          string   // kinds of drafts, see drafts
	SpecSynthRates    []string // see SyntheticRates
	DraftModel        string   // file or name; "" = none
	LoRA              []string // --lora, see LoRAs
	Alias             []string // names of the model of --model
	Tags              []string // of the model of --model
	ModelsPreset      string   // file of llama-server's router; "" = none
	Defaults          string   // JSON object of fields of requests; "" = none
	ModelsMax         int      // models that are loaded at a time; 0 = as many as fit

	told, refused foreign // options of llama-server

	// MMProj is the file that makes embeddings of images: "" = the one beside the model, NoProjector = none.
	// MMProjFound: it was found beside the model, and the model is served without it if it does not fit.
	MMProj      string
	MMProjFound bool

	// Thinking. Meridian.ITLTargetMs is --itl-target-ms, Meridian.ThinkFloorMs --think-floor-ms.
	Meridian    meridian.Config
	ThinkBudget int // --think-budget; Load copies it to Meridian.MaxThinkTokens unless it is -1

	// The KV cache.
	NoPrefixCache          bool
	SharePrefixes          string // off, system
	ThinkEvict             string // none, offload, drop: see core.OffloadThoughts
	ContextShift           bool
	CacheRAM               Size   // of all models; "auto": a share of --memory; 0 = no host tier
	CacheDir               string // "" = no disk tier
	CacheDisk              Size
	SlotSavePath           string // "" = llama-server's slots are not saved
	Fabric                 string // URL; "" = none
	OffloadThresholdBlocks int
	KVEvents               string // tcp://ADDRESS:PORT; "" = none are published

	// A front and its engine processes.
	Single            bool
	Memory            Size // "auto": a share of what is free
	IdleUnload        time.Duration
	ServeFound        bool // models of this machine that have no table
	Autoload          bool // a request loads its model
	AllowModelChanges bool // by clients of any user
	Sandbox           bool
	Arbiter           bool

	// Process.
	ShutdownTimeout time.Duration
	LogFormat       string
	LogLevel        string

	// Models are the [models.NAME] tables of the file, by name.
	Models []Model
	// MCP are the [mcp.NAME] tables of the file: the servers whose tools requests may name.
	MCP []setup.Server

	Trace string // file for the trace of all decisions; "" = none

	Telemetry string // URL of an OTLP collector; "" = none

	ConfigFile string // --config, or the default file that Load found; "" = none

	// Puller downloads the model of --hf-repo; nil = this program cannot.
	Puller store.Puller `json:"-"`
	// Backends are the engine's back ends; none where no layers go to a device, and before they were looked at.
	Backends runtime.Backends

	Warnings []string // of Load, for the log

	// Router: no option names a model to serve; requests choose one. Load sets it.
	Router bool

	// Recipe is the recipe of a model that was made of another one; nil: the model is a file. No option sets it.
	Recipe *store.Recipe

	Tuning

	// MaxContext, in tokens, is what a front leaves for AutoContext; 0 = no limit.
	MaxContext int
	// Place is the place that the front or FitMemory has chosen for the model; nil: the engine chooses, by GPULayers.
	Place *Place

	contextNote string // what FitMemory returned

	layers layers
}

// Values of --speculate besides numbers.
const (
	speculateAuto = "auto"
	speculateOff  = "off"
)

// Values of --power.
const (
	PowerAuto  = "auto"
	PowerFast  = "fast"
	PowerQuiet = "quiet"
)

// Limits of options.
const (
	maxFrameBytesLimit = wire.MaxFrameBytes
	maxParallel        = core.MaxSequences - 8 // 8 sequences serve probe forks, snapshots and restores
	minCtxSize         = gguf.MinContext
)

// NewFlagSet returns the options, a Config with their defaults that they set, and their sections for --help.
func NewFlagSet() (*pflag.FlagSet, *Config, []Section) {
	c := &Config{Meridian: meridian.DefaultConfig(), Tuning: DefaultTuning()}
	fs := pflag.NewFlagSet("uma-serve", pflag.ContinueOnError)
	fs.SortFlags = false
	sections := c.sections()
	for _, s := range sections {
		fs.AddFlagSet(s.Flags)
	}
	c.layers.options = fs
	return fs, c, sections
}
