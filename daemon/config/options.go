package config

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/sched"
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
	c.CtxSize = AutoContext
	fs.VarP(contextFlag{&c.CtxSize}, "ctx-size", "c", "KV cache size in `tokens`, shared by all requests; auto = the "+
		"model's training context, or as much of it as fits into the memory that is available; 0 = the training "+
		"context whatever it takes")
	fs.Var(requestContextFlag{&c.RequestCtxSize}, "request-ctx-size", "maximum `tokens` of one request, its prompt "+
		"and its answer together; 0 = all of --ctx-size; share = --ctx-size divided by --parallel, so that each "+
		"request has a part that others cannot take (--no-kv-unified, --kv-unified-per-slot)")
	fs.StringVar(&c.ChatTemplate, "chat-template", "", "use the chat template `FILE|NAME|TEXT` instead of the "+
		"model's: a Jinja file, such a template itself, or one of "+strings.Join(template.BuiltinNames(), ", "))
	fs.IntVar(&c.Parallel, "parallel", 16, "maximum requests that run at the same time, 1…248 (-np)")
	fs.IntVarP(&c.BatchSize, "batch-size", "b", 2048, "maximum `tokens` per decode step")
	fs.IntVar(&c.UBatchSize, "ubatch-size", 512, "physical batch size: maximum `tokens` per device pass (-ub)")
	fs.IntVarP(&c.Threads, "threads", "t", 0, "maximum compute threads; 0 = one per fast physical core, within the "+
		"CPU quota of the cgroup")
	fs.StringVar(&c.Power, "power", PowerAuto, "speed or energy: fast (all compute threads), quiet (half of them, "+
		"less energy per token) or auto (quiet on battery)")
	c.GPULayers = AutoLayers
	fs.Var(layersFlag{&c.GPULayers}, "gpu-layers", "`layers` on devices (graphics processors), the output counted: "+
		"auto = as many as fit into their memory, all, or a number; 0 = none (-ngl)")
	fs.IntVar(&c.CPUMoE, "n-cpu-moe", 0, "layers, from the first, whose experts stay in host memory beside layers on "+
		"devices: a mixture fits a smaller one; -1 = all (-ncmoe; --cpu-moe)")
	fs.StringVar(&c.FlashAttn, "flash-attn", "auto", "flash attention: on, off or auto (-fa)")
	fs.StringVar(&c.CacheTypeK, "cache-type-k", "f16", "data type of the K cache: f32, f16, bf16, q8_0, q4_0, … (-ctk)")
	fs.StringVar(&c.CacheTypeV, "cache-type-v", "f16", "data type of the V cache; quantised types need flash "+
		"attention (-ctv)")
	fs.BoolVar(&c.NoKVOffload, "no-kv-offload", false, "keep the KV cache in host memory even if layers are on the "+
		"GPU: longer contexts, slower answers (-nkvo)")
	fs.BoolVar(&c.MLock, "mlock", false, "lock the model in RAM; never swap it")
	fs.BoolVar(&c.NoMMap, "no-mmap", false, "read the model into memory instead of memory-mapping the file")
	fs.BoolVar(&c.NoRepack, "no-repack", false, "where ggml's kernels compute, do not repack weights for them: "+
		"less memory, slower prompts (-nr)")
	fs.StringVar(&c.Kernels, "kernels", "auto", "CPU `kernels`: auto (the fastest this processor has), amx, "+
		"avx512, avxvnni, avx2, i8mm, neon, or ggml (llama.cpp's)")
	fs.StringVar(&c.MMProj, "mmproj", "", "`FILE` of a projector, with which the model reads images or sounds "+
		"(default: the mmproj*.gguf beside the model, if there is one); off = it reads text alone. It serves "+
		"the default model only; a [models.NAME] table names the projector of another one (-mm)")
	fs.Var(&listFlag{values: &c.Alias}, "alias", "`NAMES` of the model of --model in requests, separated by commas; "+
		"answers have the alphabetically first one, as llama-server's (-a)")
	fs.Var(&listFlag{values: &c.Tags}, "tags", "`WORDS` that GET /v1/models shows for the model of --model, separated "+
		"by commas")
	fs.Var(&defaultsFlag{text: &c.Defaults}, "defaults", "values of fields that requests leave out, as a `JSON` "+
		"object: {\"temperature\":0.2,\"top_k\":20}. llama-server's options for them (--temp, --top-k, -n, --grammar) "+
		"mean the same; docs/llama-server.md lists what becomes of its options")
	fs.Int64VarP(&c.Seed, "seed", "s", -1, "default sampling seed of requests; -1 = a new random seed for each request")
	fs.StringVar(&c.Pooling, "pooling", "", "pooling of hidden states into an embedding: none (one embedding per "+
		"token), mean, cls (first token) or last (last token) (default: what the GGUF file says, else mean)")
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
	fs.Var(&c.Limits, "limits", "`limits` beside the shares of users, such as user_requests=8,background_queue=64: "+
		"session_requests (unfinished requests of a connection), interactive_queue, background_queue (queued requests "+
		"of the class), interactive_step_tokens, background_step_tokens (prompt tokens of the class in a decode "+
		"step), user_requests, user_cells (of the KV cache, by prompts and answers so far), user_tokens_per_minute; "+
		"requests above one are refused with a retry hint, prompt tokens wait for the next step (default: none)")
	fs.BoolVar(&c.NoPage, "no-page", false, "serve no page at /: programs alone use the server")
	fs.BoolVar(&c.NoSlots, "no-slots", false, "refuse GET /slots, by which every client learns how many requests run")
	fs.BoolVar(&c.NoNewline, "no-newline", false, "refuse lines of text on the socket: frames and HTTP alone")
	fs.BoolVar(&c.StrictFields, "strict-fields", false, "refuse HTTP requests with a field that the server does not "+
		"know (default: leave the field out and name it in the header X-Uma-Ignored)")
	fs.IntVar(&c.MaxFrameBytes, "max-frame-bytes", 1<<20, "maximum size of a request frame in bytes, below 16 MiB")
	fs.IntVar(&c.MaxPromptBytes, "max-prompt-bytes", 1<<20, "maximum prompt text of a request in bytes")
	fs.IntVar(&c.MaxTokens, "max-tokens", 0, "maximum tokens per answer, and the default max_tokens of "+
		"requests; 0 = as many as fit in the context")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close connections that have no request for this long; 0 = "+
		"never (HTTP: 2m)")

	fs = section("Scheduling")
	fs.StringVar(&c.Policy, "policy", "meridian", "scheduling policy: "+policyHelp)
	fs.Float64Var(&c.Meridian.ITLTargetMs, "itl-target-ms", float64(sched.DefaultITLTarget.Milliseconds()),
		"policy meridian: inter-token latency (ITL) target of answers, in `ms`; prompts and thinking "+
			"get the rest of each step. slo.target_tbt_ms overrides it per request")
	fs.Float64Var(&c.Meridian.ThinkFloorMs, "think-floor-ms", float64(sched.DefaultThinkFloor.Milliseconds()),
		"policy meridian: maximum time between two thinking tokens of a request, and between two tokens of a "+
			"background answer, in `ms`, even if answers miss their ITL target")
	fs.Float64Var(&c.TickBudgetMs, "tick-budget-ms", 30, "policy uma: target duration of a decode step, in `ms`")
	fs.IntVar(&c.StartTargetTokens, "start-target-tokens", sched.DefaultStartBudget, "policies meridian and uma: "+
		"maximum prompt `tokens` of a decode step until the daemon has measured larger steps with this model")
	fs.StringVar(&c.Speculate, "speculate", speculateAuto, "speculative decoding without a draft model: draft the "+
		"next tokens of an answer from its own text and from cached texts of the same user, and verify them in one "+
		"step where that is expected to save time: auto, off, or at most `N` tokens a step (1…16). Answers stay "+
		"the same")
	fs.StringVar(&c.SpecType, "spec-type", specAuto, "`KINDS` of drafts beside those from texts: draft-mtp (the head "+
		"of the model's file, or Gemma 4's assistant in that of --draft-model), draft-eagle3, draft-dflash or "+
		"draft-dspark (the head in the file of --draft-model), draft-simple (the draft model), several with commas, "+
		"auto (the draft model if there is one) or none (no drafts at all). ngram-simple: texts alone")
	fs.Var(&listFlag{values: &c.SpecSynthRates}, "spec-synth-rates", "for measuring alone, answers are not valid: the "+
		"share of steps in which the 1st, 2nd, … drafted token is taken, whatever the model says: `P,P,…`, each 0…1 "+
		"and none above the one before; steps draft no more tokens than there are rates")
	fs.StringVar(&c.DraftModel, "draft-model", "", "`FILE|NAME` of a draft model for speculative decoding: a small "+
		"model with the same vocabulary, used where it is expected to save time, or the file of a head that "+
		"--spec-type asks for. It serves the default model only; a [models.NAME] table names the draft model of "+
		"another one (-md)")
	fs.Var(&listFlag{values: &c.LoRA}, "lora", "LoRA adapter of the default model, a GGUF file: `NAME=FILE[:SCALE]` "+
		"serves requests for the model NAME or MODEL:NAME, FILE[:SCALE] all that choose none. Requests with "+
		"different adapters run side by side. Repeatable; a [models.NAME] table names those of another model")

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
	fs.StringVar(&c.ThinkEvict, "think-evict", "none", "KV cells of a finished thought: none (keep them), offload "+
		"(keep them and copy them to the --fabric, or to a quarter of --cache-ram: a preempted request then gives up "+
		"these cells first; they are restored before it continues) or drop (remove them when cells run low; changes "+
		"answers)")
	fs.BoolVar(&c.ContextShift, "context-shift", false, "when the context is full, drop its oldest half and "+
		"continue, instead of ending the answer with reason length")
	c.CacheRAM, c.CacheDisk = sizeOf("auto"), sizeOf("10GiB")
	fs.Var(&c.CacheRAM, "cache-ram", `host memory for prefixes evicted from the KV caches of all models: a size such `+
		`as 512MiB, a percentage of --memory, or auto (25%), at most what models and other programs leave; 0 = none; `+
		`a bare number is MiB (-cram)`)
	fs.StringVar(&c.CacheDir, "cache-dir", "", "`directory` for KV snapshots, which survive a restart (default: "+
		"none); with [models.NAME] tables, each table's model has a subdirectory and other models store no snapshots")
	fs.Var(&c.CacheDisk, "cache-disk", "maximum disk space of a model's snapshots in --cache-dir")
	fs.StringVar(&c.SlotSavePath, "slot-save-path", "", "`directory` for POST /slots/{id}?action=save of "+
		"llama-server's API. A file holds the tokens of a slot; its KV cells go to --cache-ram and --cache-dir "+
		"(default: none)")
	fs.StringVar(&c.Fabric, "fabric", "", "`URL` of a store that shares prefixes between machines: valkey://host, "+
		"redis://host, mooncake://master?namespace_key_file=PATH; nixl://address?peers=HOST,…&namespace_key_file=PATH "+
		"without a store; for tests memory. Put a URL with a password into UMA_FABRIC, because ps shows the command "+
		"line")
	fs.IntVar(&c.OffloadThresholdBlocks, "offload-threshold-blocks", 4,
		"KV blocks to collect before a write to the fabric")
	fs.StringVar(&c.KVEvents, "kv-events", "", "publish which KV blocks are stored and removed, for routers such as "+
		"vllm-router --policy kv_aware, at this `ENDPOINT`: tcp://127.0.0.1:5557 (vLLM's events over ZeroMQ; the next "+
		"port answers replay requests; only root and the daemon's user may connect, because the events tell the "+
		"tokens of prompts)")

	c.frontOptions(section("Several models"))

	fs = section("Process")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 30*time.Second,
		"on SIGTERM, SIGINT or SIGHUP, stop within this time: running requests may finish, and the last quarter (5s "+
			"at most) is for writing cached prefixes to --cache-dir and --fabric; a second signal stops at once")
	fs.StringVar(&c.LogFormat, "log-format", "text", "log format: text or json")
	fs.StringVar(&c.LogLevel, "log-level", "info", "log level: debug (with the decisions of each step), info, warn "+
		"or error (UMA_DEBUG=1 means debug)")
	fs.StringVar(&c.Trace, "trace", "", "record all scheduling decisions and token ids to `file`, for uma-sim replay "+
		"--steps and run --workload")
	fs.StringVar(&c.Telemetry, "telemetry-endpoint", "", "`URL` of an OpenTelemetry collector for traces and metrics: "+
		"http://HOST:4318, https://…, grpc://HOST:4317 or grpcs://…")
	fs.StringVar(&c.ConfigFile, "config", "", "TOML configuration `file`; flags and UMA_* variables override it "+
		"(default: $XDG_CONFIG_HOME/uma-serve/uma-serve.toml, else /etc/uma-serve/uma-serve.toml, if it exists); "+
		"\"\" = none")
	fs.Var(&c.told, "told", "an option of llama-server that is left out: see llamaArgs")
	fs.Var(&c.refused, "refused", "an option of llama-server that is refused: see llamaArgs")
	fs.StringVar(&c.ModelsPreset, "models-preset", "", "file of models of llama-server's router: see loadPreset")
	for _, name := range []string{"told", "refused", "models-preset"} {
		fs.Lookup(name).Hidden = true
	}
	return out
}

