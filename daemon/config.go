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
	"github.com/uma-serve/uma-serve/internal/chattmpl"
	"github.com/uma-serve/uma-serve/internal/gguf"
	"github.com/uma-serve/uma-serve/internal/sockpath"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched"
)

// Config is everything an operator can set, after Load has merged defaults < file < UMA_* environment < flags. Every
// field of an option has exactly one flag, whose name is also its TOML key and, upper-cased with underscores and UMA_ in
// front, its environment variable. Meridian has a table of the file for its many fields,
// --meridian for any of them, and options of their own for the few that people ask for.
type Config struct {
	// Model and engine; names as in llama-server.
	Model        string
	ChatTemplate string // name or file; "" = the model's own
	CtxSize      int
	Parallel     int
	BatchSize    int
	UBatchSize   int
	Threads      int
	ThreadsBatch int
	GPULayers    int
	FlashAttn    string
	CacheTypeK   string
	CacheTypeV   string
	MLock        bool
	NoMMap       bool
	NoRepack     bool
	Kernels      string
	Seed         int64 // < 0: a new one for each request that names none

	// Socket and limits.
	Socket         string
	SocketMode     string // octal
	SocketGroup    string
	Listen         []string // TCP addresses
	ListenMode     string   // octal
	ListenGroup    string
	APIKeys        string   // file; "" = none
	AllowedHosts   []string // of the Host header, besides our own
	CORSOrigins    []string
	MaxSessions    int // connections
	MaxQueue       int // requests waiting
	MaxFrameBytes  int
	MaxPromptBytes int
	MaxTokens      int // default and cap of a request's max_tokens; 0 = what the context has room for
	IdleTimeout    time.Duration
	HeaderTimeout  time.Duration // of an HTTP request
	BodyTimeout    time.Duration // of an HTTP body, a frame or a line
	StallTimeout   time.Duration
	WhileLoading   string // loadingWait or loadingRefuse

	// Scheduling.
	Policy        string
	TickBudgetMs  float64
	GuardMs       float64
	MaxBackground int // background requests running at once; 0 = no cap of their own

	// Thinking. Meridian.ITLTargetMs is --itl-target-ms, Meridian.ThinkFloorMs --think-floor-ms.
	Meridian    meridian.Config
	ThinkBudget int // --think-budget; -1: Meridian.MaxThinkTokens stands. Load copies it there; no other code reads it

	// The KV cache.
	NoPrefixCache          bool
	SharePrefixes          string // off, system
	KVBlockTokens          int
	ThinkEvict             string // none, offload (a copy beside the pool), drop
	ContextShift           bool
	CacheRAM               Size   // "auto": a share of what is free; 0 = no host tier
	CacheDir               string // "" = no disk tier
	CacheDisk              Size
	Fabric                 string // URL; "" = none
	FabricTTL              time.Duration
	OffloadThresholdBlocks int

	// Process.
	ShutdownTimeout time.Duration
	LogFormat       string
	LogLevel        string
	Progress        bool // draw a bar while the model loads, when stderr is a terminal

	Trace string // file that the scheduler's events and plans are recorded to; "" = none

	ConfigFile string // --config, or the default file that Load found; "" = none

	Warnings []string // what Load saw that is no error, for the log

	layers layers
}

// defaultCtxSize is the context of a model that was trained on as much or more.
const defaultCtxSize = 4096

// Values of --while-loading.
const (
	loadingWait   = "wait"
	loadingRefuse = "refuse"
)

