package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What llama-server's options become here, so that a command line for it starts this server. Options that set values of
// requests become --defaults; options that have no counterpart and change no answer are left out and told in the log;
// those that would change answers are refused.

// llamaArg says what becomes of an option of llama-server.
type llamaArg struct {
	flag  bool   // it has no value
	to    string // our option, which takes the value
	as    string // and this one, where it has none; with field, beside that
	off   string // and this one, where it is a flag with the value false
	field string // the field of a request whose default it is
	not   bool   // a flag that sets the field to false
	json  bool   // the value is JSON, or a number; otherwise text
	left  string // why it is left out
	bad   string // why it is refused, and what to do
}

func (a llamaArg) names(names ...string) map[string]llamaArg {
	out := map[string]llamaArg{}
	for _, n := range names {
		out[n] = a
	}
	return out
}

// llamaArgs are the options of llama-server (llama.cpp of engine.lock, common/arg.cpp) beyond llamaNames and those of
// the same name here.
var llamaArgs = merged(
	// Values of requests.
	number("sse_ping_interval").names("--sse-ping-interval"),
	number("max_tokens").names("-n", "--predict", "--n-predict"),
	number("temperature").names("--temp", "--temperature"),
	number("top_k").names("--top-k"), number("top_p").names("--top-p"), number("min_p").names("--min-p"),
	number("top_n_sigma").names("--top-nsigma", "--top-n-sigma"),
	number("xtc_probability").names("--xtc-probability"), number("xtc_threshold").names("--xtc-threshold"),
	number("typical_p").names("--typical", "--typical-p"),
	number("repeat_last_n").names("--repeat-last-n"), number("repeat_penalty").names("--repeat-penalty"),
	number("presence_penalty").names("--presence-penalty"), number("frequency_penalty").names("--frequency-penalty"),
	number("dry_multiplier").names("--dry-multiplier"), number("dry_base").names("--dry-base"),
	number("dry_allowed_length").names("--dry-allowed-length"),
	number("dry_penalty_last_n").names("--dry-penalty-last-n"),
	number("dynatemp_range").names("--dynatemp-range"), number("dynatemp_exponent").names("--dynatemp-exp"),
	number("mirostat").names("--mirostat"), number("mirostat_eta").names("--mirostat-lr"),
	number("mirostat_tau").names("--mirostat-ent"),
	number("chat_template_kwargs").names("--chat-template-kwargs"),
	number("json_schema").names("-j", "--json-schema"),
	text("grammar").names("--grammar"), text("reasoning_effort").names("--reasoning-effort"),
	llamaArg{flag: true, field: "ignore_eos"}.names("--ignore-eos"),
	llamaArg{flag: true, field: "preserve_thinking"}.names("--reasoning-preserve"),
	llamaArg{flag: true, field: "preserve_thinking", not: true}.names("--no-reasoning-preserve"),

	// Options that are called otherwise.
	llamaArg{to: "--tls-cert"}.names("--ssl-cert-file"), llamaArg{to: "--tls-key"}.names("--ssl-key-file"),
	llamaArg{to: "--cors-origin"}.names("--cors-origins"), llamaArg{to: "--alias"}.names("-a"),
	llamaArg{to: "--seed"}.names("-s"), llamaArg{to: "--lora"}.names("--lora-scaled"),
	llamaArg{flag: true, as: "--context-shift=false", off: "--context-shift"}.names("--no-context-shift"),
	llamaArg{flag: true, as: "--no-prefix-cache", off: "--no-prefix-cache=false"}.names("--no-cache-prompt"),
	llamaArg{flag: true, as: "--no-prefix-cache=false", off: "--no-prefix-cache"}.names("--cache-prompt"),
	llamaArg{flag: true, as: "--no-kv-offload=false", off: "--no-kv-offload"}.names("--kv-offload", "-kvo"),
	llamaArg{flag: true, as: "--n-cpu-moe=-1", off: "--n-cpu-moe=0"}.names("--cpu-moe", "-cmoe"),
	llamaArg{flag: true, as: "--no-repack=false", off: "--no-repack"}.names("--repack"),
	llamaArg{flag: true, as: "--mmproj=" + NoProjector}.names("--no-mmproj", "--no-mmproj-auto"),
	llamaArg{flag: true, left: "it is so by itself", off: "--mmproj=" + NoProjector}.names("--mmproj-auto"),
	llamaArg{flag: true, as: "--log-level=debug", field: "verbose"}.names("-v", "--verbose", "--log-verbose"),
	llamaArg{flag: true, as: "--request-ctx-size=share", off: "--request-ctx-size=0"}.names("--no-kv-unified",
		"-no-kvu"),
	llamaArg{flag: true, as: "--request-ctx-size=0", off: "--request-ctx-size=share"}.names("--kv-unified", "-kvu"),
	llamaArg{to: "--request-ctx-size"}.names("--kv-unified-per-slot"),
	llamaArg{flag: true, as: "--no-slots=false", off: "--no-slots"}.names("--slots"),
	llamaArg{flag: true, as: "--no-page", off: "--no-page=false"}.names("--no-ui", "--no-webui"),
	llamaArg{flag: true, left: "it is so by itself", off: "--no-page"}.names("--ui", "--webui"),
	llamaArg{flag: true, as: "--log-level=error"}.names("--log-disable"),
	llamaArg{flag: true, as: "--log-format=json"}.names("--log-jsonl"),
	llamaArg{flag: true, as: "--autoload=false", off: "--autoload"}.names("--no-models-autoload"),
	llamaArg{flag: true, as: "--autoload", off: "--autoload=false"}.names("--models-autoload"),

	// What is here by itself, or is the engine's.
	leftFlag("it is so by itself").names("--jinja", "--metrics", "--cont-batching", "-cb",
		"--embedding", "--embeddings", "--rerank", "--reranking", "--warmup",
		"--mmproj-offload", "--escape", "-e",
		"--no-log-jsonl", "--log-prefix", "--log-timestamps", "--swa-full", "--op-offload", "--perf",
		"--prefill-assistant", "--cache-idle-slots", "--no-agent", "-no-ag", "--spec-default",
		"--no-skip-chat-parsing"),
	leftFlag("it has no counterpart here").names("--no-warmup", "--no-perf",
		"--props", "--no-cont-batching", "-nocb", "--reuse-port",
		"--check-tensors", "--no-host", "--no-cache-idle-slots", "--log-colors", "--no-log-prefix",
		"--no-log-timestamps", "--special", "-sp", "--no-op-offload",
		"--no-mmproj-offload", "--spm-infill", "--no-prefill-assistant", "--no-jinja",
		"--lookup-cache-static", "--backend-sampling", "-bs"),
	leftValue("the server does this by itself").names("--threads-http", "--prio", "--prio-batch", "--poll",
		"--poll-batch", "--numa", "-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict", "-Cb", "--cpu-mask-batch",
		"-Crb", "--cpu-range-batch", "--cpu-strict-batch", "--cache-reuse", "--ctx-checkpoints", "-ctxcp",
		"--swa-checkpoints", "--checkpoint-min-step", "-cms", "--slot-prompt-similarity", "-sps", "--defrag-thold",
		"-dt", "--keep", "--lookup-cache-dynamic", "-lcd", "-lcs"),
	leftValue("it has no counterpart here").names("--timeout", "-to", "--log-file", "--verbosity", "-lv",
		"--log-verbosity", "--log-prompts-dir", "--path", "--api-prefix", "--ui-config", "--webui-config",
		"--ui-config-file", "--webui-config-file", "--cors-methods", "--cors-headers", "--media-path", "--hf-token",
		"-hft", "--reasoning-format", "--reasoning-budget-message", "--draft-min", "--draft-n-min", "--draft-p-min",
		"--draft-p-split", "--spec-draft-n-min", "--spec-draft-p-min", "--spec-draft-p-split",
		"--threads-draft", "-td", "--threads-batch-draft", "-tbd", "--gpu-layers-draft", "-ngld",
		"--n-gpu-layers-draft", "--spec-draft-ngl", "--cache-type-k-draft", "-ctkd", "--cache-type-v-draft", "-ctvd",
		"--device-draft", "-devd", "--samplers", "--sampler-seq", "--sampling-seq", "--embd-normalize"),

	// What would be another answer, or another place for the model.
	refusedArg("the model's own scaling of positions is used").names("--rope-scaling", "--rope-scale",
		"--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor",
		"--yarn-beta-slow", "--yarn-beta-fast", "--grp-attn-n", "-gan", "--grp-attn-w", "-gaw"),
	refusedArg("the file is used as it is; change it with llama.cpp's gguf-set-metadata").names("--override-kv"),
	refusedArg("control vectors are not applied").names("--control-vector", "--control-vector-scaled",
		"--control-vector-layer-range"),
	refusedArg("--gpu-layers N says how much of a model is on a device; CUDA_VISIBLE_DEVICES or "+
		"GGML_VK_VISIBLE_DEVICES say which devices there are").names("--device", "-dev", "--tensor-split", "-ts",
		"--split-mode", "-sm", "--main-gpu", "-mg", "--override-tensor", "-ot"),
	refusedArg("write a file of lines KEY OWNER, mode 0600, and name it with --api-keys").names("--api-key",
		"--api-key-file"),
	refusedArg("download the file and name it with --model").names("--model-url", "-mu"),
	refusedArg("name the file behind the repository: -hf ORG/REPO:Q4_K_M").names("--hf-file", "-hff"),
	refusedArg("servers of tools are tables [mcp.NAME] of the configuration file (docs/mcp.md)").names("--tools",
		"--mcp-servers-config", "--mcp-servers-json"),
	refusedArg("models run on this machine alone").names("--rpc"),
)

