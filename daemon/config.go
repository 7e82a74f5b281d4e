package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// Config is everything an operator can set, after defaults < --config file < UMA_* environment < flags were
// merged (Load). Every field has exactly one flag, whose name is also its TOML key and, upper-cased with
// underscores and UMA_ in front, its environment variable.
type Config struct {
	zzConfig
	// Model and engine; names as in llama-server.
	Model        string
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
	StallTimeout   time.Duration

	// Scheduling.
	Policy        string
	TickBudgetMs  float64
	GuardMs       float64
	MaxBackground int // background requests running at once; 0 = no cap of their own

	// Process.
	ShutdownTimeout time.Duration
	LogFormat       string
	LogLevel        string
	Progress        bool // draw a bar while the model loads, when stderr is a terminal

	ConfigFile string // --config; "" = none
}

// Limits that hold whatever the configuration says.
const (
	maxFrameBytesLimit = wire.MaxFrameBytes
	maxSequencesLimit  = 256 // llama.cpp's LLAMA_MAX_SEQ
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
	fs.IntVarP(&c.CtxSize, "ctx-size", "c", 4096, "KV cells shared by all requests, in `tokens`; 0 = the model's training context")
	fs.IntVar(&c.Parallel, "parallel", 16, "requests computed at the same time (1…256) (-np)")
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
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close connections that asked nothing for this long; 0 = never")
	fs.DurationVar(&c.StallTimeout, "stall-timeout", 2*time.Minute, "end requests whose client has read nothing for this long; 0 = never")

	fs = section("Scheduling")
	fs.StringVar(&c.Policy, "policy", "uma", "scheduling policy: uma (prompts in chunks beside running answers) or stock (as llama-server)")
	fs.Float64Var(&c.TickBudgetMs, "tick-budget-ms", 30, "time one decode step aims at, in `ms`")
	fs.Float64Var(&c.ITLTargetMs, "itl-target-ms", 100, "")
	fs.StringVar(&c.Trace, "trace", "", "")
	fs.StringVar(&c.CacheDir, "cache-dir", "", "")
	fs.StringVar(&c.Fabric, "fabric", "", "")
	fs.BoolVar(&c.NoPrefixCache, "no-prefix-cache", false, "")
	fs.Float64Var(&c.GuardMs, "latency-guard-ms", 100, "no prompt work in a step while an interactive answer has waited this long for its next token, in `ms`; 0 = off")
	fs.IntVar(&c.MaxBackground, "max-background", 0, "background requests computed at once; 0 = --parallel")

	fs = section("Process")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "on SIGTERM: how long running requests may take to finish")
	fs.StringVar(&c.LogFormat, "log-format", "text", "log lines as text or json")
	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error (UMA_DEBUG=1 is debug)")
	fs.BoolVar(&c.Progress, "progress", true, "show a bar while the model loads, on a terminal")
	fs.StringVar(&c.ConfigFile, "config", "", "TOML `file` of these options; UMA_* variables and flags go over it")
	return out
}

// llamaNames are llama-server's single-dash names of several letters, which pflag would read as a row of
// one-letter flags, and names of the same thing that users of other servers type.
var llamaNames = map[string]string{
	"-np": "--parallel", "-ngl": "--gpu-layers", "--n-gpu-layers": "--gpu-layers", "-fa": "--flash-attn",
	"-ub": "--ubatch-size", "-tb": "--threads-batch", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v",
	"--predict": "--max-tokens", "--n-predict": "--max-tokens", "--uds": "--socket",
	"--max-num-seqs": "--parallel", "--max-num-batched-tokens": "--batch-size",
	"--max-num-queued-reqs": "--max-queue", "--scheduling-policy": "--policy",
}

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

