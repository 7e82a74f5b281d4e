#!/usr/bin/env bash
# Makes models/uma-tiny.gguf again, from nothing: trains, exports, draws the curve, writes the files tests compare with.
#   models/train/model.sh            BUDGET=48    millions of tokens to train on (10,000 a second on two cores)
#                                    OUT=build/uma-tiny   where the checkpoint goes
#                                    RESUME=1     go on from the checkpoint in OUT, after an interruption
#   REDUNDANT=1 models/train/model.sh makes models/uma-redundant.gguf of uma-tiny, in a tenth of the time: its thoughts
#                                    check their answer many times (docs/eat.md). BUDGET=1.2, OUT=build/uma-redundant
# Needs Python 3 with torch, numpy and matplotlib (Debian: python3-torch python3-numpy python3-matplotlib).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-/usr/bin/python3}
name=uma-tiny
[ -z "${REDUNDANT:-}" ] || name=uma-redundant
out=${OUT:-build/$name}
"$python" -c 'import torch, numpy, matplotlib' || {
	echo "model.sh: $python lacks torch, numpy or matplotlib;" \
		"apt install python3-torch python3-numpy python3-matplotlib, or set PYTHON" >&2
	exit 1
}
mkdir -p "$out"
if [ -n "${REDUNDANT:-}" ]; then
	[ -n "${RESUME:-}" ] || "$python" models/train/restore.py models/uma-tiny.gguf "$out"
	"$python" models/train/train.py --out "$out" --resume --redundant --easy 0 --lr 4e-4 --budget "${BUDGET:-1.2}"
	"$python" models/train/export.py "$out" models/uma-redundant.gguf
	exit
fi
"$python" models/train/train.py --out "$out" --budget "${BUDGET:-48}" ${RESUME:+--resume}
"$python" models/train/export.py "$out" models/uma-tiny.gguf
"$python" models/train/golden.py "$out" models/testdata/prompts.jsonl
"$python" models/train/heldout.py 110 models/heldout/problems.jsonl
"$python" models/train/plot.py "$out/log.jsonl" models/loss.png
cp "$out/log.jsonl" models/training-log.jsonl
