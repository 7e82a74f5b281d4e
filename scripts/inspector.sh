#!/usr/bin/env bash
# The official MCP inspector's command line against bin/uma-serve mcp, over stdio and HTTP: lists and calls the tools,
# reads the resources, and holds the answers against what is expected. docs/mcp.md has what it prints. Without npm's
# registry it says so and succeeds.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
dir=$(mktemp -d "${TMPDIR:-/tmp}/uma-inspector.XXXXXX")
pids=()
stop() {
	[ ${#pids[@]} -gt 0 ] && kill "${pids[@]}" 2>/dev/null && wait "${pids[@]}" 2>/dev/null
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP
skip() {
	echo "The inspector was SKIPPED: $*" >&2
	exit 0
}

command -v npm >/dev/null || skip "npm is not installed"
timeout 20 npm ping --silent >/dev/null 2>&1 || skip "npm's registry does not answer"
cat >"$dir/package.json" <<'JSON'
{"private": true, "dependencies": {"@modelcontextprotocol/inspector": "2.12.0", "node": "24.21.0"}}
JSON
(cd "$dir" && timeout 400 npm install --no-audit --no-fund --loglevel=error) >"$dir/npm.log" 2>&1 || {
	cat "$dir/npm.log" >&2
	exit 1
}
export PATH="$dir/node_modules/.bin:$PATH" HOME="$dir"

# until_there FILE PATTERN PID: wait until a program has written a line.
until_there() {
	until grep -q "$2" "$1" 2>/dev/null; do
		kill -0 "$3" 2>/dev/null || { cat "$1" >&2; exit 1; }
		sleep 0.1
	done
}
bin/uma-serve --socket "$dir/uma.sock" >"$dir/serve.log" 2>&1 &
pids+=($!)
until_there "$dir/serve.log" msg=ready $!
bin/uma-serve mcp --socket "$dir/uma.sock" --listen 0 >"$dir/mcp.log" 2>&1 &
pids+=($!)
until_there "$dir/mcp.log" http:// $!
url=$(grep -o 'http://[^ ]*' "$dir/mcp.log" | head -1)

failed=0
# check NAME STATUS PATTERN ARGUMENT…: one call of the inspector, which must end with STATUS and print PATTERN.
check() {
	local name=$1 want=$2 pattern=$3 got
	shift 3
	timeout 60 mcp-inspector --cli "${server[@]}" "$@" >"$dir/out" 2>&1
	got=$?
	if [ $got != "$want" ] || ! tr -d '\n' <"$dir/out" | grep -qE -- "$pattern"; then
		failed=1
		echo "$how: $name FAILED: status $got, not $want, or no $pattern:"
		head -c 300 "$dir/out"; echo
	else
		echo "$how: $name: ok"
	fi
}
for how in stdio http; do
	server=("$root/bin/uma-serve" mcp --socket "$dir/uma.sock")
	[ $how = http ] && server=("$url")
	check 'tools/list --strict' 0 '"name": "chat".*"complete".*"kv".*"models".*"why"' --method tools/list --strict
	if grep -E 'Warning:|Error:|warning|[1-9] errors' "$dir/out"; then
		failed=1
	fi
	check 'tools/call chat' 0 '"text": "5798"' --method tools/call --tool-name chat \
		--tool-arg 'prompt=What is 4821 + 977?'
	check 'tools/call complete' 0 '"answer_tokens": 8' --method tools/call --tool-name complete \
		--tool-arg 'prompt=1 2 3' --tool-arg max_tokens=8
	check 'tools/call why' 0 'mcp-' --method tools/call --tool-name why --tool-arg last=1
	check 'tools/call kv' 0 'cells' --method tools/call --tool-name kv --tool-arg tree=true
	check 'tools/call models' 0 'uma-tiny' --method tools/call --tool-name models
	check 'tools/call chat without a prompt' 5 '"isError": true' --method tools/call --tool-name chat
	check 'tools/call of no tool' 5 'not found' --method tools/call --tool-name nothing
	check 'resources/list' 0 'uma://info.*uma://kv.*uma://models.*uma://why' --method resources/list
	check 'resources/templates/list' 0 'uma://why/\{request\}' --method resources/templates/list
	for uri in info models why kv; do
		check "resources/read uma://$uri" 0 'application/json.*"private"' --method resources/read --uri "uma://$uri"
	done
	check 'resources/read of no resource' 1 'not found' --method resources/read --uri uma://nothing
	check 'prompts/list' 0 '"prompts": \[\]' --method prompts/list
	check '100 calls, 8 at a time' 0 '"ok": 100' --method tools/call --tool-name models --load --load-requests 100 \
		--load-concurrency 8
done
exit $failed
