#!/usr/bin/env bash
# Compares answers about images and sounds with those of llama-mtmd-cli of the same llama.cpp, greedily, for four
# families of projectors with random weights: idefics3 (SmolVLM), gemma3 and mlp (llava), and ultravox, which hears.
# Each question is asked twice, the second time with a cached prefix. The text model has float32 weights: with quantised
# ones two kernels part at near ties.
#
#   scripts/images.sh [OPTIONS OF UMA-SERVE]      BIN=FOLDER names built commands; otherwise make builds them
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
	echo "scripts/images.sh: $*" >&2
	exit 1
}
[ -n "${BIN:-}" ] || { make build && BIN=bin; }
reference=$(scripts/engine-tools.sh llama-mtmd-cli)/llama-mtmd-cli
dir=$(mktemp -d)
server=''
stop() {
	[ -z "$server" ] || { kill "$server" && wait "$server" || :; } 2>/dev/null
	server=''
}
trap 'stop; rm -rf "$dir"' EXIT
CGO_ENABLED=0 GOFLAGS= "${GO:-go}" run ./runtime/ggufgen/cmd/ggufgen -preset tiny-vision -type f32 -vision "$dir" \
	-o "$dir/tiny.gguf"
question='what is this'
bad=0
for kind in idefics3 gemma3 mlp ultravox; do
	"$BIN/uma-serve" --single --model "$dir/tiny.gguf" --mmproj "$dir/$kind.gguf" --ctx-size 4096 \
		--socket "$dir/$kind.sock" "$@" >"$dir/$kind.log" 2>&1 &
	server=$!
	for _ in $(seq 300); do
		curl -sf --unix-socket "$dir/$kind.sock" http://uma/health >/dev/null && break
		kill -0 "$server" 2>/dev/null || fail "$(tail -n 2 "$dir/$kind.log")"
		sleep 0.1
	done
	case $kind in
	ultravox) media=("$dir"/*.wav) ;;
	*) media=("$dir"/*.png) ;;
	esac
	for medium in "${media[@]}"; do
		# Its console drops NUL and bytes that are no text, and sometimes the last words: what it says is a beginning.
		want=''
		for _ in 1 2 3; do
			[ "${#want}" -lt 12 ] || break
			want=$("$reference" -m "$dir/tiny.gguf" --mmproj "$dir/$kind.gguf" --image "$medium" -p "$question" \
				--temp 0 -n 24 -t 2 --device none 2>/dev/null | tr -cd '[:print:]')
		done
		[ "${#want}" -ge 12 ] || fail "llama-mtmd-cli says nothing about $medium"
		part='{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}'
		[ "$kind" != ultravox ] || part='{"type":"input_audio","input_audio":{"format":"wav","data":"%s"}}'
		# shellcheck disable=SC2059 # the part is a format
		printf '{"model":"tiny","temperature":0,"max_tokens":24,"messages":[{"role":"user","content":[
			'"$part"',{"type":"text","text":"%s"}]}]}' \
			"$(base64 <"$medium" | tr -d '\n')" "$question" >"$dir/body"
		for turn in 1 2; do
			got=$(curl -s --unix-socket "$dir/$kind.sock" -d "@$dir/body" http://uma/v1/chat/completions |
				python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])' |
				tr -cd '[:print:]')
			verdict=equal
			[[ $got == "$want"* ]] || verdict=DIFFERENT bad=1
			echo "$kind $(basename "$medium") $turn: $verdict"
			[ "$verdict" = equal ] || printf '%s\n' "$want" "$got"
		done
	done
	stop
done
exit "$bad"
