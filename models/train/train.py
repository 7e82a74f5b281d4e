"""Trains uma-tiny. The schedule is in training tokens: how fast, or how busy, the machine is changes nothing but the time.

    python3 train.py --out DIR                       from the beginning
    python3 train.py --out DIR --resume              goes on from DIR/checkpoint.pt, after an interruption
    python3 train.py --out DIR --resume --budget 64  trains on, up to 64 million tokens
    python3 train.py --out DIR --resume --redundant  teaches thoughts that check their answer many times

DIR gets tokenizer.json, checkpoint.pt (replaced every few minutes), log.jsonl and, at the end, wrong.jsonl.

Without a GPU one single-threaded process per core trains on separate batches. The processes share the memory of the
weights and of AdamW's moments, and each applies its step when its gradient is ready. A gradient is then one or two steps
old, which small steps tolerate, and no process waits for another. On a busy machine, two threads with a barrier in every
matrix product were measured at a quarter of this speed.
"""
import argparse
import collections
import json
import math
import os
import random
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import tasks
import tokenizer
from model import Model

VOCAB = 960


def learn_tokenizer(seed):
    rng = random.Random(seed)
    texts = []
    for _ in range(20_000):
        prompt, completion, _ = tasks.conversation(rng)
        # Markers become empty raw parts: no word reaches across one.
        texts.append(tokenizer.re.sub(r"<\|?\w+\|?>|</think>", tokenizer.RAW * 2, prompt + completion))
    return tokenizer.train(texts, VOCAB)


def batches(rng, tok, budget):
    """Endless (ids, targets): sequences of like length together, about budget tokens a batch; target -1 = no loss."""
    while True:
        pool = []
        for _ in range(512):
            prompt, completion, _ = tasks.conversation(rng)
            p = tasks.encode(tok, prompt)
            pool.append((p, tasks.encode(tok, completion) + [tokenizer.IM_END]))
        pool.sort(key=lambda e: len(e[0]) + len(e[1]) + rng.random() * 8)
        out, rows = [], []
        for e in pool:
            n = len(e[0]) + len(e[1])
            if rows and n * (len(rows) + 1) > budget:
                out.append(rows)
                rows = []
            rows.append(e)
        out.append(rows)
        rng.shuffle(out)
        for rows in out:
            width = max(len(p) + len(c) for p, c in rows) - 1
            ids = torch.zeros(len(rows), width, dtype=torch.long)
            target = torch.full((len(rows), width), -1)
            for i, (p, c) in enumerate(rows):
                n = len(p) + len(c) - 1
                ids[i, :n] = torch.tensor((p + c)[:-1])
                target[i, len(p) - 1 : n] = torch.tensor(c)
            yield ids, target


def read_answer(text):
    """What stands behind the thinking, or None where it never ended."""
    if "<think>" in text:
        if "</think>" not in text:
            return None
        text = text.split("</think>")[-1]
    return text.replace("<|im_end|>", "").strip()


def evaluate(model, tok, each, seed=7, limit=600):
    """Greedy accuracy per task on held-out problems, and the mean number of tokens."""
    model.eval()
    level, tasks.level = tasks.level, 1.0
    rng, asked = random.Random(seed), []
    for f in tasks.ASK.values():
        if f is not tasks.ask_talk:
            for _ in range(each):
                asked.append(tasks.problem(rng, True, f))
    asked.sort(key=lambda p: len(p.steps))
    right, total, tokens, wrong = collections.Counter(), collections.Counter(), 0, []
    for i in range(0, len(asked), 64):
        part = asked[i : i + 64]
        prompts = [tasks.encode(tok, f"<|im_start|>user\n{p.question}<|im_end|>\n<|im_start|>assistant\n") for p in part]
        for p, out in zip(part, model.generate(prompts, limit, tokenizer.IM_END)):
            text = tok.decode(out)
            total[p.task] += 1
            tokens += len(out)
            if read_answer(text) == p.answer:
                right[p.task] += 1
            elif len(wrong) < 40:
                wrong.append({"task": p.task, "question": p.question, "want": p.answer, "got": text})
    model.train()
    tasks.level = level
    return {t: right[t] / total[t] for t in sorted(total)}, sum(right.values()) / sum(total.values()), tokens / len(asked), wrong