// Load merges defaults, the --config file, the environment and the flags (which parse must already have set on
// fs) and validates the result. environ is os.Environ().
func Load(fs *pflag.FlagSet, c *Config, environ []string) error {
	fromEnv := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		if name, ok := strings.CutPrefix(k, "UMA_"); ok {
			fromEnv[strings.ToLower(strings.ReplaceAll(name, "_", "-"))] = v
		}
	}
	if v, ok := fromEnv["config"]; ok && !fs.Changed("config") {
		c.ConfigFile = v
	}
	set := map[string]bool{} // by a layer above
	fs.Visit(func(f *pflag.Flag) { set[f.Name] = true })
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if v, ok := fromEnv[f.Name]; ok && !set[f.Name] && f.Name != "help" {
			set[f.Name] = true
			if err := f.Value.Set(v); err != nil {
				errs = append(errs, fmt.Errorf("environment UMA_%s=%q: %w",
					strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), v, err))
			}
		}
	})
	if fromEnv["debug"] != "" && fromEnv["debug"] != "0" && !set["log-level"] {
		set["log-level"] = true
		c.LogLevel = "debug"
	}
	if c.ConfigFile != "" {
		errs = append(errs, loadFile(fs, c.ConfigFile, set))
	}
	errs = append(errs, c.Validate())
	return errors.Join(errs...)
}

// loadFile sets from a TOML file what no layer above has set. Keys are flag names, with - or _.
func loadFile(fs *pflag.FlagSet, path string, set map[string]bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	var doc map[string]any
	if err := toml.Unmarshal(b, &doc); err != nil {
		var de *toml.DecodeError
		if errors.As(err, &de) {
			row, col := de.Position()
			return fmt.Errorf("config %s, line %d, column %d: %w", path, row, col, err)
		}
		return fmt.Errorf("config %s: %w", path, err)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		v := doc[key]
		name := strings.ReplaceAll(key, "_", "-")
		f := fs.Lookup(name)
		if f == nil || name == "config" || name == "help" {
			errs = append(errs, fmt.Errorf("config %s: unknown key %q (uma-serve --help lists the options)", path, key))
			continue
		}
		switch v.(type) {
		case string, int64, float64, bool:
		default:
			errs = append(errs, fmt.Errorf("config %s: key %q must be one %s, not a table or a list", path, key, f.Value.Type()))
			continue
		}
		if set[name] {
			continue
		}
		if err := f.Value.Set(fmt.Sprint(v)); err != nil {
			errs = append(errs, fmt.Errorf("config %s: key %q: %w", path, key, err))
		}
	}
	return errors.Join(errs...)
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
	within("ctx-size", c.CtxSize, 0, 1<<27)
	within("parallel", c.Parallel, 1, maxSequencesLimit)
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
	within("max-background", c.MaxBackground, 0, maxSequencesLimit)
	bad(c.BatchSize >= c.Parallel, "--batch-size is %d; it must be at least --parallel (%d): each running answer needs a row", c.BatchSize, c.Parallel)
	bad(c.TickBudgetMs >= 1 && c.TickBudgetMs <= 60_000, "--tick-budget-ms is %g; it must be 1…60000", c.TickBudgetMs)
	bad(c.GuardMs >= 0 && c.GuardMs <= 60_000, "--latency-guard-ms is %g; it must be 0…60000", c.GuardMs)
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"idle-timeout", c.IdleTimeout}, {"stall-timeout", c.StallTimeout}, {"shutdown-timeout", c.ShutdownTimeout}} {
		bad(d.v >= 0, "--%s is %v; it must not be negative", d.name, d.v)
	}
	oneOf := func(name, v string, allowed ...string) {
		for _, a := range allowed {
			if v == a {
				return
			}
		}
		bad(false, "--%s is %q; it must be %s", name, v, strings.Join(allowed, " or "))
	}
	oneOf("flash-attn", c.FlashAttn, "auto", "on", "off")
	oneOf("policy", c.Policy, sched.Policies()...)
	bad(c.Policy != "stock" || c.MaxBackground == 0, "--max-background is %d; with --policy stock it must be 0: that policy knows no classes", c.MaxBackground)
	oneOf("log-format", c.LogFormat, "text", "json")
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
	c := &Config{}
	c.Meridian = meridian.DefaultConfig()
	c.KVBlockTokens = 16
	fs := pflag.NewFlagSet("uma-serve", pflag.ContinueOnError)
	fs.SortFlags = false
	sections := c.sections()
	for _, s := range sections {
		fs.AddFlagSet(s.Flags)
	}
	return fs, c, sections
}

// socketPath is where the daemon listens when nothing was handed to it by systemd.
func (c *Config) socketPath() string {
	if c.Socket != "" {
		return c.Socket
	}
	return ipc.DefaultSocketPath()
}