func number(field string) llamaArg   { return llamaArg{field: field, json: true} }
func text(field string) llamaArg     { return llamaArg{field: field} }
func leftFlag(why string) llamaArg   { return llamaArg{flag: true, left: why} }
func leftValue(why string) llamaArg  { return llamaArg{left: why} }
func refusedArg(why string) llamaArg { return llamaArg{bad: why} }

func merged(tables ...map[string]llamaArg) map[string]llamaArg {
	out := map[string]llamaArg{}
	for _, t := range tables {
		maps.Copy(out, t)
	}
	return out
}

// address is --host and --port of llama-server.
type address struct{ host, port string }

// llamaLine rewrites a command line.
type llamaLine struct {
	out      []string
	defaults map[string]json.RawMessage
	listen   address
}

// take rewrites the option at the beginning of args, if it is one of llama-server's, and returns how many words it has;
// 0: it is not.
func (l *llamaLine) take(args []string) int {
	name, value, given := strings.Cut(args[0], "=")
	if strings.HasPrefix(name, "--") {
		name = strings.ReplaceAll(name, "_", "-") // as llama-server reads its names
	}
	host := name == "--host" || name == "--port" || name == "--sleep-idle-seconds" ||
		name == "--lora-init-without-apply"
	a, known := llamaArgs[name]
	if !known && !host {
		return 0
	}
	words := 1
	if !a.flag && !given && name != "--lora-init-without-apply" {
		if len(args) == 1 {
			return 0 // pflag says that its value is missing
		}
		value, words = args[1], 2
	}
	if a.flag && given {
		switch on, ok := flagValue(value); {
		case !ok:
			why := fmt.Sprintf("it has no value, or on or off, and this is %.60q", value)
			l.out = append(l.out, "--refused="+name+"\x00"+why)
			return 1
		case !on && a.off != "":
			l.out = append(l.out, a.off)
			return 1
		case !on && a.field != "":
			a.not = !a.not
		case !on:
			return 1
		}
	}
	switch {
	case name == "--host":
		l.listen.host = value
	case name == "--port":
		l.listen.port = value
	case name == "--sleep-idle-seconds":
		if n, err := strconv.Atoi(value); err == nil {
			l.out = append(l.out, "--idle-unload="+strconv.Itoa(max(n, 0))+"s")
		} else {
			l.out = append(l.out, "--idle-unload="+value)
		}
	case name == "--lora-init-without-apply":
		l.out = append(l.out, "--told="+name+"\x00write --lora NAME=FILE: it applies to requests that name it")
	case a.to != "":
		l.out = append(l.out, a.to+"="+value)
	case a.as != "" || a.field != "":
		if a.as != "" {
			l.out = append(l.out, a.as)
		}
		if a.field != "" {
			l.set(a, value)
		}
	case a.bad != "":
		l.out = append(l.out, "--refused="+name+"\x00"+a.bad)
	default:
		l.out = append(l.out, "--told="+name+"\x00"+a.left)
	}
	return words
}