// llamaNames maps other names of options to ours: llama-server's single-dash names of several letters, which pflag
// would parse as several one-letter flags, and names that other servers use.
var llamaNames = map[string]string{
	"-hf": "--hf-repo", "-hfr": "--hf-repo", "-np": "--parallel", "-ngl": "--gpu-layers",
	"--n-gpu-layers": "--gpu-layers", "-fa": "--flash-attn", "-nr": "--no-repack", "-nkvo": "--no-kv-offload",
	"-ncmoe": "--n-cpu-moe", "-ub": "--ubatch-size", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v",
	"--uds":          "--socket",
	"--max-num-seqs": "--parallel", "--max-num-batched-tokens": "--batch-size",
	"--max-num-queued-reqs": "--max-queue", "--chat-template-file": "--chat-template",

	"--scheduling-policy": "--policy",

	"-mm": "--mmproj", "-md": "--draft-model", "--model-draft": "--draft-model", "--spec-draft-model": "--draft-model",
	"--spec-draft-hf": "--draft-model", "-hfd": "--draft-model", "-hfrd": "--draft-model",
	"--hf-repo-draft": "--draft-model",
	"-cd":             "--draft-ctx-size", "--ctx-size-draft": "--draft-ctx-size", "-tb": "--threads-batch", // gone

	"--spec-draft-n-max": "--speculate", "--draft": "--speculate", "--draft-n": "--speculate",
	"--draft-max": "--speculate",

	"-cram": "--cache-ram", "-rea": "--think", "--reasoning": "--think", "--reasoning-budget": "--think-budget",
}

