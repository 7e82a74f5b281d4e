# uma-serve. `make help` lists the verbs.
SHELL := /bin/bash
.DEFAULT_GOAL := build

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PREFIX  ?= /usr/local
GO      ?= go
OS      := $(shell uname -s)

# ggml picks its kernels at compile time: without the machine's own instruction set it is several times slower.
# A binary for other machines: make MARCH=x86-64-v3
ifeq ($(OS)-$(shell uname -m),Darwin-arm64)
MARCH ?= -mcpu=native
else
MARCH ?= native
endif
MARCH_FLAG := $(if $(filter -m%,$(MARCH)),$(MARCH),-march=$(MARCH))
export CGO_CFLAGS   := -O3 $(MARCH_FLAG)
export CGO_CXXFLAGS := -O3 $(MARCH_FLAG)

# TAGS=otlp builds the export to OpenTelemetry in, which is half of the program; packages have it.
TAGS ?=
export TAGS
comma := ,

# llama.cpp: that of engine.lock, or what ENGINE names, built by its own cmake with CMAKE_ARGS (docs/engines.md).
# These goals do not link it.
WITHOUT_ENGINE := help clean run uma-cli uma-sim deb rpm apk tarball release reproducible \
	deb-check apk-check engine-bump backend-cuda backend-vulkan \
	cuda-compile
ifneq ($(filter-out $(WITHOUT_ENGINE),$(or $(MAKECMDGOALS),build)),)
ENGINE_MK := $(shell GO="$(GO)" scripts/engine.sh '$(ENGINE)' '$(MARCH_FLAG)' '$(CMAKE_ARGS)')
$(if $(ENGINE_MK),,$(error llama.cpp is not built: see above))
include $(ENGINE_MK)
export CGO_CPPFLAGS := $(ENGINE_CPPFLAGS)
export CGO_CXXFLAGS += $(ENGINE_CXXFLAGS)
export CGO_LDFLAGS  := $(ENGINE_LDFLAGS)
export ENGINE_TAGS
export GOFLAGS      := $(strip $(shell $(GO) env GOFLAGS) -tags=$(ENGINE_TAGS)$(if $(TAGS),$(comma)$(TAGS)))
endif

