package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/host/sockpath"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/model/gguf"
	chattmpl "github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/telemetry"
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
	CtxSize      int
	Parallel     int
	BatchSize    int
	UBatchSize   int
	Threads      int
	ThreadsBatch int
	FixedThreads bool
	Power        string // powerAuto, powerFast or powerQuiet
	GPULayers    int
	FlashAttn    string
	CacheTypeK   string
	CacheTypeV   string
	MLock        bool
	NoMMap       bool
	NoRepack     bool
	NoKVOffload  bool
	Kernels      string
	Seed         int64 // < 0: a new one for each request that names none

	// Embeddings.
	Pooling        string // "" = as the model's file says
	EmbeddingSizes string // numbers, "any", or "" = none but the full one

	// Socket and limits.
	Socket         string
	SocketMode     string // octal
	SocketGroup    string
	Listen         []string // TCP addresses
	ListenMode     string   // octal
	ListenGroup    string
	APIKeys        string   // file; "" = none
	AllowedHosts   []string // further values of the Host header
	CORSOrigins    []string
	MaxSessions    int // connections
	MaxQueue       int // requests waiting
	MaxFrameBytes  int
	MaxPromptBytes int
	MaxTokens      int // default and maximum of a request's max_tokens; 0 = as many as fit in the context
	IdleTimeout    time.Duration
	HeaderTimeout  time.Duration // of an HTTP request
	BodyTimeout    time.Duration // of an HTTP body, a frame or a line
	StallTimeout   time.Duration
	WhileLoading   string // loadingWait or loadingRefuse

	// Scheduling.
	Policy        string
	TickBudgetMs  float64
	StartBudget   int // tokens
	GuardMs       float64
	MaxBackground int // background requests that run at the same time; 0 = Parallel
	Speculate     string
	DraftModel    string // file or name; "" = none
	DraftCtxSize  int    // tokens

	// Thinking. Meridian.ITLTargetMs is --itl-target-ms, Meridian.ThinkFloorMs --think-floor-ms.
	Meridian    meridian.Config
	ThinkBudget int // --think-budget; Load copies it to Meridian.MaxThinkTokens unless it is -1

	// The KV cache.
	NoPrefixCache          bool
	SharePrefixes          string // off, system
	KVBlockTokens          int
	ThinkEvict             string // none, offload, drop: see core.OffloadThoughts
	ContextShift           bool
	CacheRAM               Size   // "auto": a share of free memory; 0 = no host tier
	CacheDir               string // "" = no disk tier
	CacheDisk              Size
	SlotSavePath           string // "" = llama-server's slots are not saved
	Fabric                 string // URL; "" = none
	FabricTTL              time.Duration
	OffloadThresholdBlocks int

	// A front and its engine processes.
	Single      bool
	Memory      Size // "auto": a share of what is free
	IdleUnload  time.Duration
	StepTimeout time.Duration
	ServeFound  bool // models of this machine that have no table
	Sandbox     bool
	Arbiter     bool

	// Process.
	ShutdownTimeout time.Duration
	LogFormat       string
	LogLevel        string
	Progress        bool // draw a bar while the model loads, when stderr is a terminal

	// Models are the [models.NAME] tables of the file, by name.
	Models []ModelConfig

	Trace string // file for the trace of all decisions; "" = none

	MetricsFile string // for the metrics at SIGUSR1; "" = the log

	Telemetry         string // URL of an OTLP collector; "" = none
	TelemetryInterval time.Duration
	TelemetrySample   float64

	ConfigFile string // --config, or the default file that Load found; "" = none

	// Puller downloads the model of --hf-repo; nil = this program cannot.
	Puller store.Puller `json:"-"`

	Warnings []string // of Load, for the log

	layers layers
}

// defaultCtxSize is the default of --ctx-size in tokens, for models whose training context is at least as long.
const defaultCtxSize = gguf.DefaultContext

// Values of --while-loading.
const (
	loadingWait   = "wait"
	loadingRefuse = "refuse"
)

// Values of --power.
const (
	powerAuto  = "auto"
	powerFast  = "fast"
	powerQuiet = "quiet"
)

// Limits of options.
const (
	maxFrameBytesLimit = wire.MaxFrameBytes
	maxParallel        = core.MaxSequences - 8 // 8 sequences serve probe forks, snapshots and restores
	minCtxSize         = gguf.MinContext
)

