"""Draws the loss curve and the held-out accuracy on the way: python3 plot.py log.jsonl loss.png"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(log, png):
    rows = []
    for line in open(log):
        r = json.loads(line)
        if r.get("event") == "start":  # resumed: what came after the checkpoint was lost
            rows = [x for x in rows if x.get("step", 0) <= r["step"]]
        rows.append(r)
    loss = [(r["minutes"], r["loss"]) for r in rows if "loss" in r]
    acc = [(r["minutes"], 100 * r["accuracy"]) for r in rows if "accuracy" in r]
    fig, left = plt.subplots(figsize=(8, 4.5), dpi=110)
    left.plot(*zip(*loss), color="tab:blue", lw=1)
    left.set_yscale("log")
    left.set_xlabel("minutes of training")
    left.set_ylabel("loss per completion token (nats)", color="tab:blue")
    left.grid(alpha=0.3, which="both")
    if acc:
        right = left.twinx()
        right.plot(*zip(*acc), "o-", color="tab:orange")
        right.set_ylim(0, 100)
        right.set_ylabel("held-out answers right, greedy (%)", color="tab:orange")
    fig.tight_layout()
    fig.savefig(png)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