// flagValue reads the value of a flag, as llama-server reads those of its presets.
func flagValue(text string) (on, ok bool) {
	switch strings.ToLower(text) {
	case "", "on", "true", "1", "yes", "enabled":
		return true, true
	case "off", "false", "0", "no", "disabled":
		return false, true
	}
	return false, false
}

// set sets the default of a field.
func (l *llamaLine) set(a llamaArg, value string) {
	raw := json.RawMessage(value)
	switch {
	case a.flag:
		raw = json.RawMessage(strconv.FormatBool(!a.not))
	case !a.json || !json.Valid(raw): // the check of --defaults says what is wrong with it
		raw, _ = json.Marshal(value)
	}
	if l.defaults == nil {
		l.defaults = map[string]json.RawMessage{}
	}
	l.defaults[a.field] = raw
}

// end adds what several options make together.
func (l *llamaLine) end() []string {
	if l.listen != (address{}) {
		for host := range strings.SplitSeq(l.listen.host, ",") {
			l.out = append(l.out, listenArg(strings.TrimSpace(host), l.listen.port))
		}
	}
	if l.defaults != nil {
		b, _ := json.Marshal(l.defaults)
		l.out = append(l.out, "--defaults="+string(b))
	}
	return l.out
}

// listenArg returns our option for an address of llama-server.
func listenArg(host, port string) string {
	if strings.HasSuffix(host, ".sock") {
		return "--socket=" + host
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "8080" // llama-server's
	}
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return "--listen=" + host + ":" + port
}

// foreign is the value of the hidden options --told and --refused, each text a name and a reason.
type foreign [][2]string

func (f *foreign) Set(text string) error {
	name, why, _ := strings.Cut(text, "\x00")
	entry := [2]string{name, why}
	if !slices.Contains(*f, entry) {
		*f = append(*f, entry)
	}
	return nil
}

func (f *foreign) String() string { return "" }

// Type implements pflag.Value.
func (f *foreign) Type() string { return "text" }
