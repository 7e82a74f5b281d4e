#!/usr/bin/env bash
# Two daemons with real weights behind real routers (docs/cluster.md): which requests work, the share of cached tokens
# by policy, one daemon killed in the middle, both started again. The routers come from the Python registry, the model
# from models.lock.
#
#   scripts/cluster.sh [options of cluster.py]     such as --only vllm-kv_aware,kill --rounds 3
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/uma-serve/routers
mkdir -p "$cache"
for package in vllm-router==0.1.17 sglang-router==0.3.2 smg==1.13.0 'litellm[proxy]==1.108.7'; do
	name=${package%%[=\[]*}
	[ -e "$cache/$name/ready" ] && continue
	python3 -m venv "$cache/$name"
	"$cache/$name/bin/pip" install --quiet --disable-pip-version-check "$package"
	touch "$cache/$name/ready"
done
if [ ! -e "$cache/zmq/ready" ]; then
	python3 -m venv "$cache/zmq"
	"$cache/zmq/bin/pip" install --quiet --disable-pip-version-check pyzmq==27.3.0 msgspec==0.22.0
	touch "$cache/zmq/ready"
fi
UMA_ZMQ_PYTHON=$cache/zmq/bin/python go test -count=1 -run TestPython ./daemon/kvevents
model=$(scripts/models-fetch.sh "${MODEL:-smollm2-135m}")
exec python3 scripts/cluster/cluster.py --daemon "${DAEMON:-bin/uma-serve}" --model "$model" --venvs "$cache" "$@"
