package lint

// rules says which packages of ours each folder may import, and why it may not import more. Imports point one way, so
// that every part can be understood, tested and simulated without those above it. A rule holds for its folder and those
// below that have none; a folder may import what lies below itself. Tests may reach further.
var rules = []rule{
	// The engine.
	{"runtime", []string{"internal/invariants"},
		"value types and the engine's interface: everything else stands on them"},
	{"runtime/ggufgen", []string{"model/gguf/gguffile"}, "it writes models for tests of any package"},
	{"runtime/pooling", []string{"runtime"}, "vectors of rows: it knows no engine"},
	{"runtime/fake", []string{"runtime", "internal/invariants"},
		"the simulator has it; it must not bring the daemon along"},
	{"runtime/enginetest", []string{"runtime", "meridian", "internal/invariants"},
		"the contract of an engine; meridian has the reference of the probe"},
	{"runtime/llama/kernels", nil, "C++ for the binding: a change of ours would compile it again"},
	{"runtime/llama",
		[]string{"runtime", "model/gguf", "internal/cli/buildinfo", "internal/host/cpus", "internal/invariants"},
		"a binding, with nothing of what is done with it"},

	// The pure parts.
	{"sampler", []string{"runtime"}, "a token from a row of logits; it knows no protocol"},
	{"grammar", []string{"grammar/regex"}, "which tokens may come next; it knows no model, request or clock"},
	{"grammar/regex", nil, "expressions over bytes"},
	{"grammar/gbnf", []string{"grammar", "grammar/regex"}, "a notation of grammars"},
	{"grammar/lark", []string{"grammar", "grammar/jsonschema", "grammar/regex"}, "another one, which may hold schemas"},
	{"grammar/jsonschema", []string{"grammar", "grammar/regex"},
		"a schema becomes a grammar; who asked for it is the daemon's"},
	{"grammar/toolcalls", []string{"grammar", "grammar/jsonschema", "grammar/regex", "model/toolcall"},
		"calls of tools become a grammar; when it holds is the daemon's"},
	{"arbiter", nil, "which engine computes next; how it takes its turn is its caller's"},
	{"sched/slo", nil, "values that the wire and the scheduler share: it knows neither"},
	{"sched/threads", nil, "it decides by numbers, whatever file of the system they are from"},
	{"sched", []string{"meridian/blocks", "internal/invariants", "internal/words"},
		"the simulator runs the same scheduler: it knows no engine, client or cache; blocks ranks what cells are for"},
	{"meridian", []string{"runtime", "internal/invariants", "model/tags"},
		"phases and blocks; runtime has its value types"},
	{"spec", nil, "it guesses tokens from tokens"},
	{"core", []string{"sched", "spec", "meridian", "meridian/blocks", "kvsnap", "sampler", "runtime",
		"internal/invariants", "model/toolcall"},
		"the daemon and the simulator are shells around it"},
	{"meridian/blocks", []string{"internal/invariants"},
		"the ledger of cells: the prefix tree and the core ask it, and it knows neither"},
	{"meridian/mrdn", nil, "a wire format"},
	{"meridian/fabric", []string{"meridian/mrdn"}, "stores of bytes; what the bytes mean is the daemon's"},
	{"kvsnap", []string{"internal/invariants", "meridian/blocks", "runtime"},
		"the prefix tree asks for copies and makes none; the block manager counts its cells and decides what it " +
			"evicts, and the engine which tokens are an image's"},
	{"kvsnap/snapshot", []string{"internal/host/hostmem", "internal/host/mach", "internal/invariants"},
		"bytes in memory and files; it knows no engine"},
	{"kvsnap/snapshot/format", nil, "a file format"},
	{"kvsnap/snapshot/index", []string{"kvsnap", "kvsnap/snapshot/format"},
		"what is found and evicted, without a file or a clock"},
	{"ipc/wire", []string{"runtime", "sampler", "sched/slo"},
		"frames and their fields; sampler has the ranges of its parameters, sched/slo the targets, runtime the value " +
			"types of info"},

	// What comes with a model: its file, its chat template, its marks of thinking, its syntax of tool calls.
	{"model/gguf", []string{"model/gguf/gguffile", "model/template", "model/tags", "internal/cli/clierr"},
		"it reads files without an engine"},
	{"model/gguf/gguffile", nil, "a container; what is in it is for others"},
	{"model/template", []string{"model/template/jinja", "model/tags", "model/toolcall"},
		"templates come with models: they are rendered where nothing else can be reached"},
	{"model/template/jinja", nil, "a language, of which chat templates are one use"},
	{"model/picture", []string{"runtime"}, "files of clients become pixels, which an engine reads"},
	{"model/tags", nil, "a table that router, simulator, templates and files share"},
	{"model/toolcall", []string{"model/tags"},
		"what a model writes, in and out as values: daemon and simulator read calls with it"},

	// The daemon and what it is made of.
	{"ipc", []string{"daemon/shm/connstate", "internal/host/sockpath", "internal/invariants", "ipc/sockdiag",
		"ipc/wire"},
		"sockets and frames; what a request does is its handler's"},
	{"ipc/sockdiag", nil, "one question to the kernel; daemon and proxy ask it"},
	{"ipc/tcpaddr", nil, "an address; daemon and proxy listen on one"},
	{"metrics", nil, "numbers and their names: anything may count"},
	{"telemetry", []string{"metrics"}, "OpenTelemetry's SDK in one place: spans and metrics for a collector"},
	{"models", nil, "the built-in model's bytes"},
	{"models/store/storetest", nil, "folders for tests: what reads them must not have made them"},
	{"models/store", []string{"internal/cli/clierr", "model/gguf"},
		"what is on disk, for daemon and client alike: it opens no model and no connection"},
	{"models/pull", []string{"internal/cli/clierr", "internal/cli/ui", "model/gguf", "models/store"},
		"it downloads files, by the store's names; which models there are, and what becomes of them, is its caller's"},
	{"models/download", []string{"internal/cli/clierr", "internal/host/sandbox", "models/pull"},
		"processes that download: what becomes of a model is its caller's"},
	{"models/pull/pulltest", nil, "a server for tests, which must not share the client's code"},
	{"client", []string{"internal/host/sockpath", "ipc/wire"},
		"public: programs of others import it, so it brings neither the daemon nor the engine along"},
	{"scripts/clients/go", nil, "programs of another module, which know the daemon by its HTTP APIs alone"},
	{"examples/go", []string{"client", "client/gollama", "ipc/wire"}, "what a program of another module can import"},
	{"mcp", []string{"client", "daemon/toolbox/setup", "internal/cli/buildinfo", "internal/host/sandbox",
		"internal/portproxy", "ipc/wire"},
		"MCP's SDK in one place: a client of the daemon, and the process between the daemon and a server of tools"},
	{"client/clienttest", []string{"ipc/wire"}, "a daemon for tests of clients, without the daemon"},
	{"daemon/api", []string{"ipc/wire", "runtime"},
		"foreign APIs: a translation to the one request; the daemon is behind an interface, and runtime has value " +
			"types of info"},
	{"daemon/api/apitest", []string{"daemon/api", "ipc/wire", "runtime"}, "a backend for tests of APIs, without the " +
		"daemon"},
	{"daemon/api/anthropic", []string{"daemon/api", "ipc/wire"}, "one API, beside the others"},
	{"daemon/api/worker", []string{"daemon/api", "daemon/api/openai", "daemon/kvevents"}, "one API, beside the others"},
	{"daemon/api/changes", []string{"ipc/wire", "models/download", "models/store"},
		"the front as an interface, for the APIs that change models"},
	{"daemon/api/ollama", []string{"daemon/api", "daemon/api/changes", "ipc/wire", "models/download", "models/store"},
		"one API, beside the others"},
	{"daemon/api/lmstudio", []string{"daemon/api", "daemon/api/changes", "ipc/wire", "models/download"},
		"one API, beside the others"},
	{"daemon/api/gemini", []string{"daemon/api", "ipc/wire"}, "one API, beside the others"},
	{"daemon/api/llamaform", []string{"daemon/api", "ipc/wire"},
		"llama-server's own form of an answer, which its API and OpenAI's have"},
	{"daemon/api/llamaserver", []string{"daemon/api", "daemon/api/llamaform", "daemon/api/openai", "ipc/wire"},
		"llama-server's API, whose errors have OpenAI's form"},
	{"daemon/api/resume", []string{"daemon/api", "daemon/api/openai"},
		"streams of every API, kept as bytes; errors in OpenAI's form"},
	{"daemon/api/control", []string{"daemon/api", "daemon/api/openai", "ipc/wire"},
		"the daemon's own questions; their errors have OpenAI's form"},
	{"daemon/api/openai", []string{"daemon/api", "daemon/api/llamaform", "ipc/wire"}, "one API, beside the others"},
	{"daemon/constrain", []string{"grammar", "grammar/gbnf", "grammar/jsonschema", "grammar/lark",
		"grammar/toolcalls", "ipc/wire",
		"meridian", "metrics", "model/tags", "model/toolcall", "runtime", "sampler"},
		"what an answer may be; it knows no loop, no request and no connection"},
	{"daemon", []string{"core", "grammar", "ipc", "ipc/wire",
		"ipc/tcpaddr", "arbiter",
		"sched", "sched/threads", "meridian", "meridian/blocks", "meridian/mrdn", "meridian/fabric", "kvsnap",
		"kvsnap/snapshot", "kvsnap/snapshot/format", "sampler", "metrics", "telemetry", "runtime", "runtime/pooling",
		"model/gguf", "model/tags", "model/toolcall", "internal/cli/buildinfo", "internal/cli/clierr",
		"internal/host/cpus", "internal/host/drivers", "internal/host/hostmem", "internal/host/sandbox",
		"internal/host/sysmon", "internal/invariants", "internal/logq"},
		"any engine: it is given one, real or fake"},
	{"daemon/toolturns", []string{"daemon/api", "daemon/toolbox/setup", "ipc/wire"},
		"answers with tools: what carries out a call and what answers a turn is behind an interface"},
	{"daemon/toolbox", nil, "processes of tools; what asks for them is its caller's"},
	{"daemon/toolbox/setup", nil, "a description, its limits and lines: configuration, daemon and bridge have it"},
	{"daemon/config", []string{"core", "runtime", "sched", "daemon/toolbox/setup", "meridian", "meridian/blocks",
		"kvsnap/snapshot", "telemetry", "models",
		"models/store", "ipc/tcpaddr", "ipc/wire", "model/gguf", "model/template", "internal/cli/clierr",
		"internal/cli/configfile", "internal/cli/ui", "internal/host/hostmem", "internal/host/sockpath",
		"internal/logq", "internal/webguard"},
		"options and files of models, before there is an engine or a request: the daemon knows it, and it does not " +
			"know the daemon"},
	{"daemon/access", []string{"daemon/access/apikeys", "daemon/config", "internal/webguard", "ipc"},
		"who a TCP client is, and whether it may ask; what it asks is for others"},
	{"daemon/live", []string{"ipc/wire", "kvsnap", "meridian/blocks", "metrics"},
		"samples of the daemon as values: it asks the loop through an interface, and knows no connection"},
	{"daemon/http", []string{"daemon/access", "daemon/api", "daemon/api/anthropic", "daemon/api/control",
		"daemon/api/gemini",
		"daemon/api/llamaserver", "daemon/api/ollama", "daemon/api/openai", "daemon/api/resume", "daemon/api/worker",
		"daemon/config", "daemon/live", "daemon/page", "daemon/shm/connstate", "internal/cli/buildinfo", "ipc",
		"ipc/wire", "metrics"},
		"HTTP alone: the rest of the daemon is behind an interface, and a front has the same server"},
	{"daemon/adapters", []string{"daemon/config", "ipc/wire", "runtime"},
		"which adapters a request has: it knows no loop and no queue"},
	{"daemon/prepare", []string{"core", "daemon/adapters", "daemon/config", "internal/cli/ui", "ipc/wire", "kvsnap",
		"meridian",
		"model/picture", "model/template", "model/toolcall", "runtime", "runtime/pooling", "sampler", "sched"},
		"a request and a model become values: it knows no loop, no connection and no queue"},
	{"daemon/report", []string{"core", "daemon/api", "daemon/config", "daemon/prepare", "internal/cli/clierr",
		"internal/cli/ui", "ipc/wire", "kvsnap", "kvsnap/snapshot", "meridian", "meridian/blocks", "meridian/fabric",
		"model/gguf", "model/template", "model/toolcall", "models/store", "runtime", "sched", "spec"},
		"values become documents: it asks neither the loop nor a store of cells"},
	{"daemon/certs", nil, "a certificate from files: what it is for is its caller's"},
	{"daemon/entry", []string{"daemon/access", "daemon/access/apikeys", "daemon/certs", "daemon/config", "daemon/http",
		"internal/cli/buildinfo", "internal/host/hostmem", "internal/logq", "ipc", "ipc/wire", "metrics"},
		"the part of a process that clients reach: front and engine process have it, and it knows no model"},
	{"daemon/access/apikeys", nil, "a file of keys; what an owner may do is the daemon's"},
	{"daemon/kvevents", []string{"ipc/sockdiag", "metrics"},
		"tokens and their places; whose they are, its callers say"},
	{"daemon/hosttier", []string{"internal/host/hostmem"},
		"a division of bytes: what is held and what is free are arguments"},
	{"daemon/page", nil, "files and their headers; what the page shows comes to it over HTTP"},
	{"daemon/shm", nil, "it asks the system"},
	{"daemon/shm/connstate", []string{"daemon/shm"},
		"a table in memory; who writes it and who reads it, the processes say"},
	{"daemon/shm/lease", []string{"arbiter", "daemon/shm"},
		"a table in memory and a futex; what is computed under a lease is the daemon's"},
	{"daemon/front", []string{"daemon", "daemon/api", "daemon/api/anthropic", "daemon/api/control", "daemon/api/gemini",
		"daemon/api/ollama",
		"daemon/api/resume", "daemon/config", "daemon/entry", "daemon/http", "daemon/page", "daemon/report",
		"daemon/hosttier", "daemon/kvevents", "daemon/shm/connstate", "daemon/toolbox",
		"daemon/toolbox/setup", "daemon/toolturns", "runtime",
		"daemon/shm/lease", "ipc", "ipc/wire", "metrics",
		"daemon/api/changes", "daemon/api/lmstudio", "models/download", "models/pull",
		"models/store", "internal/cli/buildinfo", "internal/cli/clierr", "internal/cli/ui", "internal/host/hostmem",
		"internal/host/sandbox"},
		"it starts engine processes, and has no engine itself"},

	// Simulation and measurement.
	{"sim", []string{"arbiter", "core", "sched", "sched/slo", "sched/threads", "meridian", "meridian/blocks", "kvsnap",
		"kvsnap/snapshot/format", "kvsnap/snapshot/index", "runtime", "runtime/fake", "internal/invariants",
		"model/tags"}, "what it predicts of the daemon rests on the daemon's parts, not on the daemon"},
	{"sim/blis", []string{"internal/invariants", "sched", "sim", "sim/latency", "sim/workload"},
		"another simulator's rules, step times and clusters, on this one's clock; nothing of the core"},
	{"bench", []string{"client", "grammar", "grammar/jsonschema", "internal/cli/buildinfo", "internal/host/hostmem",
		"internal/testutil/daemonproc", "ipc/wire", "kvsnap/snapshot/format", "meridian", "model/gguf/gguffile",
		"models/heldout", "runtime", "sched", "sim/synthetic", "sim/workload"}, "it measures servers from outside"},
	{"bench/real", nil, "it compares servers by their sockets, and may share no code with what they answer"},
	{"bench/gpucheck", []string{"internal/testutil/daemonproc"},
		"it runs on a machine that has neither Go nor a checkout, and asks servers from outside"},
	{"bench/soak", []string{"runtime", "runtime/fake", "sim", "sim/workload"},
		"a mixture, rules to judge by, and the mixture in virtual time; the daemon's processes are bench's"},

	// What several programs share.
	{"internal/archs", []string{"internal/testutil/daemonproc", "model/gguf/gguffile"},
		"it compares two servers from outside"},
	{"internal/cli", []string{"internal/cli/buildinfo"}, "every program completes, and has manual pages"},
	{"internal/cli/buildinfo", nil, "every program has a version"},
	{"internal/cli/clierr", nil, "every program prints errors"},
	{"internal/cli/configfile", nil, "daemon and clients agree on the configuration file"},
	{"internal/cli/ui", nil, "a terminal; every view has it"},
	{"internal/host/cpus", []string{"internal/host/mach"}, "it reads the system"},
	{"internal/host/hostmem", []string{"internal/host/mach"}, "it reads the system"},
	{"internal/host/mach", nil, "it calls the system"},
	{"internal/host/drivers", nil, "files of drivers and sentences about them; a table over a folder"},
	{"internal/host/sandbox", nil, "it confines a process; to what, its caller says"},
	{"internal/host/sockpath", nil, "daemon and clients agree on the default path"},
	{"internal/host/sysmon", nil, "it sets one number of the system"},
	{"internal/invariants", nil, "the pure packages have it"},
	{"internal/lint", nil, "it reads sources"},
	{"internal/logq", nil, "a writer that does not block; what is logged is the program's"},
	{"internal/portproxy", []string{"ipc/sockdiag", "internal/webguard"},
		"it forwards; who the daemon is, its caller says"},
	{"internal/release/releasetest", nil, "releases for tests: what verifies them must not have made them"},
	{"internal/release", nil, "archives and folders; which release and which place, its caller says"},
	{"internal/testreport", nil, "it reads what go test says"},
	{"internal/testutil/crosscheck", nil, "a tool of the tests"},
	{"internal/testutil/daemonproc", nil, "it runs the built daemon, and must not have it inside"},
	{"internal/testutil/enginetree", nil, "it finds a folder, for tests and measurements"},
	{"internal/testutil/ggufmut", nil, "damaged files for tests: what reads them must not have made them"},
	{"internal/testutil/race", nil, "a constant for tests of any package"},
	{"internal/testutil/redistest", []string{"internal/testutil/waitfor"},
		"tests of any package start a real server with it"},
	{"internal/testutil/untar", nil, "tests of any package unpack their data with it"},
	{"internal/testutil/usertest", []string{"internal/testutil/waitfor"},
		"tests of any package act as other users with it"},
	{"internal/testutil/waitfor", nil, "tests of any package wait with it"},
	{"internal/words", nil, "text of structs; what is recorded is its caller's"},
	{"internal/webguard", nil, "it looks at headers; daemon and proxy have it"},

	// The programs.
	{"cmd/uma-serve", []string{"daemon", "daemon/config", "daemon/front", "daemon/toolbox", "models/download",
		"models/pull", "models/store",
		"runtime/llama", "internal/cli", "internal/cli/buildinfo", "internal/cli/clierr", "internal/host/hostmem",
		"internal/logq", "ipc/tcpaddr", "mcp"},
		"flags → config → daemon"},
	{"cmd/uma-cli", []string{"client", "internal/cli", "internal/cli/buildinfo", "internal/cli/clierr",
		"internal/cli/configfile", "internal/cli/ui", "internal/host/hostmem", "internal/portproxy",
		"internal/release", "ipc/tcpaddr", "ipc/wire", "model/gguf", "models/download", "models/pull",
		"models/store", "runtime", "sampler"},
		"a client: no daemon and no engine is in it"},
	{"cmd/uma-cli/internal/ask", []string{"cmd/uma-cli/internal/chat", "client", "internal/cli/ui", "ipc/wire"},
		"a client's verb"},
	{"cmd/uma-cli/internal/chat", []string{"client", "cmd/uma-cli/internal/inspect", "cmd/uma-cli/internal/lineedit",
		"internal/cli/clierr", "internal/cli/ui", "ipc/wire", "sampler"},
		"a client: it reaches the daemon by its socket alone"},
	{"cmd/uma-cli/internal/doctor", []string{"internal/cli/ui", "internal/host/cpus", "internal/host/hostmem"},
		"facts of the system and verdicts; what the daemon says, its caller asks"},
	{"cmd/uma-cli/internal/inspect", []string{"internal/cli/ui", "ipc/wire"}, "a view of what the daemon answered"},
	{"cmd/uma-cli/internal/launch", nil, "what other programs read; the daemon is an address to them"},
	{"cmd/uma-cli/internal/lineedit", []string{"internal/cli/ui"}, "keys and lines; what a line means is the chat's"},
	{"cmd/uma-cli/internal/metricsview", []string{"internal/cli/ui"}, "a view of a document"},
	{"cmd/uma-sim", []string{"core", "sched", "sim", "sim/blis", "sim/blis/cluster", "sim/blis/gpu", "sim/latency",
		"sim/workload", "internal/cli", "internal/cli/buildinfo", "internal/cli/clierr"},
		"it runs where no engine can be built"},
	{"cmd/uma-sim/internal/explore", []string{"sched", "sim", "sim/blis"},
		"it compares runs; what runs, its caller says"},
	{"cmd/uma-bench", []string{"bench", "bench/masks", "grammar/jsonschema", "bench/loadgen", "bench/measure",
		"bench/gpucheck", "bench/real", "bench/replay", "bench/report", "bench/soak", "bench/workload", "daemon",
		"daemon/config", "ipc/wire", "meridian", "models", "models/heldout", "runtime",
		"runtime/ggufgen", "runtime/llama", "internal/cli", "internal/cli/buildinfo", "internal/cli/clierr",
		"internal/testutil/daemonproc", "internal/testutil/enginetree", "model/gguf"},
		"it serves in its own process to compare with the bare loop"},
	{"smoke", nil, "tests of the built binaries"},
}