// Limits that hold whatever the configuration says.
const (
	maxFrameBytesLimit = wire.MaxFrameBytes
	maxParallel        = core.MaxSequences - 8 // the rest: probe forks, snapshots, restores
	minCtxSize         = 64                    // a chat template alone takes some dozens; llama.cpp cuts the batch to a smaller context
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
	fs.StringVarP(&c.Model, "model", "m", "", "GGUF `file` to serve (default: the built-in demonstration model)")
	fs.IntVarP(&c.CtxSize, "ctx-size", "c", defaultCtxSize, "KV cache size in `tokens`, shared by all requests; 0 = the model's training context, which also limits the default")
	fs.StringVar(&c.ChatTemplate, "chat-template", "", "use this chat template instead of the model's: `FILE|NAME`, a Jinja file or one of "+strings.Join(chattmpl.BuiltinNames(), ", "))
	fs.IntVar(&c.Parallel, "parallel", 16, "maximum requests that run at the same time, 1…248 (-np)")
	fs.IntVarP(&c.BatchSize, "batch-size", "b", 2048, "maximum `tokens` per decode step")
	fs.IntVar(&c.UBatchSize, "ubatch-size", 512, "physical batch size: maximum `tokens` per device pass (-ub)")
	fs.IntVarP(&c.Threads, "threads", "t", 0, "compute threads; 0 = one per physical core")
	fs.IntVar(&c.ThreadsBatch, "threads-batch", 0, "compute threads for prompt processing; 0 = same as --threads (-tb)")
	fs.IntVar(&c.GPULayers, "gpu-layers", -1, "layers to store on the GPU, if there is one; -1 = all, 0 = none (-ngl)")
	fs.StringVar(&c.FlashAttn, "flash-attn", "auto", "flash attention: on, off or auto (-fa)")
	fs.StringVar(&c.CacheTypeK, "cache-type-k", "f16", "data type of the K cache: f32, f16, bf16, q8_0, q4_0, … (-ctk)")
	fs.StringVar(&c.CacheTypeV, "cache-type-v", "f16", "data type of the V cache; quantised types need flash attention (-ctv)")
	fs.BoolVar(&c.MLock, "mlock", false, "lock the model in RAM; never swap it")
	fs.BoolVar(&c.NoMMap, "no-mmap", false, "read the model into memory instead of memory-mapping the file")
	fs.BoolVar(&c.NoRepack, "no-repack", false, "disable weight repacking for the CPU kernels: less memory, but slower prompts with what --kernels leaves to ggml: Q2_K, experts (-nr)")
	fs.StringVar(&c.Kernels, "kernels", "auto", "CPU `kernels` for products of weights and attention: auto (the fastest that the processor has), avx512, avxvnni, avx2, neon, or ggml for those of llama.cpp")
	fs.Int64VarP(&c.Seed, "seed", "s", -1, "default sampling seed of requests; -1 = a new random seed for each request")

	fs = section("Socket and limits")
	fs.StringVar(&c.Socket, "socket", "", "Unix socket `path` to listen on (default: $XDG_RUNTIME_DIR/uma-serve/uma.sock)")
	fs.StringVar(&c.SocketMode, "socket-mode", "0600", "permissions of the socket file, octal")
	fs.StringVar(&c.SocketGroup, "socket-group", "", "group of the socket file")
	c.listenOptions(fs)
	fs.IntVar(&c.MaxSessions, "max-sessions", 4096, "maximum open connections")
	fs.IntVar(&c.MaxQueue, "max-queue", 512, "maximum queued requests; more are refused with a retry hint")
	fs.IntVar(&c.MaxFrameBytes, "max-frame-bytes", 1<<20, "maximum size of a request frame in bytes, below 16 MiB")
	fs.IntVar(&c.MaxPromptBytes, "max-prompt-bytes", 1<<20, "maximum prompt text of a request in bytes")
	fs.IntVarP(&c.MaxTokens, "max-tokens", "n", 0, "maximum tokens per answer, and the default max_tokens of requests; 0 = as many as fit in the context")
	fs.DurationVar(&c.HeaderTimeout, "header-timeout", 10*time.Second, "time limit for an HTTP request's header, from its first byte; 0 = none")
	fs.DurationVar(&c.BodyTimeout, "body-timeout", 30*time.Second, "time limit for an HTTP body, a frame or a line, from its first byte; 0 = none")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close connections that have no request for this long; 0 = never (HTTP: 2m)")
	fs.DurationVar(&c.StallTimeout, "stall-timeout", 2*time.Minute, "close connections whose client reads nothing for this long, and cancel their requests; 0 = never")
	fs.StringVar(&c.WhileLoading, "while-loading", loadingWait, "requests that arrive while the model loads: wait (up to --max-queue) or refuse (with a retry hint)")

	fs = section("Scheduling")
	fs.StringVar(&c.Policy, "policy", "meridian", "scheduling policy: "+policyHelp)
	fs.Float64Var(&c.Meridian.ITLTargetMs, "itl-target-ms", float64(sched.DefaultITLTarget.Milliseconds()), "policies meridian and pascal: inter-token latency (ITL) target of answers, in `ms`; prompts and thinking get the rest of each step. slo.target_tbt_ms overrides it per request")
	fs.Float64Var(&c.Meridian.ThinkFloorMs, "think-floor-ms", float64(sched.DefaultThinkFloor.Milliseconds()), "policy meridian: maximum time between two thinking tokens of a request, in `ms`, even if answers miss their ITL target")
	fs.Float64Var(&c.TickBudgetMs, "tick-budget-ms", 30, "policy uma: target duration of a decode step, in `ms`")
	fs.Float64Var(&c.GuardMs, "latency-guard-ms", 100, "policy uma: pause prompt processing while an interactive answer has waited this long for its next token, in `ms`; 0 = off")
	fs.IntVar(&c.MaxBackground, "max-background", 0, "maximum background requests that run at the same time; 0 = --parallel")

	fs = section("Thinking")
	fs.Var(textFlag{&c.Meridian.ThinkMode}, "think", "default thinking mode of requests: auto (the model decides), off or on")
	fs.IntVar(&c.ThinkBudget, "think-budget", -1, "maximum thinking `tokens` per answer; requests may ask for fewer. 0 = no thinking, -1 = max_think_tokens of [meridian] (32768)")
	fs.Var(textFlag{&c.Meridian.EarlyExit}, "early-exit", "default early exit from thinking: off, eat (when the answer has converged), rpdi (when the thinking drifts) or both")
	fs.Var(&meridianFlag{c: c}, "meridian", "set a key of the file's [meridian] table, such as eat_ema_variance_threshold=0.001; repeatable")

	fs = section("KV cache")
	fs.BoolVar(&c.NoPrefixCache, "no-prefix-cache", false, "do not cache or share prompts: compute each from its first token")
	fs.StringVar(&c.SharePrefixes, "share-prefixes", "off", "prefixes shared between users: off (none) or system (system prompts)")
	fs.IntVar(&c.KVBlockTokens, "kv-block-tokens", blocks.DefaultBlockCells, "`tokens` per block in the KV block accounting")
	fs.StringVar(&c.ThinkEvict, "think-evict", "none", "KV cells of a finished thought: none (keep them), offload (keep them and copy them to --cache-ram, so that a preempted request is restored without recomputing them) or drop (remove them when cells run low; changes answers)")
	fs.BoolVar(&c.ContextShift, "context-shift", false, "when the context is full, drop its oldest half and continue, instead of ending the answer with reason length")
	c.CacheRAM, c.CacheDisk = sizeOf("auto"), sizeOf("10GiB")
	fs.Var(&c.CacheRAM, "cache-ram", `host memory for prefixes evicted from the KV cache: a size such as 512MiB, a percentage of free memory, or auto (25%); 0 = none; a bare number is MiB (-cram)`)
	fs.StringVar(&c.CacheDir, "cache-dir", "", "`directory` for KV snapshots, which survive a restart (default: none)")
	fs.Var(&c.CacheDisk, "cache-disk", "maximum disk space of --cache-dir")
	fs.StringVar(&c.Fabric, "fabric", "", "`URL` of a store that shares prefixes between machines: valkey://host, redis://host, nixl-synth, mooncake-synth+URL. Put a password into UMA_FABRIC: ps shows the command line")
	fs.DurationVar(&c.FabricTTL, "fabric-ttl", 0, "how long the fabric keeps an unused prefix; 0 = as its URL says")
	fs.IntVar(&c.OffloadThresholdBlocks, "offload-threshold-blocks", 4, "blocks to collect for a write to the fabric")

	fs = section("Process")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "on SIGTERM, SIGINT or SIGHUP, stop within this time: running requests may finish, and the last quarter (5s at most) is for writing cached prefixes to --cache-dir and --fabric; a second signal stops at once")
	fs.StringVar(&c.LogFormat, "log-format", "text", "log format: text or json")
	fs.StringVar(&c.LogLevel, "log-level", "info", "log level: debug, info, warn or error (UMA_DEBUG=1 means debug)")
	fs.BoolVar(&c.Progress, "progress", true, "on a terminal, show a progress bar while the model loads")
	fs.StringVar(&c.Trace, "trace", "", "record all scheduling decisions and token ids to `file`, for uma-sim replay --steps and run --uma-trace")
	fs.StringVar(&c.ConfigFile, "config", "", "TOML configuration `file`; flags and UMA_* variables override it (default: $XDG_CONFIG_HOME/uma-serve/uma-serve.toml, else /etc/uma-serve/uma-serve.toml, if it exists); \"\" = none")
	return out
}

