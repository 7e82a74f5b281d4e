#!/usr/bin/env bash
# Runs llama.cpp's tests of llama-server (tools/server/tests of engine.lock) against bin/uma-serve, and with
# BASE=llama-server against the llama-server of the same tree, whose tests the stand-ins fit. There is no download of
# models: scripts/dropin/standins.py puts models of this machine in their place. Prints the count, and each test that
# fails. Without Python's registry it skips.
#
#   scripts/dropin.sh                        all but tools, MCP, the proxy and pictures
#   scripts/dropin.sh completion router      only these files of unit/: test_completion.py, test_router.py
#
# DIVIDED=1 divides the context where a test gives -np and not --kv-unified, as llama-server does then by itself.
# GEMMA names a GGUF file of a Gemma 3 for the tests that need it; without it these are skipped. KEEP=1 keeps the folder
# with the logs.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
dir=$(mktemp -d "${TMPDIR:-/tmp}/uma-dropin.XXXXXX")
trap '[ "${KEEP:-}" = 1 ] || rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
skip() {
	echo "llama-server's tests were SKIPPED: $*" >&2
	exit 0
}

python=${PYTHON:-python3}
"$python" -m venv "$dir/venv" || skip "python3 -m venv fails"
"$dir/venv/bin/pip" --quiet --disable-pip-version-check install 'openai~=2.14.0' 'pytest~=8.3.3' 'filelock~=3.16' \
	'numpy~=2.2.6' 'prometheus-client~=0.20.0' 'requests~=2.32.3' 'wget~=3.2' pytest-timeout pyyaml tqdm ||
	skip "Python's registry does not answer"
tree=$(scripts/engine-fetch.sh '') || exit 1
tests=$dir/tree/tools/server/tests # they name templates by their place in the tree
mkdir -p "$tests"
cp -r "$tree/tools/server/tests/." "$tests"
ln -s "$tree/models" "$dir/tree/models"

mkdir "$dir/models"
# With this seed the order in which rerank.gguf puts the tests' documents is the right one.
for model in tiny:tiny:1 embed:tiny-bert:1 rerank:tiny-rank:10; do
	IFS=: read -r name preset seed <<<"$model"
	CGO_ENABLED=0 go run ./runtime/ggufgen/cmd/ggufgen -preset "$preset" -seed "$seed" -o "$dir/models/$name.gguf" \
		>/dev/null || exit 1
done
PYTHONPATH=$tree/gguf-py "$dir/venv/bin/python" scripts/dropin/models.py "$dir/models" || exit 1
[ -z "${GEMMA:-}" ] || ln -s "$(realpath "$GEMMA")" "$dir/models/gemma3.gguf"

server=$root/bin/uma-serve
export KEYS_IN_A_FILE=1
if [ "${BASE:-}" = llama-server ]; then
	tools=$(scripts/engine-tools.sh llama-server) || exit 1
	export LD_LIBRARY_PATH=$tools${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	server=$tools/llama-server
	unset KEYS_IN_A_FILE
fi
[ -x "$server" ] || { echo "scripts/dropin.sh: $server is missing: make build" >&2 && exit 1; }

files=()
if [ $# -gt 0 ]; then
	for name; do files+=("unit/test_$name.py"); done
else
	for file in "$tests"/unit/test_*.py; do
		case $file in
		*_mcp_*.py | *_proxy.py | *_tool_call.py | *_tools_builtin.py | *_vision_api.py) ;;
		*) files+=("unit/$(basename "$file")") ;;
		esac
	done
fi
cd "$tests" || exit 1
STANDINS=$dir/models LLAMA_SERVER_BIN_PATH=$server PYTHONPATH=$root/scripts/dropin:$tests TMPDIR=$dir \
	"$dir/venv/bin/python" -m pytest -p standins -p no:cacheprovider -q -m "not slow" --timeout "${LIMIT:-120}" \
	--tb=short -rfEs "${files[@]}" >"$dir/log" 2>&1
grep -E '^(FAILED|ERROR|SKIPPED)' "$dir/log" | cut -c1-200
tail -n 1 "$dir/log"