// pure are the packages whose value is that they can be replayed and simulated: time is an argument, nothing runs
// beside them and nothing is read from outside.
var pure = []string{"arbiter", "core", "grammar", "grammar/gbnf", "grammar/lark", "grammar/regex", "grammar/jsonschema",
	"grammar/toolcalls", "model/toolcall", "sched", "sched/slo", "spec", "meridian", "meridian/blocks", "meridian/mrdn",
	"ipc/wire", "kvsnap", "kvsnap/snapshot/format", "kvsnap/snapshot/index"}

// pureMayImport is all of the standard library and of others' modules that a pure package may have.
var pureMayImport = []string{
	"bytes", "cmp", "container/heap", "container/list", "crypto/subtle", "encoding/base64", "encoding/binary",
	"encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv",
	"hash/maphash", "iter", "maps", "math", "math/bits", "math/cmplx", "regexp", "regexp/syntax", "slices", "sort",
	"strconv", "strings", "time", "unicode",
	"unicode/utf16", "unicode/utf8", "unsafe", "github.com/agnivade/levenshtein", "github.com/valyala/fastjson",
	"github.com/zeebo/blake3",
}

// insteadOf says what a pure package does without an import that is often reached for.
var insteadOf = map[string]string{
	"log": "return an error or a value", "log/slog": "return an error or a value",
	"context": "take a deadline as an argument",
	"sync":    "the caller owns the value", "sync/atomic": "the caller owns the value", "os": "take bytes",
	"io": "take bytes", "io/fs": "take bytes",
	"net": "take bytes", "net/http": "take bytes", "os/exec": "take bytes", "bufio": "take bytes",
	"embed":     "take bytes",
	"math/rand": "take a seeded source as an argument", "math/rand/v2": "take a seeded source as an argument",
	"crypto/rand": "take a seeded source as an argument",
	"runtime":     "take it as an argument", "runtime/debug": "take it as an argument",
	"testing": "only tests import it",
}