// llamaNames are llama-server's single-dash names of several letters, which pflag would read as a row of
// one-letter flags, and names of the same thing that users of other servers type.
var llamaNames = map[string]string{
	"-np": "--parallel", "-ngl": "--gpu-layers", "--n-gpu-layers": "--gpu-layers", "-fa": "--flash-attn", "-nr": "--no-repack",
	"-ub": "--ubatch-size", "-tb": "--threads-batch", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v",
	"--predict": "--max-tokens", "--n-predict": "--max-tokens", "--uds": "--socket",
	"--max-num-seqs": "--parallel", "--max-num-batched-tokens": "--batch-size",
	"--max-num-queued-reqs": "--max-queue", "--chat-template-file": "--chat-template", "--scheduling-policy": "--policy",
	"-cram": "--cache-ram", "-rea": "--think", "--reasoning": "--think", "--reasoning-budget": "--think-budget",
}

// policyHelp lists sched.Policies for --help; a test holds it complete.
const policyHelp = "meridian (answers meet --itl-target-ms; prompts and thinking share the rest), uma (prompt chunks of a fixed time next to running answers), stock (as llama-server), " +
	"pascal (thinking first, answers at reading speed) or meridian_static (Meridian's fixed shares)"

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

// Words are the values of the options that take one of a few words, for Validate and for a shell's completion.
var Words = map[string][]string{
	"flash-attn":     {"auto", "on", "off"},
	"kernels":        {"auto", "avx512", "avxvnni", "avx2", "neon", "ggml"},
	"cache-type-k":   gguf.CacheTypes(),
	"cache-type-v":   gguf.CacheTypes(),
	"policy":         sched.Policies(),
	"share-prefixes": {"off", "system"},
	"while-loading":  {loadingWait, loadingRefuse},
	"think":          {"auto", "off", "on"},
	"early-exit":     {"off", "eat", "rpdi", "both"},
	"think-evict":    {"none", "offload", "drop"},
	"log-format":     {"text", "json"},
	"log-level":      {"debug", "info", "warn", "error"},
}