BUILDINFO := github.com/uma-serve/uma-serve/internal/cli/buildinfo
LDFLAGS := -s -w -X $(BUILDINFO).Version=$(VERSION)
# Packages: no path of the checkout in the programs, and where uma-cli upgrade finds the next release.
ifneq ($(TRIMPATH),)
BUILDFLAGS := -trimpath -buildvcs=false
LDFLAGS += -buildid= -X '$(BUILDINFO).ReleaseURL=$(RELEASE_URL)' -X '$(BUILDINFO).ReleaseKey=$(RELEASE_KEY)'
endif
# STATIC=1 links the C library in too: the programs need none, but load no back ends (TAGS with netgo and osusergo).
ifneq ($(STATIC),)
LDFLAGS += -linkmode external -extldflags -static
endif
COMMANDS := $(notdir $(wildcard cmd/*))

BIN ?= bin

.PHONY: build $(COMMANDS) run open check cluster test test-all bench bench-foreign bench-prompt bench-storm bench-ttft \
	soak real ci clients inspector fidelity model eval lint page-check replay fuzz install deb rpm apk tarball \
	release reproducible deb-check apk-check \
	backend-cuda backend-vulkan device-check \
	cuda-compile archs engine-check engine-bump env clean help

build: $(COMMANDS) ## build every command into bin/ (five minutes at first); ENGINE=/path/to/llama.cpp links that one
$(COMMANDS):
	@mkdir -p $(BIN)
	$(GO) build $(BUILDFLAGS) -ldflags "$(LDFLAGS)" -o $(BIN)/$@ ./cmd/$@

run: export ASK ?=
run open: export MODEL ?=
run: ## fetch a model, serve it, chat; ASK="…" asks once; MODEL=builtin, MODEL=FILE; ARGS="-t 4 …"
	@scripts/run.sh "$$ASK" $(ARGS)

open: ## as make run, with the page in the browser; Ctrl-C stops the daemon
	@OPEN=1 scripts/run.sh '' $(ARGS)

check: ## the quick loop while you write: build, vet, lint, unit tests without the engine; under a minute when warm
	@scripts/check.sh

test: ## every package's tests once, with the engine, and the built programs end to end: four minutes when warm
	@scripts/test.sh

test-all: ## every test in every way: race detector, invariants, no cgo, other systems; ARGS="raced" is one stage
	@scripts/test-all.sh $(ARGS)

lint: ## gofmt, vet, staticcheck, the import rules, and known vulnerabilities where the network allows
	@scripts/lint.sh
	@scripts/vuln.sh

.PHONY: mooncake nixl fabrics
mooncake: ## the fabric on a real Mooncake Store, installed below build/; UMA_KILLS=100 kills its node as often
	@env $$(scripts/mooncake.sh build/mooncake) CGO_ENABLED=0 go test -vet=off ./meridian/fabric/mooncake
	@env $$(scripts/mooncake.sh build/mooncake) go test -vet=off ./smoke -run TestMooncake

nixl: ## the fabric on NVIDIA's NIXL, installed below build/; UMA_KILLS=100 kills agents as often
	@env $$(scripts/nixl.sh build/nixl) go test -vet=off ./meridian/fabric/nixl/...
	@env $$(scripts/nixl.sh build/nixl) go test -vet=off ./smoke -run TestNIXL

fabrics: ## TTFT of prompts from memory, disk, Valkey, Mooncake and NIXL beside computing them; ARGS="smollm2-135m …"
	@scripts/fabrics.sh $(ARGS)

cluster: uma-serve ## two daemons behind vllm-router, smg, sglang-router and litellm; ARGS="--only vllm-kv_aware …"
	@scripts/cluster.sh $(ARGS)

bench: build ## serving against the bare decode loop, for Q8_0, Q4_K_M, Q4_0 and F16; ARGS="--weights q8_0 …"
	@scripts/bench.sh $(ARGS)

bench-prompt: build ## a lone prompt against the bare decode loop, 1.1 B Q4_K_M; ARGS="--size 135m --rounds 5 …"
	@bin/uma-bench overhead --lone-prompt 512,64 $(ARGS)

bench-storm: build ## chats while others submit long prompts, policy by policy; page in bench-out/; ARGS="--storm 20s …"
	@bin/uma-bench run --workload storm --sides stock,uma,meridian@50 $(ARGS)

bench-ttft: build ## chats and thoughts beside background work, SmolLM2 135M: fails above a TTFT p50 of 150 ms; ARGS=…
	@bin/uma-bench run --workload synthetic --scale 0.1 --background-ratio 0.25 --arrival-rate 0.5 --duration-s 40 \
		--repeats 2 --at-most ttft_p50_ms=150 -m "$$(scripts/models-fetch.sh smollm2-135m)" $(ARGS)

bench-foreign: uma-serve ## guidellm, inference-perf, aiperf drive it and llama-server; ARGS="--quick --only agents …"
	@scripts/bench-foreign.sh $(ARGS)

soak: build ## two hours of mixed load with faults: memory, descriptors and latencies stay flat; ARGS="--hours 24 …"
	@bin/uma-bench soak $(or $(ARGS),--hours 2)

real: build ## published models beside llama-server of the same llama.cpp; ARGS="--first 20 …", MODELS="smollm2-135m …"
	@scripts/real.sh $(ARGS)

ci: ## everything that a change must pass: .ci/run, then each architecture, real weights, a device (hours on two cores)
	@.ci/run
	@CHECK=1 $(MAKE) archs
	@$(MAKE) archs ARGS=-readers
	@CHECK=1 $(MAKE) archs ARGS=-heads
	@$(MAKE) real
	@-.ci/setup --device
	@IF_POSSIBLE=1 $(MAKE) device-check

inspector: uma-serve ## the official MCP inspector against uma-serve mcp (docs/mcp.md)
	@scripts/inspector.sh

clients: uma-serve uma-cli ## client libraries (PYTHON=1, AGENTS=1: agents, LAUNCH=1), for docs/clients.md; ARGS="go"
	@scripts/clients.sh $(ARGS)

fidelity: build ## what uma-sim predicts against what this daemon does, on a quiet machine; ARGS="--policy meridian …"
	@scripts/fidelity.sh $(ARGS)

replay: uma-bench ## the reference workload in virtual time against the recorded reports; ARGS=--record records anew
	@BIN="$(BIN)" scripts/replay.sh $(ARGS)

page-check: ## the page in headless Chromium, and the dashboard and alerts with promtool, where there are these
	@scripts/page-check.sh $(ARGS)
	@scripts/prom-check.sh

fuzz: ## every fuzz target for FUZZTIME (default 30s) each; what fails is kept in testdata/fuzz; ARGS="./ipc/wire …"
	@scripts/fuzz.sh $(or $(FUZZTIME),30s) $(ARGS)

model: ## train the built-in model again, then examine it (80 minutes on two cores; BUDGET=MILLIONS OF TOKENS, RESUME=1)
	@models/train/model.sh && $(MAKE) eval

eval: build ## ask the built-in model held-out problems and grade the answers; ARGS="--each 20 …"
	@bin/uma-bench eval $(ARGS)

install: build ## copy the commands to PREFIX/bin, with completions, systemd units and the sample file; DESTDIR stages
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" BIN="$(BIN)" scripts/install.sh

deb: ## a Debian package in dist/ for any processor with AVX2; ARCH=arm64 for ARM (needs g++-aarch64-linux-gnu)
	@VERSION="$(VERSION)" scripts/package.sh deb

rpm: ## an RPM package, the same otherwise
	@VERSION="$(VERSION)" scripts/package.sh rpm

apk: ## an Alpine package, linked statically
	@VERSION="$(VERSION)" scripts/package.sh apk

apk-check: ## install the package of make apk into a folder without a C library, chat, remove it (needs root, busybox)
	@scripts/apk-check.sh

tarball: ## an archive for get.sh, with its own install script too; ARCH=arm64, ARCH=amd64-v2 for older processors
	@VERSION="$(VERSION)" scripts/package.sh tarball

release: ## dist/release: archives, sums, signature, get.sh; KEY=~/.ssh/id_ed25519 URL=https://… (where it will be)
	@VERSION="$(VERSION)" KEY="$(KEY)" URL="$(URL)" scripts/release.sh

reproducible: ## build the tarball in two checkouts of one commit and compare the bytes
	@scripts/reproducible.sh

deb-check: ## install the package of make deb into a clean Debian, chat, remove it (needs root and debootstrap)
	@scripts/deb-check.sh

backend-cuda backend-vulkan: ## build a back end as a library beside the binaries, where uma-serve finds it at start
	@scripts/backend.sh $(@:backend-%=%) "$(BIN)"

device-check: build ## a Vulkan device, llvmpipe without a card: the engine's contract, daemons, gpu-check, sandbox on
	@BIN="$(BIN)" scripts/device-check.sh

cuda-compile: ## compile the CUDA back end where no card is, with the compiler of Python packages: an hour on two cores
	@scripts/cuda-compile.sh

archs: uma-serve ## compare with llama-server on a model of each architecture, docs/architectures.md; ARGS="-only gpt2"
	@BIN="$(BIN)" scripts/archs.sh $(ARGS)

engine-check: build ## the engine's tests and smoke; on another llama.cpp: make ENGINE=/path/to/llama.cpp engine-check
	@ENGINE="$(ENGINE)" scripts/engine-check.sh

engine-bump: ## pin the llama.cpp of VERSION= of llama-cpp-python; builds, checks, says what changed; ARGS=--keep
	@scripts/engine-bump.sh $(ARGS) "$(VERSION)"

env: ## print the exports that a plain `go build` or an editor needs: eval "$(make -s env)"
	@printf 'export CGO_CFLAGS="%s"\nexport CGO_CXXFLAGS="%s"\nexport CGO_CPPFLAGS="%s"\n' \
		"$$CGO_CFLAGS" "$$CGO_CXXFLAGS" "$$CGO_CPPFLAGS"
	@printf 'export CGO_LDFLAGS="%s"\nexport ENGINE_TAGS="%s"\nexport GOFLAGS="%s"\n' \
		"$$CGO_LDFLAGS" "$$ENGINE_TAGS" "$$GOFLAGS"

clean: ## remove what make built
	rm -rf bin build dist

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
