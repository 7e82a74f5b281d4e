#!/usr/bin/env bash
# The tests of the engine and the smoke test on the llama.cpp that make links: make engine-check, or on another one
# make ENGINE=/path/to/llama.cpp engine-check.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "== $("${BIN:-bin}/uma-serve" --version)"
go test -timeout 40m ./runtime/llama ./runtime/ggufgen ./smoke
ENGINE_TREE=$(scripts/engine-fetch.sh "${ENGINE:-}")
export ENGINE_TREE
go test -timeout 40m -count=1 -v -run TestEngineTree ./scripts
