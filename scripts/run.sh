#!/usr/bin/env bash
# Start the daemon on a private socket, chat (or ask once), stop the daemon.
#   scripts/run.sh "question, or empty to chat" [uma-serve options…]
set -uo pipefail
cd "$(dirname "$0")/.."
ask=${1:-}
[ $# -gt 0 ] && shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/uma-run.XXXXXX")
pid=
stop() {
	[ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP
export UMA_SOCKET="$dir/uma.sock"

bin/uma-serve --log-level warn "$@" &
pid=$!
until bin/uma-cli health >/dev/null 2>&1; do
	kill -0 "$pid" 2>/dev/null || { wait "$pid"; exit $?; }
	sleep 0.05
done

trap '' INT # the chat's own: it cancels an answer
if [ -n "$ask" ]; then
	bin/uma-cli run "$ask" </dev/null
else
	bin/uma-cli chat
fi
