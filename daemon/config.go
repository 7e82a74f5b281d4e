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
	Seed         int64 // < 0: a new one for each request that names none

	// Socket and limits.
	Socket         string
	SocketMode     string // octal
	SocketGroup    string
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
	ThinkBudget int // --think-budget; -1: Meridian.MaxThinkTokens stands. Load has put it there: nobody else reads it

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
	fs.IntVarP(&c.CtxSize, "ctx-size", "c", defaultCtxSize, "KV cells shared by all requests, in `tokens` (default: at most the model's training context); 0 = the model's training context")
	fs.StringVar(&c.ChatTemplate, "chat-template", "", "`FILE|NAME` of the chat template, instead of the model's own: a Jinja file, or "+strings.Join(chattmpl.BuiltinNames(), ", "))
	fs.IntVar(&c.Parallel, "parallel", 16, "requests computed at the same time (1…248) (-np)")
	fs.IntVarP(&c.BatchSize, "batch-size", "b", 2048, "most `tokens` in one decode step")
	fs.IntVar(&c.UBatchSize, "ubatch-size", 512, "most `tokens` in one device pass (-ub)")
	fs.IntVarP(&c.Threads, "threads", "t", 0, "compute threads; 0 = physical cores")
	fs.IntVar(&c.ThreadsBatch, "threads-batch", 0, "compute threads for prompts; 0 = as --threads (-tb)")
	fs.IntVar(&c.GPULayers, "gpu-layers", -1, "layers on the GPU when there is one; -1 = all, 0 = none (-ngl)")
	fs.StringVar(&c.FlashAttn, "flash-attn", "auto", "flash attention: on, off or auto (-fa)")
	fs.StringVar(&c.CacheTypeK, "cache-type-k", "f16", "type of K cells: f32, f16, bf16, q8_0, q4_0, … (-ctk)")
	fs.StringVar(&c.CacheTypeV, "cache-type-v", "f16", "type of V cells; a quantised one needs flash attention (-ctv)")
	fs.BoolVar(&c.MLock, "mlock", false, "keep the model's pages in RAM")
	fs.BoolVar(&c.NoMMap, "no-mmap", false, "read the model into memory instead of mapping the file")
	fs.BoolVar(&c.NoRepack, "no-repack", false, "keep no rearranged copy of the weights for the processor's kernels: less memory, slower prompts of Q4_K, Q4_0, IQ4_NL and Q2_K (-nr)")
	fs.Int64VarP(&c.Seed, "seed", "s", -1, "sampling seed of requests that name none; -1 = a new one each time")

	fs = section("Socket and limits")
	fs.StringVar(&c.Socket, "socket", "", "Unix socket `path` (default $XDG_RUNTIME_DIR/uma-serve/uma.sock)")
	fs.StringVar(&c.SocketMode, "socket-mode", "0600", "permissions of the socket, octal")
	fs.StringVar(&c.SocketGroup, "socket-group", "", "group that owns the socket")
	fs.IntVar(&c.MaxSessions, "max-sessions", 4096, "most connections")
	fs.IntVar(&c.MaxQueue, "max-queue", 512, "most requests waiting; the next is refused with a retry hint")
	fs.IntVar(&c.MaxFrameBytes, "max-frame-bytes", 1<<20, "largest request frame (below 16 MiB)")
	fs.IntVar(&c.MaxPromptBytes, "max-prompt-bytes", 1<<20, "largest prompt text of one request")
	fs.IntVarP(&c.MaxTokens, "max-tokens", "n", 0, "most tokens an answer may have, and what a request that names none gets; 0 = what the context has room for")
	fs.DurationVar(&c.HeaderTimeout, "header-timeout", 10*time.Second, "close connections whose HTTP header takes longer than this from its first byte; 0 = no limit")
	fs.DurationVar(&c.BodyTimeout, "body-timeout", 30*time.Second, "close connections whose HTTP body, frame or line takes longer than this from its first byte; 0 = no limit")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close connections that asked nothing for this long; 0 = never, but 2m between two HTTP requests")
	fs.DurationVar(&c.StallTimeout, "stall-timeout", 2*time.Minute, "end requests whose client has read nothing for this long; 0 = never")
	fs.StringVar(&c.WhileLoading, "while-loading", loadingWait, "requests that come while the model loads: wait (in the queue, up to --max-queue) or refuse (with a retry hint)")

	fs = section("Scheduling")
	fs.StringVar(&c.Policy, "policy", "meridian", "scheduling policy: "+policyHelp)
	fs.Float64Var(&c.Meridian.ITLTargetMs, "itl-target-ms", float64(sched.DefaultITLTarget.Milliseconds()), "policies meridian and pascal: longest time between two tokens of an answer that names no target (slo.target_tbt_ms), in `ms`; prompts and thoughts get what is left under it")
	fs.Float64Var(&c.Meridian.ThinkFloorMs, "think-floor-ms", float64(sched.DefaultThinkFloor.Milliseconds()), "policy meridian: a thinking request gets a token at least this often whatever answers need, in `ms`")
	fs.Float64Var(&c.TickBudgetMs, "tick-budget-ms", 30, "policy uma: time one decode step aims at, in `ms`")
	fs.Float64Var(&c.GuardMs, "latency-guard-ms", 100, "policy uma: no prompt work in a step while an interactive answer has waited this long for its next token, in `ms`; 0 = off")
	fs.IntVar(&c.MaxBackground, "max-background", 0, "background requests computed at once; 0 = --parallel")

	fs = section("Thinking")
	fs.Var(textFlag{&c.Meridian.ThinkMode}, "think", "whether requests that do not say think: auto (as the model decides), off or on")
	fs.IntVar(&c.ThinkBudget, "think-budget", -1, "most `tokens` of thought in a turn; a request may ask for less. 0 = no thinking, -1 = max_think_tokens of [meridian] (32768)")
	fs.Var(textFlag{&c.Meridian.EarlyExit}, "early-exit", "which signals end thinking that has settled, for requests that do not say: off, eat, rpdi or both")
	fs.Var(&meridianFlag{c: c}, "meridian", "any key of the file's [meridian] table, such as eat_ema_variance_threshold=0.001; may be given again")

	fs = section("KV cache")
	fs.BoolVar(&c.NoPrefixCache, "no-prefix-cache", false, "compute every prompt from its first token")
	fs.StringVar(&c.SharePrefixes, "share-prefixes", "off", "off: cached prompts are their user's own; system: system prompts are shared by all users")
	fs.IntVar(&c.KVBlockTokens, "kv-block-tokens", meridian.DefaultBlockCells, "`tokens` in a block of the KV ledger")
	fs.StringVar(&c.ThinkEvict, "think-evict", "none", "a request's finished thought, when cells run low: none (it stays), offload (it stays, and a copy goes to --cache-ram as it ends, so that a request that makes way later comes back without computing it again) or drop (it is taken out of the pool for good: changes answers)")
	fs.BoolVar(&c.ContextShift, "context-shift", false, "forget the oldest half of a full context and go on, instead of ending the answer with reason length")
	c.CacheRAM, c.CacheDisk = sizeOf("auto"), sizeOf("10GiB")
	fs.Var(&c.CacheRAM, "cache-ram", `memory for snapshots of prefixes that had to leave the KV cache: 512MiB, 25% of what is free, 0 = none, auto = 25%; a bare number is MiB (-cram)`)
	fs.StringVar(&c.CacheDir, "cache-dir", "", "`directory` for snapshots on disk, which outlive a restart (default: none are written)")
	fs.Var(&c.CacheDisk, "cache-disk", "most disk space --cache-dir may take")
	fs.StringVar(&c.Fabric, "fabric", "", "`URL` of a store that several machines share prefixes through: valkey://host, redis://host, nixl-synth, mooncake-synth+URL; a password is better set in UMA_FABRIC than here, where ps shows it")
	fs.DurationVar(&c.FabricTTL, "fabric-ttl", 0, "how long the fabric keeps a prefix that nobody uses; 0 = as its URL says")
	fs.IntVar(&c.OffloadThresholdBlocks, "offload-threshold-blocks", 4, "blocks that are gathered before they go to the fabric together")

	fs = section("Process")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "on SIGTERM, SIGINT or SIGHUP the daemon ends within this time: running requests may finish, and the last quarter of it (5s at most) is for cached prefixes on their way to --cache-dir and --fabric; a second signal ends it at once")
	fs.StringVar(&c.LogFormat, "log-format", "text", "log lines as text or json")
	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error (UMA_DEBUG=1 is debug)")
	fs.BoolVar(&c.Progress, "progress", true, "show a bar while the model loads, on a terminal")
	fs.StringVar(&c.Trace, "trace", "", "record every decision and the token ids of all requests to `file`, for uma-sim replay --steps and run --uma-trace")
	fs.StringVar(&c.ConfigFile, "config", "", "TOML `file` of these options, below UMA_* variables and flags (default: $XDG_CONFIG_HOME/uma-serve/uma-serve.toml, else /etc/uma-serve/uma-serve.toml, where there is one); \"\" = none")
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
const policyHelp = "meridian (answers keep --itl-target-ms, thoughts and prompts share the rest), uma (prompts in chunks of a fixed time beside running answers), stock (as llama-server), " +
	"pascal (thoughts first, answers at reading speed) or meridian_static (the original's fixed shares)"

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
	bad(c.CtxSize == 0 || c.CtxSize < minCtxSize || c.CtxSize >= c.Parallel, "--ctx-size is %d; it must be at least --parallel (%d): each running request needs a cell", c.CtxSize, c.Parallel)
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
	oneOf("cache-type-k", c.CacheTypeK, Words["cache-type-k"]...)
	oneOf("cache-type-v", c.CacheTypeV, Words["cache-type-v"]...)
	bad(c.FlashAttn != "off" || slices.Contains(unquantised, c.CacheTypeV), "--cache-type-v is %q; with --flash-attn off it must be %s: llama.cpp reads quantised V cells with flash attention only", c.CacheTypeV, strings.Join(unquantised, " or "))
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
	bad(c.Policy != "stock" && c.Policy != "meridian_static" || c.MaxBackground == 0, "--max-background is %d; with --policy %s it must be 0: that policy knows no classes", c.MaxBackground, c.Policy)
	oneOf("share-prefixes", c.SharePrefixes, Words["share-prefixes"]...)
	oneOf("think-evict", c.ThinkEvict, Words["think-evict"]...)
	within("kv-block-tokens", c.KVBlockTokens, 1, 1<<16)
	within("offload-threshold-blocks", c.OffloadThresholdBlocks, 1, 1<<16)
	within("think-budget", c.ThinkBudget, -1, 1<<24)
	bad(c.FabricTTL >= 0, "--fabric-ttl is %v; it must not be negative", c.FabricTTL)
	bad(c.FabricTTL == 0 || c.Fabric != "", "--fabric-ttl is %v without a --fabric", c.FabricTTL)
	if err := c.CacheDisk.absolute(); err != nil {
		errs = append(errs, fmt.Errorf("--cache-disk is %q; %w", c.CacheDisk.String(), err))
	}
	bad(c.CacheDir == "" || c.CacheDisk.Bytes != 0, "--cache-dir is %q and --cache-disk is 0; give it some space, or leave the directory out", c.CacheDir)
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
	if _, err := c.socketMode(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Config) logLevel() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("--log-level is %q; it must be debug, info, warn or error", c.LogLevel)
	}
	return l, nil
}

func (c *Config) socketMode() (os.FileMode, error) {
	var m uint32
	if n, err := fmt.Sscanf(c.SocketMode, "%o", &m); n != 1 || err != nil || m > 0o777 {
		return 0, fmt.Errorf("--socket-mode is %q; it must be octal permissions such as 0660", c.SocketMode)
	}
	return os.FileMode(m), nil
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
