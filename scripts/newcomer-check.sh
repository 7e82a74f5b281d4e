#!/usr/bin/env bash
# The first minutes of a newcomer: git clone, make open in an empty home, and in the browser that it opens a question to
# a published model. Prints how long each took. It downloads what a newcomer downloads, and compiles llama.cpp (WARM=1:
# with this user's caches). Needs Chromium, node and npm's registry; without them it says so and checks nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
skip() {
	echo "newcomer-check: SKIPPED: $*" >&2
	exit 0
}
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$chromium" ] || skip "there is no Chromium (apt-get install chromium)"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then skip "there is no node, or no npm"; fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/uma-newcomer.XXXXXX")
pid=
cleanup() {
	# Ctrl-C reaches the group: make itself would wait for its child.
	[ -z "$pid" ] || { kill -INT -- "-$pid" && wait "$pid"; } 2>/dev/null || true
	chmod -R u+w "$dir" # Go's module cache
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
cp scripts/page-check.json "$dir/package.json"
npm install --prefix "$dir" --no-audit --no-fund --ignore-scripts --loglevel=error ||
	skip "npm's registry does not answer"
if [ "${WARM:-}" != 1 ]; then
	mkdir "$dir/home"
	export HOME=$dir/home
	unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME GOCACHE GOMODCACHE GOPATH
fi
# The page of a browser that the user looks at: the first paint, a question typed, the answer read.
cat >"$dir/browser" <<-END
	#!/bin/sh
	CHROMIUM='$chromium' exec node '$repo/scripts/newcomer-check.mjs' "\$1" '$dir'
END
chmod +x "$dir/browser"
began=$SECONDS
git clone -q --no-hardlinks "$repo" "$dir/uma-serve"
# A job in a separate process group gets the Ctrl-C that ends make open.
set -m
(cd "$dir/uma-serve" && unset CDPATH && BROWSER=$dir/browser exec make open) </dev/null >"$dir/log" 2>&1 &
pid=$!
set +m
until [ -s "$dir/answer" ]; do
	kill -0 "$pid" 2>/dev/null || [ -s "$dir/answer" ] || { tail -n 20 "$dir/log" >&2; exit 1; }
	[ $((SECONDS - began)) -lt "${LIMIT:-3600}" ] || { tail -n 20 "$dir/log" >&2; exit 1; }
	sleep 0.2
done
cat "$dir/answer"
grep -q '^ok' "$dir/answer" || { tail -n 20 "$dir/log" >&2; exit 1; }
echo "from git clone to the answer: $((SECONDS - began)) s"
