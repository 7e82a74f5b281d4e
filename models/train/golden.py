"""Writes prompts with the tokens training gave them, for the Go test that holds the daemon's against them:
python3 golden.py DIR FILE"""
import json
import os
import random
import re
import sys

import tasks
import tokenizer


def main(directory, path):
    tok = tokenizer.Tokenizer.load(os.path.join(directory, "tokenizer.json"))
    rng = random.Random(5)
    with open(path, "w") as f:
        for _ in range(60):
            prompt, _, _ = tasks.conversation(rng)
            if tokenizer.RAW in prompt or "<think>" in prompt:
                continue
            messages = [{"role": r, "content": c} for r, c in re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", prompt, re.S)]
            f.write(json.dumps({"messages": messages, "text": prompt, "tokens": tasks.encode(tok, prompt)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