// policyHelp describes sched.Policies for --help; a test checks that it is complete.
const policyHelp = "meridian (answers meet --itl-target-ms; prompts and thinking share the rest), uma (prompt chunks " +
	"of a fixed time next to running answers), stock (as llama-server) or meridian_static (fixed shares of each " +
	"batch for answers and thinking; for comparisons only)"

// NormalizeArgs rewrites llamaNames and llamaArgs in a command line. "-fa" alone means on, as it did in older
// llama-servers.
func NormalizeArgs(args []string) []string {
	l := llamaLine{out: make([]string, 0, len(args))}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return append(l.end(), args[i:]...)
		}
		if n := l.take(args[i:]); n > 0 {
			i += n - 1
			continue
		}
		name, value, hasValue := strings.Cut(a, "=")
		long, ok := llamaNames[name]
		if !ok {
			l.out = append(l.out, a)
			continue
		}
		if hasValue {
			long += "=" + value
		} else if name == "-fa" && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			long += "=on"
		}
		l.out = append(l.out, long)
	}
	return l.end()
}

// Choices are the values of the options that take one of several words, for Validate and shell completion.
var Choices = map[string][]string{
	"flash-attn":     {"auto", "on", "off"},
	"kernels":        {"auto", "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "ggml"},
	"power":          {PowerAuto, PowerFast, PowerQuiet},
	"cache-type-k":   gguf.CacheTypes(),
	"cache-type-v":   gguf.CacheTypes(),
	"policy":         sched.Policies(),
	"share-prefixes": {"off", "system"},
	"speculate":      {speculateAuto, speculateOff},
	"spec-type":      {specAuto, specHead, "draft-eagle3", "draft-dflash", "draft-dspark", specModel, specNone},
	"think":          {"auto", "off", "on"},
	"early-exit":     {"off", "eat", "rpdi", "both"},
	"think-evict":    {"none", "offload", "drop"},
	"pooling":        {"none", "mean", "cls", "last"},
	"log-format":     {"text", "json"},
	"log-level":      {"debug", "info", "warn", "error"},
}