// Section is a group of options under one heading of --help.
type Section struct {
	Title string
	Flags *pflag.FlagSet
}

// sections declares every option once: name, llama-server's short name, default and help.
func (c *Config) sections() []Section {
	var out []Section
	section := func(title string) *pflag.FlagSet {
		fs := pflag.NewFlagSet(title, pflag.ContinueOnError)
		fs.SortFlags = false
		out = append(out, Section{title, fs})
		return fs
	}

	fs := section("Model and engine")
	fs.StringVarP(&c.Model, "model", "m", "", "`FILE|NAME` of the model to serve: a GGUF file, or a name such as "+
		"qwen3:8b or hf.co/org/repo:Q4_K_M; uma-cli models lists the names (default: the built-in demonstration model)")
	fs.StringVar(&c.HFRepo, "hf-repo", "", "serve the Hugging Face model `ORG/REPO[:QUANT]`; download it if it is "+
		"not on disk (-hf)")
	fs.StringVar(&c.ModelsDir, "models-dir", "", "`directory` of the models that uma-serve downloads (default: "+
		"$XDG_DATA_HOME/uma-serve/models; for root: /var/lib/uma-serve/models)")
	fs.BoolVar(&c.Offline, "offline", false, "never download: serve only models that are on disk")
	fs.IntVarP(&c.CtxSize, "ctx-size", "c", defaultCtxSize, "KV cache size in `tokens`, shared by all requests; 0 = "+
		"the model's training context, which also limits the default")
	fs.StringVar(&c.ChatTemplate, "chat-template", "", "use the chat template `FILE|NAME` instead of the model's: "+
		"a Jinja file, or one of "+strings.Join(chattmpl.BuiltinNames(), ", "))
	fs.IntVar(&c.Parallel, "parallel", 16, "maximum requests that run at the same time, 1…248 (-np)")
	fs.IntVarP(&c.BatchSize, "batch-size", "b", 2048, "maximum `tokens` per decode step")
	fs.IntVar(&c.UBatchSize, "ubatch-size", 512, "physical batch size: maximum `tokens` per device pass (-ub)")
	fs.IntVarP(&c.Threads, "threads", "t", 0, "maximum compute threads; 0 = one per fast physical core, within the "+
		"CPU quota of the cgroup")
	fs.IntVar(&c.ThreadsBatch, "threads-batch", 0, "compute threads for prompt processing; 0 = same as --threads (-tb)")
	fs.BoolVar(&c.FixedThreads, "fixed-threads", false, "always use all compute threads, even while other processes "+
		"occupy the processors")
	fs.StringVar(&c.Power, "power", powerAuto, "speed or energy: fast (all compute threads), quiet (half of them, "+
		"less energy per token) or auto (quiet on battery)")
	fs.IntVar(&c.GPULayers, "gpu-layers", -1, "layers to store on the GPU, if there is one; -1 = all, 0 = none (-ngl)")
	fs.StringVar(&c.FlashAttn, "flash-attn", "auto", "flash attention: on, off or auto (-fa)")
	fs.StringVar(&c.CacheTypeK, "cache-type-k", "f16", "data type of the K cache: f32, f16, bf16, q8_0, q4_0, … (-ctk)")
	fs.StringVar(&c.CacheTypeV, "cache-type-v", "f16", "data type of the V cache; quantised types need flash "+
		"attention (-ctv)")
	fs.BoolVar(&c.NoKVOffload, "no-kv-offload", false, "keep the KV cache in host memory even if layers are on the "+
		"GPU: longer contexts, slower answers (-nkvo)")
	fs.BoolVar(&c.MLock, "mlock", false, "lock the model in RAM; never swap it")
	fs.BoolVar(&c.NoMMap, "no-mmap", false, "read the model into memory instead of memory-mapping the file")
	fs.BoolVar(&c.NoRepack, "no-repack", false, "do not repack the weights that --kernels leaves to ggml (Q2_K, "+
		"experts): less memory, slower prompts (-nr)")
	fs.StringVar(&c.Kernels, "kernels", "auto", "CPU `kernels`: auto (the fastest this processor has), amx, "+
		"avx512, avxvnni, avx2, i8mm, neon, or ggml (llama.cpp's)")
	fs.Int64VarP(&c.Seed, "seed", "s", -1, "default sampling seed of requests; -1 = a new random seed for each request")
	fs.StringVar(&c.Pooling, "pooling", "", "pooling of hidden states into an embedding: none (one embedding per "+
		"token), mean, cls (first token) or last (last token) (default: what the GGUF file says)")
	fs.StringVar(&c.EmbeddingSizes, "embedding-sizes", "", "dimensions to which clients may shorten embeddings, "+
		"for models trained for it (Matryoshka): numbers separated by commas, or any")

	fs = section("Socket and limits")
	fs.StringVar(&c.Socket, "socket", "", "Unix socket `path` to listen on (default: "+
		"$XDG_RUNTIME_DIR/uma-serve/uma.sock)")
	fs.StringVar(&c.SocketMode, "socket-mode", "0600", "permissions of the socket file, octal")
	fs.StringVar(&c.SocketGroup, "socket-group", "", "group of the socket file")
	c.listenOptions(fs)
	fs.IntVar(&c.MaxSessions, "max-sessions", 4096, "maximum open connections")
	fs.IntVar(&c.MaxQueue, "max-queue", 512, "maximum queued requests; more are refused with a retry hint")
	fs.IntVar(&c.MaxFrameBytes, "max-frame-bytes", 1<<20, "maximum size of a request frame in bytes, below 16 MiB")
	fs.IntVar(&c.MaxPromptBytes, "max-prompt-bytes", 1<<20, "maximum prompt text of a request in bytes")
	fs.IntVarP(&c.MaxTokens, "max-tokens", "n", 0, "maximum tokens per answer, and the default max_tokens of "+
		"requests; 0 = as many as fit in the context")
	fs.DurationVar(&c.HeaderTimeout, "header-timeout", 10*time.Second, "time limit for an HTTP request's header, "+
		"from its first byte; 0 = none")
	fs.DurationVar(&c.BodyTimeout, "body-timeout", 30*time.Second, "time limit for an HTTP body, a frame or a line, "+
		"from its first byte; 0 = none")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close connections that have no request for this long; 0 = "+
		"never (HTTP: 2m)")
	fs.DurationVar(&c.StallTimeout, "stall-timeout", 2*time.Minute, "close connections whose client reads nothing "+
		"for this long, and cancel their requests; 0 = never")
	fs.StringVar(&c.WhileLoading, "while-loading", loadingWait, "requests that arrive while the model loads: wait "+
		"(up to --max-queue) or refuse (with a retry hint)")

	fs = section("Scheduling")
	fs.StringVar(&c.Policy, "policy", "meridian", "scheduling policy: "+policyHelp)
	fs.Float64Var(&c.Meridian.ITLTargetMs, "itl-target-ms", float64(sched.DefaultITLTarget.Milliseconds()),
		"policies meridian and pascal: inter-token latency (ITL) target of answers, in `ms`; prompts and thinking "+
			"get the rest of each step. slo.target_tbt_ms overrides it per request")
	fs.Float64Var(&c.Meridian.ThinkFloorMs, "think-floor-ms", float64(sched.DefaultThinkFloor.Milliseconds()),
		"policy meridian: maximum time between two thinking tokens of a request, and between two tokens of a "+
			"background answer, in `ms`, even if answers miss their ITL target")
	fs.Float64Var(&c.TickBudgetMs, "tick-budget-ms", 30, "policy uma: target duration of a decode step, in `ms`")
	fs.IntVar(&c.StartBudget, "start-budget", sched.DefaultStartBudget, "policies uma, meridian and pascal: maximum "+
		"`tokens` of a step with prompt work, until the cost model has measured larger steps on this machine")
	fs.Float64Var(&c.GuardMs, "latency-guard-ms", 100, "policy uma: pause prompt processing while an interactive "+
		"answer has waited this long for its next token, in `ms`; 0 = off")
	fs.IntVar(&c.MaxBackground, "max-background", 0, "maximum background requests that run at the same time; 0 = "+
		"--parallel")
	fs.StringVar(&c.Speculate, "speculate", speculateAuto, "speculative decoding without a draft model: draft the "+
		"next tokens of an answer from its own text and from cached texts of the same user, and verify them in one "+
		"step where that is expected to save time: auto, off, or at most `N` tokens a step (1…16). Answers stay "+
		"the same")
	fs.StringVar(&c.DraftModel, "draft-model", "", "`FILE|NAME` of a draft model for speculative decoding: a small "+
		"model with the same vocabulary, used where it is expected to save time. It serves the default model only; a "+
		"[models.NAME] table names the draft model of another one (-md)")
	fs.IntVar(&c.DraftCtxSize, "draft-ctx-size", defaultDraftCtxSize, "KV cache size of --draft-model in `tokens`, "+
		"shared by the requests that it drafts for; at most --ctx-size and its training context (-cd)")

	fs = section("Thinking")
	fs.Var(textFlag{&c.Meridian.ThinkMode}, "think", "default thinking mode of requests: auto (the model decides), "+
		"off or on")
	fs.IntVar(&c.ThinkBudget, "think-budget", -1, "maximum thinking `tokens` per answer; requests may ask for fewer. "+
		"0 = no thinking, -1 = max_think_tokens of [meridian] (32768)")
	fs.Var(textFlag{&c.Meridian.EarlyExit}, "early-exit", "default early exit from thinking: off, eat (when the "+
		"answer has converged), rpdi (when the thinking drifts) or both")
	fs.Var(&meridianFlag{c: c}, "meridian", "set a key of the file's [meridian] table, such as "+
		"eat_ema_variance_threshold=0.001; repeatable")

	fs = section("KV cache")
	fs.BoolVar(&c.NoPrefixCache, "no-prefix-cache", false, "do not cache or share prompts: compute each from its "+
		"first token")
	fs.StringVar(&c.SharePrefixes, "share-prefixes", "off", "prefixes shared between users: off (none) or system "+
		"(system prompts)")
	fs.IntVar(&c.KVBlockTokens, "kv-block-tokens", blocks.DefaultBlockCells,
		"`tokens` per block in the KV block accounting")
	fs.StringVar(&c.ThinkEvict, "think-evict", "none", "KV cells of a finished thought: none (keep them), offload "+
		"(keep them and copy them to the --fabric, or to a quarter of --cache-ram: a preempted request then gives up "+
		"these cells first; they are restored before it continues) or drop (remove them when cells run low; changes "+
		"answers)")
	fs.BoolVar(&c.ContextShift, "context-shift", false, "when the context is full, drop its oldest half and "+
		"continue, instead of ending the answer with reason length")
	c.CacheRAM, c.CacheDisk = sizeOf("auto"), sizeOf("10GiB")
	fs.Var(&c.CacheRAM, "cache-ram", `host memory for prefixes evicted from the KV cache: a size such as 512MiB, a `+
		`percentage of free memory, or auto (25%); 0 = none; a bare number is MiB (-cram)`)
	fs.StringVar(&c.CacheDir, "cache-dir", "", "`directory` for KV snapshots, which survive a restart (default: "+
		"none); with [models.NAME] tables, each table's model has a subdirectory and other models store no snapshots")
	fs.Var(&c.CacheDisk, "cache-disk", "maximum disk space of a model's snapshots in --cache-dir")
	fs.StringVar(&c.SlotSavePath, "slot-save-path", "", "`directory` for POST /slots/{id}?action=save of "+
		"llama-server's API. A file holds the tokens of a slot; its KV cells go to --cache-ram and --cache-dir "+
		"(default: none)")
	fs.StringVar(&c.Fabric, "fabric", "", "`URL` of a store that shares prefixes between machines: valkey://host, "+
		"redis://host; for tests nixl-synth, mooncake-synth+URL. Put a URL with a password into UMA_FABRIC, because "+
		"ps shows the command line")
	fs.DurationVar(&c.FabricTTL, "fabric-ttl", 0, "how long the fabric keeps an unused prefix; 0 = the ttl of the URL")
	fs.IntVar(&c.OffloadThresholdBlocks, "offload-threshold-blocks", 4,
		"KV blocks to collect before a write to the fabric")

	c.frontOptions(section("Several models"))

	fs = section("Process")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 30*time.Second,
		"on SIGTERM, SIGINT or SIGHUP, stop within this time: running requests may finish, and the last quarter (5s "+
			"at most) is for writing cached prefixes to --cache-dir and --fabric; a second signal stops at once")
	fs.StringVar(&c.LogFormat, "log-format", "text", "log format: text or json")
	fs.StringVar(&c.LogLevel, "log-level", "info", "log level: debug, info, warn or error (UMA_DEBUG=1 means debug)")
	fs.BoolVar(&c.Progress, "progress", true, "on a terminal, show a progress bar while the model loads")
	fs.StringVar(&c.Trace, "trace", "", "record all scheduling decisions and token ids to `file`, for uma-sim replay "+
		"--steps and run --uma-trace")
	fs.StringVar(&c.MetricsFile, "metrics-file", "", "on SIGUSR1, append the metrics to this `file` as a line of JSON "+
		"(default: to the log)")
	fs.StringVar(&c.Telemetry, "telemetry-endpoint", "", "`URL` of an OpenTelemetry collector for traces and metrics: "+
		"http://HOST:4318, https://…, grpc://HOST:4317 or grpcs://…")
	fs.DurationVar(&c.TelemetryInterval, "telemetry-interval", 10*time.Second,
		"time between two exports of the metrics")
	fs.Float64Var(&c.TelemetrySample, "telemetry-sample", 1,
		"`share` of requests that are traced, 0…1; a request with "+
			"a traceparent is traced if its client traces it")
	fs.StringVar(&c.ConfigFile, "config", "", "TOML configuration `file`; flags and UMA_* variables override it "+
		"(default: $XDG_CONFIG_HOME/uma-serve/uma-serve.toml, else /etc/uma-serve/uma-serve.toml, if it exists); "+
		"\"\" = none")
	return out
}

