#!/usr/bin/env bash
# The picture of the README: the longest gap between two tokens of two chats over time, alone and in a storm of long
# prompts, of uma-serve and of llama-server of the same llama.cpp, on the same weights with as many threads and as large
# a context. The servers take turns. It writes docs/storm.svg from the round with the middle worst gap, and prints every
# round.
#
#   scripts/storm-picture.sh            MODEL, ROUNDS (3), SOLO (10s) and STORM (30s) change it; OUT is the folder
#
# It wants a quiet machine: the load of the machine is printed with each round.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-bench-out/storm-picture}
mkdir -p "$out"
model=${MODEL:-$(scripts/models-fetch.sh qwen2.5-coder-0.5b)}
llama=$(scripts/engine-tools.sh llama-server)/llama-server
threads=$(nproc)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null' EXIT
trap 'exit 130' INT TERM HUP
measure() { # NAME ROUND OPTION…: a storm on one server
	local name=$1 round=$2
	shift 2
	bin/uma-bench run --workload storm --solo "${SOLO:-10s}" --storm "${STORM:-30s}" --repeats 1 --name "$name" -q \
		--out-dir "$out/$name-$round" "$@" >"$out/$name-$round.md" 2>"$out/$name-$round.err" ||
		{ cat "$out/$name-$round.err" "$out/llama-server.log" >&2; exit 1; }
}
for round in $(seq "${ROUNDS:-3}"); do
	echo "round $round: load before: $(cut -d' ' -f1-3 /proc/loadavg)"
	measure uma-serve "$round" -m "$model" -- -t "$threads" --ctx-size 16384
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	"$llama" -m "$model" -t "$threads" -c 16384 -np 8 --host 127.0.0.1 --port "$port" >"$out/llama-server.log" 2>&1 &
	pid=$!
	until curl -fs "http://127.0.0.1:$port/health" >/dev/null; do
		kill -0 $pid 2>/dev/null || { tail -5 "$out/llama-server.log" >&2; exit 1; }
		sleep 0.2
	done
	measure llama-server "$round" --target llama-server --url "http://127.0.0.1:$port"
	kill $pid
	wait $pid || true
	pid=
done
python3 - "$out" "${ROUNDS:-3}" <<'PY'
import json, pathlib, shutil, sys
out, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for name in "uma-serve", "llama-server":
    rows = []
    for k in range(1, rounds + 1):
        r = json.loads((out / f"{name}-{k}" / "report.json").read_text())
        worst = max(p["high"] for p in r["itl_over_time"] if p["x"] > r["mark_s"])
        rows.append((worst, k))
        print(f"{name} {k}: ITL in the storm p50 {r['output_itl_p50_ms']:.0f}, p95 {r['output_itl_p95_ms']:.0f}, "
              f"worst {worst:.0f} ms; {r['output_tokens_per_s']:.1f} tokens/s of the chats")
    middle = sorted(rows)[(rounds - 1) // 2][1]
    shutil.copy(out / f"{name}-{middle}" / "report.json", out / f"{name}.json")
PY
bin/uma-bench compare --fail-over 1e9 --itl-svg docs/storm.svg "$out/uma-serve.json" "$out/llama-server.json"
echo "docs/storm.svg is drawn"
