#!/usr/bin/env bash
# Compares answers about images and sounds with those of llama-mtmd-cli of the same llama.cpp, greedily, for nine
# families of projectors with random weights: idefics3 (SmolVLM), gemma3 and mlp (llava), four of Qwen, whose positions
# have several dimensions (one of them for a model with recurrent layers), lfm2 for another model with such layers, also
# with a picture that is cut into tiles, and ultravox, which hears. Each question is asked twice, the second time with a
# cached prefix; of the images, questions are asked before them, behind them, and about several. The text model has
# float32 weights, but other kernels round otherwise: where an answer parts from the other one, the two tokens must be
# equally likely, to NEAR nats.
#
#   scripts/images.sh [OPTIONS OF UMA-SERVE]      BIN=FOLDER names built commands; otherwise make builds them. PRESETS
#                                                 are the models (ggufgen), all of them without it
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
question='what is this'
near=${NEAR:-0.05}
bad=0
# verdict WANT: compares the answer on standard input, with its logprobs, with a beginning of the other's text.
verdict() {
	python3 -c '
import json, sys
want, near = sys.argv[1], float(sys.argv[2])
shown = lambda token: "".join(c for c in bytes(token["bytes"]).decode("latin-1") if " " <= c <= "~")
fits = lambda text, rest: rest.startswith(text) or text.startswith(rest)
said, tie = "", None
for k, token in enumerate(json.load(sys.stdin)["choices"][0]["logprobs"]["content"]):
    rest = want[len(said):]
    if not rest:
        break
    # Tokens of which nothing is shown fit any text. The first of the most likely is the token itself.
    gap = min((token["logprob"] - other["logprob"] for other in token["top_logprobs"][1:] if fits(shown(other), rest)),
              default=float("inf"))
    if gap <= near:
        tie = tie or f"parts at token {k + 1}, where {gap:.2g} nats decide"
    if not fits(shown(token), rest):
        print(tie or f"DIFFERENT at token {k + 1}, by {gap:.2g} nats: {want!r}, {said + shown(token)!r}")
        sys.exit(tie is None)
    said += shown(token)
print("equal")
' "$1" "$near"
}
for preset in ${PRESETS:-tiny-vision tiny-qwen2vl tiny-qwen3vl tiny-qwen35 tiny-lfm2}; do
	mkdir "$dir/$preset"
	model=$dir/$preset/tiny
	CGO_ENABLED=0 GOFLAGS= "${GO:-go}" run ./runtime/ggufgen/cmd/ggufgen -preset $preset -type f32 \
		-vision "$dir/$preset" -o "$model"
	for projector in "$dir/$preset"/*.gguf; do
		kind=$(basename "$projector" .gguf)
		"$BIN/uma-serve" --single --model "$model" --mmproj "$projector" --ctx-size 4096 \
			--socket "$dir/$kind.sock" "$@" >"$dir/$kind.log" 2>&1 &
		server=$!
		for _ in $(seq 300); do
			curl -sf --unix-socket "$dir/$kind.sock" http://uma/health >/dev/null && break
			kill -0 "$server" 2>/dev/null || fail "$(tail -n 2 "$dir/$kind.log")"
			sleep 0.1
		done
		one=$dir/$preset/picture1.png two=$dir/$preset/picture2.png three=$dir/$preset/picture3.png
		case $kind in
		ultravox) asked=("$dir/$preset/sound1.wav ?" "$dir/$preset/sound2.wav ?") ;;
		lfm2) asked=("$one ?" "$two ?" "? $two" "$two $one ?" "$one $one ? $two" "$three ?" "? $one $three") ;;
		*) asked=("$one ?" "$two ?" "? $two" "$two $one ?" "$one $one ? $two") ;;
		esac
		for parts in "${asked[@]}"; do
			media=() prompt='' content=''
			for part in $parts; do
				if [ "$part" = '?' ]; then
					prompt+=$question
					content+='{"type":"text","text":"'$question'"},'
					continue
				fi
				media+=("$part")
				prompt+='<__media__>'
				data=$(base64 <"$part" | tr -d '\n')
				part='{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}},'
				[ "$kind" != ultravox ] || part='{"type":"input_audio","input_audio":{"format":"wav","data":"%s"}},'
				# shellcheck disable=SC2059 # the part is a format
				content+=$(printf "$part" "$data")
			done
			# Its console drops NUL and bytes that are no text, and sometimes the last words: what it says is a
			# beginning.
			want=''
			for _ in 1 2 3 4 5 6; do
				[ "${#want}" -lt 12 ] || break
				want=$("$reference" -m "$model" --mmproj "$projector" --image "$(IFS=, && echo "${media[*]}")" \
					-p "$prompt" --temp 0 -n 24 -t 2 --device none 2>/dev/null | tr -cd '[:print:]')
			done
			[ "${#want}" -ge 12 ] || fail "llama-mtmd-cli says nothing about $parts"
			printf '{"model":"tiny","temperature":0,"max_tokens":24,"logprobs":true,"top_logprobs":20,
				"messages":[{"role":"user","content":[%s]}]}' "${content%,}" >"$dir/body"
			for turn in 1 2; do
				curl -s --unix-socket "$dir/$kind.sock" -d "@$dir/body" http://uma/v1/chat/completions >"$dir/reply"
				said=$(verdict "$want" <"$dir/reply") || bad=1
				echo "$kind ${parts//"$dir/$preset/"/} $turn: $said"
			done
		done
		stop
	done
done
exit "$bad"
