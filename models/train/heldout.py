"""Writes held-out problems as JSON lines: python3 heldout.py EACH FILE. Wordings vary as in training; contents were never seen there."""
import json
import random
import sys

import tasks


def main(each, path):
    rng, seen = random.Random(20_000_003), set()
    with open(path, "w") as f:
        for ask in tasks.ASK.values():
            if ask is tasks.ask_talk:
                continue
            n = 0
            while n < each:
                p = tasks.problem(rng, True, ask)
                question = tasks.reworded(rng, p.question)
                if question in seen:
                    continue
                seen.add(question)
                n += 1
                f.write(json.dumps({"task": p.task, "question": question, "answer": p.answer}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