// Validate says, for each option out of its range, which and what the range is.
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
	bad(c.CtxSize == 0 || c.CtxSize >= minCtxSize && c.CtxSize <= 1<<27, "--ctx-size is %d; it must be %d…%d, or 0 for the model's training context", c.CtxSize, minCtxSize, 1<<27)
	bad(c.CtxSize == 0 || c.CtxSize < minCtxSize || c.CtxSize >= c.Parallel, "--ctx-size is %d; it must be at least --parallel (%d): each running request needs at least one cell", c.CtxSize, c.Parallel)
	within("parallel", c.Parallel, 1, maxParallel)
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
	bad(c.BatchSize >= c.Parallel, "--batch-size is %d; it must be at least --parallel (%d): each running answer needs a row", c.BatchSize, c.Parallel)
	bad(c.TickBudgetMs >= 1 && c.TickBudgetMs <= 60_000, "--tick-budget-ms is %g; it must be 1…60000", c.TickBudgetMs)
	bad(c.GuardMs >= 0 && c.GuardMs <= 60_000, "--latency-guard-ms is %g; it must be 0…60000", c.GuardMs)
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"header-timeout", c.HeaderTimeout}, {"body-timeout", c.BodyTimeout}, {"idle-timeout", c.IdleTimeout}, {"stall-timeout", c.StallTimeout}, {"shutdown-timeout", c.ShutdownTimeout}} {
		bad(d.v >= 0, "--%s is %v; it must not be negative", d.name, d.v)
	}
	oneOf := func(name, v string, allowed ...string) {
		bad(slices.Contains(allowed, v), "--%s is %q; it must be %s", name, v, strings.Join(allowed, " or "))
	}
	oneOf("flash-attn", c.FlashAttn, Words["flash-attn"]...)
	oneOf("kernels", c.Kernels, Words["kernels"]...)
	oneOf("cache-type-k", c.CacheTypeK, Words["cache-type-k"]...)
	oneOf("cache-type-v", c.CacheTypeV, Words["cache-type-v"]...)
	bad(c.FlashAttn != "off" || slices.Contains(unquantised, c.CacheTypeV), "--cache-type-v is %q; with --flash-attn off it must be %s: llama.cpp supports a quantised V cache only with flash attention", c.CacheTypeV, strings.Join(unquantised, " or "))
	oneOf("policy", c.Policy, Words["policy"]...)
	if c.ChatTemplate != "" {
		text, _, err := loadTemplate(c.ChatTemplate)
		if err == nil {
			_, err = chattmpl.Compile(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--chat-template is %q; %w", c.ChatTemplate, err))
		}
	}
	oneOf("while-loading", c.WhileLoading, Words["while-loading"]...)
	bad(c.Policy != "stock" && c.Policy != "meridian_static" || c.MaxBackground == 0, "--max-background is %d; with --policy %s it must be 0: that policy has no priority classes", c.MaxBackground, c.Policy)
	oneOf("share-prefixes", c.SharePrefixes, Words["share-prefixes"]...)
	oneOf("think-evict", c.ThinkEvict, Words["think-evict"]...)
	within("kv-block-tokens", c.KVBlockTokens, 1, 1<<16)
	within("offload-threshold-blocks", c.OffloadThresholdBlocks, 1, 1<<16)
	within("think-budget", c.ThinkBudget, -1, 1<<24)
	bad(c.FabricTTL >= 0, "--fabric-ttl is %v; it must not be negative", c.FabricTTL)
	bad(c.FabricTTL == 0 || c.Fabric != "", "--fabric-ttl is %v; it needs a --fabric", c.FabricTTL)
	if err := c.CacheDisk.absolute(); err != nil {
		errs = append(errs, fmt.Errorf("--cache-disk is %q; %w", c.CacheDisk.String(), err))
	}
	bad(c.CacheDir == "" || c.CacheDisk.Bytes != 0, "--cache-dir is %q and --cache-disk is 0; set --cache-disk above 0, or remove --cache-dir", c.CacheDir)
	// The two below are checked by meridian too, but people know them by these names.
	itl, floor := c.Meridian.ITLTargetMs, c.Meridian.ThinkFloorMs
	known := itl >= 1 && itl <= 60_000 && floor >= 1 && floor <= 60_000
	bad(itl >= 1 && itl <= 60_000, "--itl-target-ms is %g; it must be 1…60000", itl)
	bad(floor >= 1 && floor <= 60_000, "--think-floor-ms is %g; it must be 1…60000", floor)
	if known {
		if err := c.Meridian.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	oneOf("log-format", c.LogFormat, Words["log-format"]...)
	if _, err := c.logLevel(); err != nil {
		errs = append(errs, err)
	}
	if _, err := socketMode("socket-mode", c.SocketMode); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.validateListen()...)
	return errors.Join(errs...)
}

func (c *Config) logLevel() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("--log-level is %q; it must be debug, info, warn or error", c.LogLevel)
	}
	return l, nil
}

// NewFlagSet returns the options, bound to a Config that holds their defaults, and their sections for --help.
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

// socketPath is where the daemon listens when nothing was handed to it by systemd.
func (c *Config) socketPath() string {
	if c.Socket != "" {
		return c.Socket
	}
	return sockpath.Default()
}

// privileged reports whether a peer may look at everybody's requests and prefixes: root and the server's own user.
func (c *Config) privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }
