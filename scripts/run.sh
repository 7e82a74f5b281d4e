#!/usr/bin/env bash
# Start the daemon on a private socket, chat (or ask once, or with OPEN=1 open the page), stop the daemon.
#   scripts/run.sh "question, or empty to chat" [uma-serve options…]
#
# MODEL is builtin, a GGUF file, a model that `uma-cli models` lists, or a name of models.lock. Without it and without
# -m it is qwen2.5-coder-0.5b of models.lock where that can be fetched, the same from the hub where only that can be
# reached, else the built-in model. It is fetched while the programs are built, and so is what Go builds them from.
set -uo pipefail
cd "$(dirname "$0")/.."
ask=${1:-}
[ $# -gt 0 ] && shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/uma-run.XXXXXX")
pid= fetcher= modules=
stop() {
	for p in $fetcher $modules; do
		kill "$p" && wait "$p"
	done 2>/dev/null
	[ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP
export UMA_SOCKET="$dir/uma.sock"

model=${MODEL:-}
for option in "$@"; do
	case $option in -m* | --model | --model=* | --models*) given=1 ;; esac
done
name=''
if [ -n "${given:-}${UMA_MODEL:-}" ]; then
	model=''
elif [ -z "$model" ] || scripts/models-fetch.sh | grep -qxF "$model"; then
	name=${model:-qwen2.5-coder-0.5b}
	WHY="$dir/why" scripts/models-fetch.sh "$name" >"$dir/model" 2>"$dir/fetching" &
	fetcher=$!
fi
if [ ! -x bin/uma-serve ]; then
	CGO_ENABLED=0 "${GO:-go}" list -deps ./cmd/uma-serve ./cmd/uma-cli >/dev/null 2>&1 &
	modules=$!
fi
# The variables of the command line reach this make by MAKEFLAGS.
"${MAKE:-make}" --no-print-directory uma-serve uma-cli || exit
if [ -n "$name" ]; then
	told=''
	while kill -0 "$fetcher" 2>/dev/null; do
		line=$(grep '^fetching\|^waiting' "$dir/fetching" | tail -n 1)
		[ "$line" = "$told" ] || echo "$line" >&2
		told=$line
		sleep 0.2
	done
	wait "$fetcher"
	code=$? fetcher='' model=$(cat "$dir/model")
	case $code in
	0) ;;
	130) exit 130 ;;
	*)
		[ -z "${MODEL:-}" ] || { cat "$dir/why" >&2 && exit 1; }
		# The hub may be reachable where the registry is not. What was pulled once needs neither.
		model=hf.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M
		bin/uma-cli show "$model" >/dev/null 2>&1 || {
			echo "$(cat "$dir/why"); pulling $model" >&2
			bin/uma-cli pull "$model" >/dev/null
			case $? in
			0) ;;
			130) exit 130 ;;
			*)
				echo "serving the built-in model, which calculates, sorts and counts letters: $(cat "$dir/why")," \
					"and the hub has not answered" >&2
				model=''
				;;
			esac
		}
		name=$model
		;;
	esac
	[ -z "$model" ] || [ -n "${MODEL:-}" ] ||
		echo "serving $name; MODEL=builtin serves the built-in model, MODEL=FILE another" >&2
elif [ "$model" = builtin ]; then
	echo "serving the built-in model, which calculates, sorts and counts letters" >&2
	model=''
fi
bin/uma-serve --log-level warn ${model:+-m "$model"} "$@" &
pid=$!
until bin/uma-cli health >/dev/null 2>&1; do
	kill -0 "$pid" 2>/dev/null || { wait "$pid"; exit $?; }
	sleep 0.05
done

trap '' INT # the chat's own: it cancels an answer
if [ -n "$ask" ]; then
	bin/uma-cli run "$ask" </dev/null
elif [ -n "${OPEN:-}" ]; then
	bin/uma-cli open
else
	bin/uma-cli chat
fi
