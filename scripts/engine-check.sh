#!/usr/bin/env bash
# The tests of the engine and the smoke test on the llama.cpp tree ENGINE_TREE: make ENGINE=TREE engine-check.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${ENGINE_TREE:-}" ]; then
	echo "make engine-check needs a llama.cpp tree: make ENGINE=/path/to/llama.cpp engine-check" >&2
	exit 1
fi
echo "== $("${BIN:-bin}/uma-serve" --version)"
go test -timeout 40m ./runtime/llama ./runtime/ggufgen ./smoke
go test -timeout 40m -count=1 -v -run TestEngineTree ./scripts
