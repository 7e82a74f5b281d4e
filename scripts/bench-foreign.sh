#!/usr/bin/env bash
# Other people's load generators drive uma-serve, llama-server of the same llama.cpp and, where SERVERS names it,
# ik_llama.cpp's server over HTTP, on real weights: guidellm and inference-perf with constant and Poisson arrivals,
# aiperf with sessions of agents.
# The tools' own reports stay in OUT (default bench-out/foreign); a table is printed. Packages and models are fetched,
# and the other servers built, the first time.
#
#   scripts/bench-foreign.sh [options of foreign.py]     such as --quick, --only aiperf, --rounds 3
#
# MODELS names models of models.lock (default: all three), SERVERS those that are driven. It wants a quiet machine:
# about 25 minutes for each model and round; --quick takes 4 and measures nothing but that everything works.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/uma-serve/foreign
mkdir -p "$cache"
# guidellm: the last version that does not want PyTorch, which has 3 GB. gguf reads the model's vocabulary.
install() { # NAME PYTHON PACKAGES…
	local name=$1 python=$2
	shift 2
	[ ! -e "$cache/$name/ready" ] || return 0
	"$python" -m venv "$cache/$name"
	"$cache/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
	touch "$cache/$name/ready"
}
# newer PYTHON finds an interpreter of 3.12 or later, which inference-perf wants; nothing if there is none.
newer() {
	local at pyenv=${PYENV_ROOT:-$HOME/.pyenv}
	for at in ${PYTHON312:-} python3.13 python3.12 "$pyenv"/versions/3.1[23]*/bin/python3 python3; do
		if "$at" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
			echo "$at"
			return
		fi
	done
}
install guidellm python3 guidellm==0.3.1 gguf==0.19.0
install aiperf python3 aiperf==0.13.0
python=$(newer)
if [ -n "$python" ]; then
	install inference-perf "$python" inference-perf==0.7.0
else
	echo "inference-perf needs Python 3.12: name it in PYTHON312; going on without" >&2
fi
servers=()
for name in ${SERVERS:-uma-serve llama-server}; do
	case $name in
	uma-serve) program=${DAEMON:-bin/uma-serve} ;;
	llama-server) program=${LLAMA_SERVER:-$(scripts/engine-tools.sh llama-server)/llama-server} ;;
	ik_llama.cpp) program=${IK_LLAMA_SERVER:-$(scripts/ik-llama.sh)} ;;
	*) echo "SERVERS: there is no $name; there are uma-serve, llama-server and ik_llama.cpp" >&2 && exit 1 ;;
	esac
	servers+=(--server "$name=$program")
done
models=()
for name in ${MODELS:-smollm2-135m qwen2.5-coder-0.5b gemma-3-270m}; do
	path=$(scripts/models-fetch.sh "$name")
	folder=$cache/tokenizers/$(basename "$path" .gguf)
	[ -e "$folder/tokenizer.json" ] ||
		"$cache/guidellm/bin/python" scripts/foreign/tokenizer.py "$path" "$folder" 2>/dev/null
	models+=(--model "$name=$path=$folder")
done
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
exec python3 scripts/foreign/foreign.py --venvs "$cache" --out "${OUT:-bench-out/foreign}" \
	"${servers[@]}" "${models[@]}" "$@"
