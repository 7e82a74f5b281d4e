#!/usr/bin/env bash
# Drives the page in headless Chromium through uma-cli open, on the built daemon and on one that thinks slowly: chat,
# thought, end of thinking, stop, retry, reload, branches, files, camera and microphone (of fake devices), settings,
# search, export and import, the models (of a scripted server), a server that wants a key, the live panels, Markdown,
# keyboard, dark mode, 400 and 360 px, accessibility (axe-core), no console error, no request to another origin. Needs
# Chromium (Debian: apt-get install chromium), node and, once, npm's registry. Without them it says so and checks
# nothing.
# Usage: scripts/page-check.sh [FOLDER], into which the screenshots go (default: a temporary one). BIN=FOLDER names
# built commands; otherwise make builds them. UMA_PAGE_ASSETS=FOLDER takes the page's files from a folder instead.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() {
	echo "page-check: SKIPPED: $*; the page was not checked in a browser" >&2
	exit 0
}
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$chromium" ] || skip "there is no Chromium (apt-get install chromium)"
command -v node >/dev/null || skip "there is no node"
command -v npm >/dev/null || [ -d build/page-check/node_modules/puppeteer-core ] || skip "there is no npm"
tools=build/page-check
mkdir -p "$tools"
if ! cmp -s scripts/page-check.json "$tools/package.json" || [ ! -d "$tools/node_modules/puppeteer-core" ]; then
	cp scripts/page-check.json "$tools/package.json"
	npm install --prefix "$tools" --no-audit --no-fund --ignore-scripts --loglevel=error || {
		rm -f "$tools/package.json"
		skip "npm's registry does not answer"
	}
fi
dir=$(mktemp -d)
shots=${1:-$dir/shots}
mkdir -p "$shots"
pids=()
cleanup() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
if [ -z "${BIN:-}" ]; then
	BIN=bin
	make -s uma-serve uma-cli
fi
CGO_ENABLED=0 go test -c -o "$dir/daemon.test" ./daemon
"$BIN/uma-serve" --socket "$dir/real" >"$dir/real.log" 2>&1 &
pids+=($!)
UMA_PAGE_SOCKET="$dir/slow" "$dir/daemon.test" -test.run '^TestPageServer$' -test.timeout 30m >"$dir/slow.log" 2>&1 &
pids+=($!)
for name in real slow; do
	for _ in $(seq 600); do
		[ -S "$dir/$name" ] && break
		sleep 0.1
	done
	"$BIN/uma-cli" open --no-browser --socket "$dir/$name" >"$dir/$name.url" &
	pids+=($!)
	for _ in $(seq 100); do
		[ -s "$dir/$name.url" ] && break
		sleep 0.1
	done
	[ -s "$dir/$name.url" ] || { cat "$dir/$name.log" >&2; exit 1; }
done
umask 077
echo "page-check-key-0123456789abcdef tester" >"$dir/keys"
"$BIN/uma-serve" --socket "$dir/keyed" --listen 127.0.0.1:0 --listen-mode 0000 --api-keys "$dir/keys" \
	>"$dir/keyed.log" 2>&1 &
pids+=($!)
for _ in $(seq 600); do
	keyed=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$dir/keyed.log" | head -1) && break
	sleep 0.1
done
[ -n "$keyed" ] || { cat "$dir/keyed.log" >&2; exit 1; }
CHROMIUM="$chromium" KEYED_URL="$keyed" node scripts/page-check.mjs "$(cat "$dir/real.url")" \
	"$(cat "$dir/slow.url")" "$shots" "$PWD/$tools"
