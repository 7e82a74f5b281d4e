#!/usr/bin/env bash
# Run real client libraries, with PYTHON=1 Python's, or with AGENTS=1 coding agents, against bin/uma-serve, and write
# the table of docs/clients.md. CHECK=1 leaves the table alone. Fails if a feature fails; without registries it skips.
#   scripts/clients.sh [CLIENT…]     only these: openai aisdk anthropic ollama langchain; go, or of Go's libraries
#                                    openai-go langchaingo anthropic-sdk-go ollama-go; with AGENTS=1 codex opencode …;
#                                    with PYTHON=1 the names of scripts/clients/python/versions.txt
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
own=$root/scripts/clients
dir=$(mktemp -d "${TMPDIR:-/tmp}/uma-clients.XXXXXX")
rows=$dir/rows.jsonl
: >"$rows"
pid=
stop() {
	[ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP
skip() {
	echo "The clients were SKIPPED: $*" >&2
	exit 0
}

command -v npm >/dev/null || skip "npm is not installed"
timeout 20 npm ping --silent >/dev/null 2>&1 || skip "npm's registry does not answer"

# Answers of the default model are checked; agents get a large context and long prompts, so their model is the smallest.
if [ "${AGENTS:-}" = 1 ]; then
	kind=agent packages=$own/agents clients=(codex opencode pi qwen-code continue)
	CGO_ENABLED=0 go run ./runtime/ggufgen/cmd/ggufgen -preset tiny-long -end-every 40 \
		-o "$dir/model.gguf" >/dev/null || exit 1
	serve=(-m "$dir/model.gguf" -s 1 -c 131072 --think-budget 64 --max-prompt-bytes 4194304 --max-frame-bytes 8388608)
elif [ "${PYTHON:-}" = 1 ]; then
	kind=python packages=
	mapfile -t clients < <(sed -n 's/^\([a-z_]*\) .*/\1/p' "$own/python/versions.txt")
	serve=(-c 16384 -s 1)
else
	kind=library packages=$own clients=(openai aisdk anthropic ollama langchain go)
	serve=(-c 16384 -s 1 --pooling mean)
fi
[ $# -gt 0 ] && clients=("$@")

if [ "$kind" = python ]; then
	# uv installs each library's packages apart: they ask for different versions of one another.
	python3 -m venv "$dir/uv" && timeout 120 "$dir/uv/bin/pip" install -q uv==0.13.9 >"$dir/pip.log" 2>&1 ||
		skip "Python's registry does not answer, or python3 has no venv"
	export PATH="$dir/uv/bin:$PATH" PYTHONPATH=$own/python PYTHONDONTWRITEBYTECODE=1 UV_PYTHON_DOWNLOADS=never
else
	cp "$packages/package.json" "$own"/*.mjs "$dir" || exit 1
	[ "$kind" = agent ] && { cp "$own"/agents/*.mjs "$dir" || exit 1; }
	echo "installing $(grep -c '": "[0-9]' "$dir/package.json") packages from npm"
	(cd "$dir" && timeout 400 npm install --no-audit --no-fund --no-save --loglevel=error) >"$dir/npm.log" 2>&1 || {
		cat "$dir/npm.log" >&2
		exit 1
	}
	# The package node brings the Node.js that the libraries ask for.
	export PATH="$dir/node_modules/.bin:$PATH"
fi

bin/uma-serve --socket "$dir/uma.sock" --listen 127.0.0.1:0 "${serve[@]}" >"$dir/serve.log" 2>&1 &
pid=$!
export UMA_SOCKET=$dir/uma.sock
until bin/uma-cli health >/dev/null 2>&1; do
	kill -0 "$pid" 2>/dev/null || { cat "$dir/serve.log" >&2; exit 1; }
	sleep 0.1
done
UMA_URL=$(sed -n 's/.*msg=listening url=\(http[^ ]*\).*/\1/p' "$dir/serve.log" | head -1)
export UMA_URL

status=0
for client in "${clients[@]}"; do
	began=$SECONDS
	if [ "$kind" = python ]; then
		read -ra packages < <(sed -n "s/^$client //p" "$own/python/versions.txt")
		uv venv -q "$dir/$client" && timeout 600 uv pip install -q -p "$dir/$client" "${packages[@]}" &&
			(cd "$dir" && "$dir/$client/bin/python" -W ignore "$own/python/${client}_.py") 2>"$dir/$client.err" |
			grep -o '{"client": .*' >>"$rows" || { tail -n 5 "$dir/$client.err" >&2; status=1; }
	elif [ "$kind" = library ] && [ ! -e "$own/$client.mjs" ]; then
		names=("$client")
		[ "$client" = go ] && names=()
		(cd "$own/go" && CGO_ENABLED=0 go build -o "$dir/goclients" .) && "$dir/goclients" "${names[@]}" >>"$rows" ||
			status=1
	elif [ "$kind" = agent ]; then
		(cd "$dir" && node agent.mjs "$client") >>"$rows" || status=1
	else
		(cd "$dir" && node "$client.mjs") >>"$rows" || status=1
	fi
	echo "$client: $((SECONDS - began)) s"
done
node "$own/table.mjs" "$kind" "$rows" \
	"$([ "${CHECK:-}" = 1 ] || [ $# -gt 0 ] || echo "$root/docs/clients.md")" || status=1
exit $status
