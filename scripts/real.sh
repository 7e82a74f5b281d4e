#!/usr/bin/env bash
# The published models of models.lock in uma-serve beside llama-server of the same llama.cpp: answers, perplexity, tool
# calls, schemas, prefix reuse, a storm, early exit from thinking. The models are fetched, llama.cpp's programs built,
# where that is needed. A JSON document for each model is in bench-out/real; it ends with 1 if a check failed.
#
#   scripts/real.sh [options of uma-bench real…]         such as --first 20, --checks greedy,perplexity
#
# MODELS names some of the models instead of all.
set -uo pipefail
cd "$(dirname "$0")/.."
programs=$(scripts/engine-tools.sh llama-server llama-perplexity llama-quantize) || exit
out=bench-out/real
mkdir -p "$out"
# Rounding averages out slowly: over 8 chunks llama-perplexity with and without flash attention is 0.06 % apart on
# SmolLM2, over 16 Qwen is 0.134 % from it on a processor with AMX, over 64 0.041 %; the limit is 0.1.
tree=$(scripts/engine-fetch.sh "${ENGINE:-}") || exit
text=$out/text
cat "$tree"/docs/{build,autoparser,speculative,function-calling,ops}.md >"$text" || exit
failed=''
for name in ${MODELS:-$(scripts/models-fetch.sh)}; do
	path=$(WHY=$out/why scripts/models-fetch.sh "$name")
	case $? in
	0) ;;
	3) # no registry: nothing to check, and no fault of this tree
		echo "$name is SKIPPED: $(cat "$out/why")" | tee "$out/$name.txt"
		continue
		;;
	130) exit 130 ;;
	*)
		cat "$out/why" >&2
		failed+=" $name"
		continue
		;;
	esac
	case $name in
	smollm2-135m) options=(--checks greedy,perplexity,prefix,schemas,storm,adapters,images) ;;
	gemma-3-270m) options=(--checks greedy,perplexity,prefix,storm --base) ;;
	*) options=(--checks greedy,perplexity,prefix,tools,schemas,storm,eat) ;;
	esac
	case " $* " in # a list given here replaces that of the model
	*" --checks"[=\ ]*) options=("${options[@]:2}") ;;
	esac
	echo "== $name ($SECONDS s)" >&2
	bin/uma-bench real -m "$path" --name "$name" --llama-server "$programs/llama-server" \
		--llama-perplexity "$programs/llama-perplexity" --llama-quantize "$programs/llama-quantize" --text "$text" \
		--chunks 64 --out "$out/$name.json" "${options[@]}" "$@" >"$out/$name.txt" || failed+=" $name"
done
rm -f "$out/why"
# One table: the head of the first.
awk '/^\|/ { if ($0 ~ /^\| model |^\|---/ && n++ >= 2) next; print; next } { print > "/dev/stderr" }' "$out"/*.txt
if [ -n "$failed" ]; then
	echo "make real: a check failed for$failed; the reports are in $out" >&2
	exit 1
fi