class Shared:
    """What the workers train: one flat vector of weights, AdamW's two moments and the weights' running mean, in shared memory."""

    def __init__(self, model, dev):
        n = sum(p.numel() for p in model.parameters())
        make = lambda: torch.zeros(n, device=dev) if dev == "cuda" else torch.zeros(n).share_memory_()
        self.w, self.m, self.v, self.mean = make(), make(), make(), make()
        self.count = torch.zeros(3, dtype=torch.float64).share_memory_()  # steps, tokens, sum of losses since noted
        self.noted = torch.zeros(1, dtype=torch.float64).share_memory_()  # losses in that sum
        self.lock = mp.Lock()


def multiplies_bfloat16():
    """Whether the processor does. Emulated, on an AVX2 processor, a step takes more than ten times as long as in float32."""
    try:
        with open("/proc/cpuinfo") as f:
            return "avx512_bf16" in f.read()
    except OSError:
        return False


def flatten(model, dev):
    """Moves a model's weights and gradients into two flat vectors; returns them and which weights decay."""
    params = list(model.parameters())
    n = sum(p.numel() for p in params)
    flat, grad, decay = torch.zeros(n, device=dev), torch.zeros(n, device=dev), torch.zeros(n, device=dev)
    at = 0
    for p in params:
        k = p.numel()
        flat[at : at + k] = p.data.flatten()
        p.data = flat[at : at + k].view_as(p)
        p.grad = grad[at : at + k].view_as(p)
        if p.dim() == 2:
            decay[at : at + k] = 1
        at += k
    return flat, grad, decay


BETA1, BETA2, WEIGHT_DECAY = 0.9, 0.98, 0.05
MEAN = 0.996  # the running mean, which is examined and exported, is as good in the middle as an annealed model


def adamw(s, grad, decay, lr):
    """One step of AdamW on the shared weights, gradient norm at most 1. The caller holds the lock."""
    grad.mul_(min(1.0, 1.0 / (float(grad.norm()) + 1e-6)))
    s.count[0] += 1
    t = float(s.count[0])
    s.m.lerp_(grad, 1 - BETA1)
    s.v.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    s.w.addcmul_(s.w, decay, value=-lr * WEIGHT_DECAY)
    s.w.addcdiv_(s.m, (s.v / (1 - BETA2**t)).sqrt_().add_(1e-8), value=-lr / (1 - BETA1**t))
    s.mean.lerp_(s.w, 1 - MEAN)