// pureTime lists the names of package time for pure packages: durations, times that come as arguments, and no clock.
var pureTime = []string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour",
	"ParseDuration", "Time"}

// notPureFmt lists the names of package fmt that a pure package may not use: they write and read outside.
var notPureFmt = []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}

// confined are folders that process untrusted input, or only render something: they reach nothing outside.
var confined = map[string]string{
	"model/template/jinja":             "a template of a downloaded model must have nothing to reach for",
	"model/template":                   "a template of a downloaded model must have nothing to reach for",
	"cmd/uma-cli/internal/inspect":     "a view: bytes in, text out",
	"cmd/uma-cli/internal/metricsview": "a view: bytes in, text out",
}

// withoutHTTP are folders that may not import net/http, with the reason.
var withoutHTTP = map[string]string{
	"daemon/config": "options are merged and checked before there is a request",
}

// byItself are folders of packages that have little in common: each folder below them has a rule.
var byItself = []string{"internal", "cmd/uma-cli/internal", "cmd/uma-sim/internal",
	"daemon/access", "daemon/shm", "model"}

// apart are folders that only the named folders, and those below, import.
var apart = map[string]string{
	"sim/blis": "cmd/uma-sim", // what is predicted of uma-serve depends on nothing of another simulator
}

// heavy are modules that only measurement needs, by the beginning of their import paths, and the folders that may have
// them.
var heavy = map[string][]string{
	"gonum.org/": {"bench", "sim/latency", "cmd/uma-bench", "cmd/uma-sim"},
	// One package speaks MCP: the SDK is in the process that serves agents and in those that call tools, and no
	// request of a model passes it.
	"github.com/modelcontextprotocol/": {"mcp"},
}

// outside are the imports that reach out of the process.
var outside = []string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "net/netip", "net/url", "syscall",
	"io/ioutil", "plugin", "golang.org/x/sys/unix"}