// llamaNames maps other names of options to ours: llama-server's single-dash names of several letters, which pflag
// would parse as several one-letter flags, and names that other servers use.
var llamaNames = map[string]string{
	"-hf": "--hf-repo", "-hfr": "--hf-repo", "-np": "--parallel", "-ngl": "--gpu-layers",
	"--n-gpu-layers": "--gpu-layers", "-fa": "--flash-attn", "-nr": "--no-repack", "-nkvo": "--no-kv-offload",
	"-ub": "--ubatch-size", "-tb": "--threads-batch", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v",
	"--predict": "--max-tokens", "--n-predict": "--max-tokens", "--uds": "--socket",
	"--max-num-seqs": "--parallel", "--max-num-batched-tokens": "--batch-size",
	"--max-num-queued-reqs": "--max-queue", "--chat-template-file": "--chat-template",

	"--scheduling-policy": "--policy",

	"-md": "--draft-model", "--model-draft": "--draft-model", "--spec-draft-model": "--draft-model",
	"-cd": "--draft-ctx-size", "--ctx-size-draft": "--draft-ctx-size",

	"--draft": "--speculate", "--draft-n": "--speculate", "--draft-max": "--speculate",

	"-cram": "--cache-ram", "-rea": "--think", "--reasoning": "--think", "--reasoning-budget": "--think-budget",
}

