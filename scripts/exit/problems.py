#!/usr/bin/env python3
"""Writes held-out problems in three sets that share no content: problems.py FILE [EACH SEED].

Without EACH: 200, 150 and 150 of each task that teach, choose thresholds and test. With it, EACH that teach.
"""
import hashlib
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "models/train"))
import tasks  # noqa: E402


def split(key):
    """The set of a content: train, cal or test."""
    place = int(hashlib.sha256(repr(key).encode()).hexdigest(), 16) % 10
    return "train" if place < 4 else "cal" if place < 7 else "test"


def main(path, each=0, seed=40_2026):
    wanted = {"train": each} if each else {"train": 200, "cal": 150, "test": 150}
    rng, out = random.Random(seed), []
    for ask in tasks.ASK.values():
        if ask is tasks.ask_talk:
            continue
        have, seen = dict.fromkeys(wanted, 0), set()
        for _ in range(400_000):
            p = tasks.problem(rng, True, ask)
            s = split(p.key)
            if s not in wanted:
                continue
            if have[s] == wanted[s]:
                if have == wanted:
                    break
                continue
            question = tasks.reworded(rng, p.question)
            if question in seen:
                continue
            seen.add(question)
            have[s] += 1
            out.append(dict(task=p.task, question=question, answer=p.answer, split=s, key=repr(p.key), raw=p.raw))
    rng.shuffle(out)
    with open(path, "w") as f:
        f.writelines(json.dumps(o) + "\n" for o in out)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