def work(rank, a, s, tok, dev, t0, spent, first):
    if dev == "cpu":
        torch.set_num_threads(1)
    model = Model(len(tok.tokens)).to(dev)
    flat, grad, decay = flatten(model, dev)
    rng = random.Random(f"{a.seed} {first} {rank}")  # a resumed run sees new problems
    log = open(os.path.join(a.out, "log.jsonl"), "a") if rank == 0 else None
    half = dev == "cuda" or multiplies_bfloat16()

    def minutes():
        return round((spent + time.time() - t0) / 60, 2)

    def note(**kv):
        log.write(json.dumps(kv) + "\n")
        log.flush()
        print(json.dumps(kv), flush=True)

    def save():
        tmp = os.path.join(a.out, "checkpoint.tmp")
        with s.lock:
            flat.copy_(s.w)
            weights = {k: v.clone() for k, v in model.state_dict().items()}
            flat.copy_(s.mean)
            state = {"m": s.m.clone(), "v": s.v.clone(), "step": int(s.count[0]), "seen": int(s.count[1])}
        torch.save({"model": weights, "mean": model.state_dict(), "config": model.c, "spent": spent + time.time() - t0, **state}, tmp)
        os.replace(tmp, os.path.join(a.out, "checkpoint.pt"))

    def examine(each, **more):
        with s.lock:
            flat.copy_(s.mean)
        begun = time.time()
        by_task, overall, length, wrong = evaluate(model, tok, each)
        note(**more, step=int(s.count[0]), minutes=minutes(), accuracy=round(overall, 4), tasks={k: round(v, 3) for k, v in by_task.items()}, mean_tokens=round(length, 1), eval_s=round(time.time() - begun))
        return wrong

    if rank == 0:
        note(event="start", parameters=flat.numel(), vocab=len(tok.tokens), device=dev, step=first, minutes=minutes(), budget=a.budget, lr=a.lr, tokens=a.tokens, config=model.c)
    last_eval = last_note = last_save = time.time()
    seen = float(s.count[1])
    for ids, target in batches(rng, tok, a.tokens):
        done = float(s.count[1]) / (a.budget * 1e6)
        if done >= 1:
            break
        tasks.level = min(1.0, max(0.0, (done - a.easy / 4) / a.easy)) if a.easy else 1.0
        ids, target = ids.to(dev), target.to(dev)
        with s.lock:
            flat.copy_(s.w)
        grad.zero_()
        with torch.autocast(dev, dtype=torch.bfloat16, enabled=half):
            keep = target >= 0
            logits = model.logits(model(ids)[keep])
        loss = F.cross_entropy(logits.float(), target[keep])
        loss.backward()
        with s.lock:
            warm = min(1, (float(s.count[0]) - first + 1) / 200)
            lr = a.lr * warm * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * min(1, done))))
            adamw(s, grad, decay, lr)
            s.count[1] += ids.numel()
            s.count[2] += loss.item()
            s.noted += 1
            if rank == 0 and time.time() - last_note > 20:
                now = time.time()
                note(step=int(s.count[0]), minutes=minutes(), loss=round(float(s.count[2] / s.noted), 4), lr=round(lr, 6), level=round(tasks.level, 2), tokens=int(s.count[1]), tokens_per_s=round((float(s.count[1]) - seen) / (now - last_note)))
                seen, last_note = float(s.count[1]), now
                s.count[2] = 0
                s.noted.zero_()
        if rank == 0:
            if time.time() - last_save > 180:
                save()
                last_save = time.time()
            if time.time() - last_eval > a.eval_minutes * 60:
                examine(a.eval_each)
                last_eval = time.time()
    if rank == 0:
        save()
        wrong = examine(30, event="end")
        with open(os.path.join(a.out, "wrong.jsonl"), "w") as f:
            for w in wrong:
                f.write(json.dumps(w) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--budget", type=float, default=48, help="tokens to train on, in millions: learning rate and difficulty follow how much of it is done, whatever the machine's speed")
    ap.add_argument("--lr", type=float, default=1.6e-3)
    ap.add_argument("--tokens", type=int, default=3000, help="tokens a step")
    ap.add_argument("--workers", type=int, default=0, help="0: one per core, or one with a GPU")
    ap.add_argument("--easy", type=float, default=0.3, help="part of the budget in which problems grow to full size, after a quarter of that with the easiest")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--eval-minutes", type=float, default=8)
    ap.add_argument("--eval-each", type=int, default=8, help="held-out problems of each task, on the way")
    ap.add_argument("--redundant", action="store_true", help="thoughts go on for long after they have reached the answer")
    ap.add_argument("--resume", action="store_true", help="go on with the checkpoint in --out, where its budget was left")
    a = ap.parse_args()
    tasks.redundant = a.redundant
    os.makedirs(a.out, exist_ok=True)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # before the workers are forked: OpenMP's threads do not survive that
    tok_path = os.path.join(a.out, "tokenizer.json")
    torch.manual_seed(a.seed)
    if a.resume:
        tok = tokenizer.Tokenizer.load(tok_path)
    else:
        tok = learn_tokenizer(a.seed)
        tok.save(tok_path)
    model = Model(len(tok.tokens))
    s, spent = Shared(model, dev), 0.0
    if a.resume:
        state = torch.load(os.path.join(a.out, "checkpoint.pt"), map_location="cpu")
        model.load_state_dict(state["model"])
        s.m.copy_(state["m"])
        s.v.copy_(state["v"])
        s.count[0], s.count[1], spent = state["step"], state["seen"], state["spent"]
    s.w.copy_(flatten(model, "cpu")[0])
    s.mean.copy_(s.w)
    args = (a, s, tok, dev, time.time(), spent, int(s.count[0]))
    if dev == "cuda":
        return work(0, *args)
    n = a.workers or len(os.sched_getaffinity(0))
    others = [mp.Process(target=work, args=(rank, *args), daemon=True) for rank in range(1, n)]
    for p in others:
        p.start()
    work(0, *args)
    for p in others:
        p.join()


if __name__ == "__main__":
    main()