// policyHelp describes sched.Policies for --help; a test checks that it is complete.
const policyHelp = "meridian (answers meet --itl-target-ms; prompts and thinking share the rest), uma (prompt chunks " +
	"of a fixed time next to running answers), stock (as llama-server), " +
	"pascal (thinking first, answers at reading speed) or meridian_static (fixed shares of each batch for answers " +
	"and thinking; for comparisons only)"

// NormalizeArgs rewrites llamaNames in a command line. "-fa" alone means on, as it did in older llama-servers.
func NormalizeArgs(args []string) []string {
	out := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" {
			return append(out, args[i:]...)
		}
		name, value, hasValue := strings.Cut(a, "=")
		long, ok := llamaNames[name]
		if !ok {
			out = append(out, a)
			continue
		}
		if hasValue {
			long += "=" + value
		} else if name == "-fa" && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			long += "=on"
		}
		out = append(out, long)
	}
	return out
}

// unquantised are the types of V cells that need no flash attention.
var unquantised = []string{"f32", "f16", "bf16"}

// Choices are the values of the options that take one of several words, for Validate and shell completion.
var Choices = map[string][]string{
	"flash-attn":     {"auto", "on", "off"},
	"kernels":        {"auto", "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "ggml"},
	"power":          {powerAuto, powerFast, powerQuiet},
	"cache-type-k":   gguf.CacheTypes(),
	"cache-type-v":   gguf.CacheTypes(),
	"policy":         sched.Policies(),
	"share-prefixes": {"off", "system"},
	"speculate":      {speculateAuto, speculateOff},
	"while-loading":  {loadingWait, loadingRefuse},
	"think":          {"auto", "off", "on"},
	"early-exit":     {"off", "eat", "rpdi", "both"},
	"think-evict":    {"none", "offload", "drop"},
	"pooling":        {"none", "mean", "cls", "last"},
	"log-format":     {"text", "json"},
	"log-level":      {"debug", "info", "warn", "error"},
}

// Validate returns an error for each option out of its range, with its name and range.
func (c *Config) Validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	within := func(name string, v, lo, hi int) {
		bad(v >= lo && v <= hi, "--%s is %d; it must be %d…%d", name, v, lo, hi)
	}
	bad(c.CtxSize == 0 || c.CtxSize >= minCtxSize && c.CtxSize <= 1<<27, "--ctx-size is %d; it must be %d…%d, or 0 "+
		"for the model's training context", c.CtxSize, minCtxSize, 1<<27)
	bad(c.CtxSize == 0 || c.CtxSize < minCtxSize || c.CtxSize >= c.Parallel, "--ctx-size is %d; it must be at least "+
		"--parallel (%d): each running request needs at least one cell", c.CtxSize, c.Parallel)
	within("parallel", c.Parallel, 1, maxParallel)
	within("draft-ctx-size", c.DraftCtxSize, minCtxSize, 1<<27)
	within("batch-size", c.BatchSize, 1, 1<<20)
	within("ubatch-size", c.UBatchSize, 1, 1<<20)
	within("threads", c.Threads, 0, 4*max(runtime.NumCPU(), 16))
	within("threads-batch", c.ThreadsBatch, 0, 4*max(runtime.NumCPU(), 16))
	within("gpu-layers", c.GPULayers, -1, 1<<16)
	within("max-sessions", c.MaxSessions, 1, 1<<20)
	within("max-queue", c.MaxQueue, 0, 1<<20)
	within("max-frame-bytes", c.MaxFrameBytes, 256, maxFrameBytesLimit)
	within("max-prompt-bytes", c.MaxPromptBytes, 1, maxFrameBytesLimit)
	within("max-tokens", c.MaxTokens, 0, 1<<27)
	within("max-background", c.MaxBackground, 0, core.MaxSequences)
	bad(c.BatchSize >= c.Parallel, "--batch-size is %d; it must be at least --parallel (%d): each running answer "+
		"needs a row", c.BatchSize, c.Parallel)
	bad(c.TickBudgetMs >= 1 && c.TickBudgetMs <= 60_000, "--tick-budget-ms is %g; it must be 1…60000", c.TickBudgetMs)
	within("start-budget", c.StartBudget, 1, 1<<20)
	bad(c.GuardMs >= 0 && c.GuardMs <= 60_000, "--latency-guard-ms is %g; it must be 0…60000", c.GuardMs)
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"header-timeout", c.HeaderTimeout}, {"body-timeout", c.BodyTimeout}, {"idle-timeout", c.IdleTimeout},
		{"stall-timeout", c.StallTimeout}, {"shutdown-timeout", c.ShutdownTimeout}} {
		bad(d.v >= 0, "--%s is %v; it must not be negative", d.name, d.v)
	}
	oneOf := func(name, v string, allowed ...string) {
		bad(slices.Contains(allowed, v), "--%s is %q; it must be %s", name, v, strings.Join(allowed, " or "))
	}
	if c.HFRepo != "" {
		if _, err := c.hubName(); err != nil {
			errs = append(errs, fmt.Errorf("--hf-repo: %w", err))
		}
	}
	oneOf("flash-attn", c.FlashAttn, Choices["flash-attn"]...)
	oneOf("kernels", c.Kernels, Choices["kernels"]...)
	oneOf("power", c.Power, Choices["power"]...)
	oneOf("cache-type-k", c.CacheTypeK, Choices["cache-type-k"]...)
	oneOf("cache-type-v", c.CacheTypeV, Choices["cache-type-v"]...)
	bad(c.FlashAttn != "off" || slices.Contains(unquantised, c.CacheTypeV), "--cache-type-v is %q; with --flash-attn "+
		"off it must be %s: llama.cpp supports a quantised V cache only with flash attention", c.CacheTypeV,
		strings.Join(unquantised, " or "))
	oneOf("policy", c.Policy, Choices["policy"]...)
	if _, err := c.speculation(); err != nil {
		errs = append(errs, err)
	}
	if c.ChatTemplate != "" {
		text, _, err := loadTemplate(c.ChatTemplate)
		if err == nil {
			_, err = chattmpl.Compile(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--chat-template is %q; %w", c.ChatTemplate, err))
		}
	}
	oneOf("while-loading", c.WhileLoading, Choices["while-loading"]...)
	bad(c.Policy != "stock" && c.Policy != "meridian_static" || c.MaxBackground == 0,
		"--max-background is %d; with --policy %s it must be 0: that policy has no priority classes", c.MaxBackground,
		c.Policy)
	oneOf("share-prefixes", c.SharePrefixes, Choices["share-prefixes"]...)
	oneOf("think-evict", c.ThinkEvict, Choices["think-evict"]...)
	if c.ThinkEvict == core.OffloadThoughts {
		bad(!c.NoPrefixCache, "--think-evict is offload and --no-prefix-cache is set; nothing is stored then: remove "+
			"one of them")
		ram, fixed := c.CacheRAM.Of(1 << 30)
		bad(ram > 0 || !fixed, "--think-evict is offload and --cache-ram is 0; thoughts have no place then: set "+
			"--cache-ram above 0")
	}
	if c.Pooling != "" {
		oneOf("pooling", c.Pooling, Choices["pooling"]...)
	}
	if _, _, err := c.embeddingSizes(); err != nil {
		errs = append(errs, err)
	}
	within("kv-block-tokens", c.KVBlockTokens, 1, 1<<16)
	within("offload-threshold-blocks", c.OffloadThresholdBlocks, 1, 1<<16)
	within("think-budget", c.ThinkBudget, -1, 1<<24)
	if c.Telemetry != "" {
		if _, err := telemetry.ParseEndpoint(c.Telemetry); err != nil {
			errs = append(errs, fmt.Errorf("--telemetry-endpoint: %w", err))
		}
	}
	bad(c.TelemetryInterval >= time.Second && c.TelemetryInterval <= time.Hour,
		"--telemetry-interval is %v; it must be "+
			"1s…1h", c.TelemetryInterval)
	bad(c.TelemetrySample >= 0 && c.TelemetrySample <= 1, "--telemetry-sample is %g; it must be 0…1", c.TelemetrySample)
	bad(c.FabricTTL >= 0, "--fabric-ttl is %v; it must not be negative", c.FabricTTL)
	bad(c.FabricTTL == 0 || c.Fabric != "", "--fabric-ttl is %v; it needs a --fabric", c.FabricTTL)
	if err := c.CacheDisk.absolute(); err != nil {
		errs = append(errs, fmt.Errorf("--cache-disk is %q; %w", c.CacheDisk.String(), err))
	}
	bad(c.CacheDir == "" || c.CacheDisk.Bytes != 0, "--cache-dir is %q and --cache-disk is 0; set --cache-disk above "+
		"0, or remove --cache-dir", c.CacheDir)
	// Package meridian checks these two as well, but under the names of its TOML keys.
	itl, floor := c.Meridian.ITLTargetMs, c.Meridian.ThinkFloorMs
	known := itl >= 1 && itl <= 60_000 && floor >= 1 && floor <= 60_000
	bad(itl >= 1 && itl <= 60_000, "--itl-target-ms is %g; it must be 1…60000", itl)
	bad(floor >= 1 && floor <= 60_000, "--think-floor-ms is %g; it must be 1…60000", floor)
	if known {
		if err := c.Meridian.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	oneOf("log-format", c.LogFormat, Choices["log-format"]...)
	if _, err := c.logLevel(); err != nil {
		errs = append(errs, err)
	}
	if _, err := socketMode("socket-mode", c.SocketMode); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.validateListen()...)
	errs = append(errs, c.validateFront())
	return errors.Join(errs...)
}

func (c *Config) logLevel() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("--log-level is %q; it must be debug, info, warn or error", c.LogLevel)
	}
	return l, nil
}

// NewFlagSet returns the options, a Config with their defaults that they set, and their sections for --help.
func NewFlagSet() (*pflag.FlagSet, *Config, []Section) {
	c := &Config{Meridian: meridian.DefaultConfig()}
	fs := pflag.NewFlagSet("uma-serve", pflag.ContinueOnError)
	fs.SortFlags = false
	sections := c.sections()
	for _, s := range sections {
		fs.AddFlagSet(s.Flags)
	}
	c.layers.options = fs
	return fs, c, sections
}

// socketPath is the path of the Unix socket, unless systemd passes a socket.
func (c *Config) socketPath() string {
	if c.Socket != "" {
		return c.Socket
	}
	return sockpath.Default()
}

// privileged reports whether a peer is an operator, who may see all users' requests and prefixes: root or the server's
// user.
func (c *Config) privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }
