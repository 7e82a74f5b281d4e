#!/usr/bin/env bash
# Run real client libraries, with PYTHON=1 Python's, or with AGENTS=1 coding agents, against bin/uma-serve, and write
# the table of docs/clients.md. CHECK=1 leaves the table alone. With LAUNCH=1 the programs of uma-cli launch each take a
# turn, in the versions of scripts/clients/agents/launch.txt. Fails if a feature fails; without registries it skips.
#   scripts/clients.sh [CLIENT…]     only these: openai aisdk anthropic ollama langchain; go, or of Go's libraries
#                                    openai-go langchaingo anthropic-sdk-go ollama-go; with AGENTS=1 codex opencode …;
#                                    with PYTHON=1 the names of scripts/clients/python/versions.txt,
#                                    with LAUNCH=1 those of scripts/clients/agents/launch.txt
set -uo pipefail
cd "$(dirname "$0")/.." || exit
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
if [ "${AGENTS:-}${LAUNCH:-}" = 1 ]; then
	kind=agent packages=$own/agents clients=(codex opencode pi qwen-code continue)
	if [ "${LAUNCH:-}" = 1 ]; then
		kind=launch
		mapfile -t clients < <(sed -n 's/^\([a-z-]*\) .*/\1/p' "$own/agents/launch.txt")
	fi
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

# uv_path adds uv to PATH.
uv_path() {
	python3 -m venv "$dir/uv" && timeout 120 "$dir/uv/bin/pip" install -q uv==0.13.9 >"$dir/pip.log" 2>&1 ||
		skip "Python's registry does not answer, or python3 has no venv"
	export PATH="$dir/uv/bin:$PATH" UV_PYTHON_DOWNLOADS=never
}
if [ "$kind" = launch ]; then
	uv_path
	(cd "$dir" && echo '{"private": true}' >package.json &&
		timeout 400 npm install --no-audit --no-fund --loglevel=error node@24.21.0) >"$dir/npm.log" 2>&1 || {
		cat "$dir/npm.log" >&2
		exit 1
	}
	export PATH="$dir/node_modules/.bin:$PATH" UMA_CLI=$root/bin/uma-cli
elif [ "$kind" = python ]; then
	# uv installs each library's packages apart: they ask for different versions of one another.
	uv_path
	export PYTHONPATH=$own/python PYTHONDONTWRITEBYTECODE=1
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

# Clients that make and delete models leave those of this user alone.
XDG_DATA_HOME=$dir/data bin/uma-serve --socket "$dir/uma.sock" --listen 127.0.0.1:0 "${serve[@]}" \
	>"$dir/serve.log" 2>&1 &
pid=$!
export UMA_SOCKET=$dir/uma.sock
until bin/uma-cli health >/dev/null 2>&1; do
	kill -0 "$pid" 2>/dev/null || { cat "$dir/serve.log" >&2; exit 1; }
	sleep 0.1
done
UMA_URL=$(sed -n 's/.*msg=listening url=\(http[^ ]*\).*/\1/p' "$dir/serve.log" | head -1)
export UMA_URL

# launch PROGRAM: install its packages apart, and run a turn of it.
launch() {
	local packages place=$dir/$1
	read -ra packages < <(sed -n "s/^$1 //p" "$own/agents/launch.txt")
	[ ${#packages[@]} -gt 0 ] || { echo "$own/agents/launch.txt has no $1" >&2 && return 1; }
	mkdir -p "$place"
	if [[ ${packages[0]} == *==* ]]; then
		uv venv -q "$place/venv" && timeout 600 uv pip install -q -p "$place/venv" "${packages[@]}" || return
	else
		(cd "$place" && echo '{"private": true}' >package.json &&
			timeout 400 npm install --no-audit --no-fund --loglevel=error "${packages[@]}") >"$place/npm.log" 2>&1 || {
			tail -n 5 "$place/npm.log" >&2
			return 1
		}
	fi
	# A package of one platform alone has its program in bin, which npm does not link.
	local path=$place/venv/bin:$place/node_modules/.bin:$place/node_modules/${packages[0]%@*}/bin
	(cd "$place" && PATH=$path:$PATH node "$own/agents/launch.mjs" "$1") >>"$rows"
	local result=$?
	rm -rf "$place" # some have a gigabyte
	return $result
}
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
	elif [ "$kind" = launch ]; then
		launch "$client" || status=1
	elif [ "$kind" = agent ]; then
		(cd "$dir" && node agent.mjs "$client") >>"$rows" || status=1
	else
		(cd "$dir" && node "$client.mjs") >>"$rows" || status=1
	fi
	echo "$client: $((SECONDS - began)) s"
done
node "$own/table.mjs" "$kind" "$rows" \
	"$([ "${CHECK:-}" = 1 ] || [ $# -gt 0 ] || [ "$kind" = launch ] || echo "$root/docs/clients.md")" || status=1
exit $status
