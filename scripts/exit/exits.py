#!/usr/bin/env python3
"""Ends thoughts that scripts/exit/collect has recorded by EAT, RPDI, LYNX and SpecExit, and compares tokens and answers.

    problems.py FILE [EACH SEED]                      problems with their splits
    collect -m MODEL -problems FILE -temp T -o data/MODEL-T
    exits.py MODEL T [MORE…]                          tables; MORE are further collections that only teach

Needs numpy. docs/lab/early-exit.md says what was found.
"""

import json
import sys
from collections import Counter

import numpy as np

W = 192
L3 = slice(0, 3 * W)
LAST = slice(3 * W, 4 * W)
MEAN = slice(4 * W, 7 * W)
LAYER = {
    "layer 1": slice(0, W),
    "layer 3": slice(W, 2 * W),
    "layer 4": slice(2 * W, 3 * W),
    "last": LAST,
    "all": slice(0, 4 * W),
}


class Data:
    pass


def load(base, temp):
    d = Data()
    T = [json.loads(l) for l in open(base + ".jsonl")]
    X = np.fromfile(base + ".f32", dtype=np.float32).reshape(-1, 7 * W)
    T = [t for t in T if t["think"] > 0]
    d.T, d.X, d.temp = T, X, temp
    d.task = np.array([t["task"] for t in T])
    d.split = np.array([t["split"] for t in T])
    d.key = np.array([t["key"] for t in T])
    d.think = np.array([t["think"] for t in T], float)
    d.closed = np.array([t["closed"] for t in T])
    g = temp == 0
    d.free = np.array([(float(t["g_free"]) if g else t["p_free"]) if t["closed"] else 0.0 for t in T])
    for kind in ("blank", "cue"):
        m = max(1, max(sum(p["kind"] == kind for p in (t["points"] or [])) for t in T))
        n = len(T)
        P = Data()
        P.rec = np.full((n, m), -1)
        P.at = np.zeros((n, m))
        P.acc = np.zeros((n, m))
        P.right = np.zeros((n, m), bool)
        P.final = np.zeros((n, m), bool)
        P.h = np.zeros((n, m))
        P.cp = np.zeros((n, m))
        P.prev = np.full((n, m), -1)
        P.cr = np.zeros((n, m))
        for i, t in enumerate(T):
            j = 0
            blanks = -1
            for p in t["points"] or []:
                if p["kind"] == "blank":
                    blanks += 1
                if p["kind"] != kind:
                    continue
                P.rec[i, j] = p["record"]
                P.at[i, j] = p["at"]
                P.acc[i, j] = float(p["right"]) if g else p["p"]
                P.right[i, j] = p["right"]
                P.final[i, j] = p["final"]
                P.h[i, j] = p["h"]
                P.cp[i, j] = p["close_p"]
                P.cr[i, j] = p["close_rank"]
                P.prev[i, j] = blanks
                j += 1
        P.ok = P.rec >= 0
        P.index = np.where(P.ok, (P.prev if kind == "cue" else np.cumsum(P.ok, 1) - 1) + 1, 0)
        setattr(d, kind, P)
    # EAT (warm-up 1, alpha 0.5), the score is -variance
    P = d.blank
    n, m = P.h.shape
    var = np.full((n, m), np.inf)
    mean = P.h[:, 0].copy()
    v = np.zeros(n)
    a = 0.5
    for j in range(1, m):
        mean = mean + a * (P.h[:, j] - mean)
        dd = P.h[:, j] - mean
        v = v + a * (dd * dd - v)
        var[:, j] = v
    d.eat = np.where(P.ok, -var, -np.inf)
    # RPDI, indicator form of docs/eat.md: the highest index at an end in each paragraph
    d.rpdi = np.full((n, m), -np.inf)
    for i, t in enumerate(T):
        loc, tr, best, j = 0.0, 0, -np.inf, 0
        for k, (h, e) in enumerate(zip(t["entropies"], t["ends"])):
            x = 1.0 if h > 1 else 0.0
            tr += x
            loc += 0.1 * (x - loc)
            if e in "be":
                gl = tr / (k + 1)
                best = max(best, loc / gl if gl > 1e-3 else 0)
            if e == "b" and j < m:
                d.rpdi[i, j] = best
                best = -np.inf
                j += 1
    return d


def outcome(d, place, score, tau, lag=None, acc=None):
    """Tokens and accuracy of each thought when it exits at the first place whose score is >= tau."""
    hit = (score >= tau) & place.ok
    any_ = hit.any(1)
    j = hit.argmax(1)
    r = np.arange(len(j))
    A = place.acc if acc is None else acc
    return (
        np.where(any_, place.at[r, j], d.think),
        np.where(any_, A[r, j], d.free),
        np.where(any_, j, place.ok.sum(1) - 1),
        any_,
    )


def thresholds(score, ok, n=80):
    s = score[ok & np.isfinite(score)]
    return np.unique(np.quantile(s, np.linspace(0, 1, n))) if len(s) else np.array([np.inf])


LIMITS = [(1, 99), (2, 99), (1, 2), (1, 3), (2, 3)]


def limited(place, score, lo, hi):
    """The score with an exit at no place before the lo-th, and at the hi-th whatever it is."""
    k = place.index
    s = np.where(k < lo, -np.inf, score)
    return np.where((k >= hi) & place.ok, np.inf, s)


class Sub:
    """d and place of some thoughts alone."""

    def __init__(s, d, place, mask, acc=None):
        s.d = Data()
        s.d.think = d.think[mask]
        s.d.free = d.free[mask]
        s.p = Data()
        s.p.ok = place.ok[mask]
        s.p.at = place.at[mask]
        s.p.acc = (place.acc if acc is None else acc)[mask]
        s.p.index = place.index[mask]
        s.mask = mask


def choose_limited(d, place, score, mask, floor, n=60, acc=None, limits=LIMITS):
    """Threshold and limits with fewest tokens on mask at an accuracy of floor at least."""
    u = Sub(d, place, mask, acc)
    best = (u.d.think.mean(), np.inf, (1, 99))
    sc = score[mask]
    for lo, hi in limits:
        s = limited(u.p, sc, lo, hi)
        for tau in np.append(thresholds(s, u.p.ok, n), np.inf if hi < 99 else []):
            tau = min(tau, 1e300)
            t, a, _, _ = outcome(u.d, u.p, s, tau)
            if a.mean() >= floor - 1e-12 and t.mean() < best[0] - 1e-9:
                best = (t.mean(), tau, (lo, hi))
    return best[1], best[2]


def choose(d, place, score, mask, floor, n=80, acc=None):
    """The threshold with fewest tokens on mask at an accuracy of floor at least."""
    best = (d.think[mask].mean(), np.inf)
    for tau in thresholds(score[mask], place.ok[mask], n):
        t, a, _, _ = outcome(d, place, score, tau, acc=acc)
        if a[mask].mean() >= floor - 1e-12 and t[mask].mean() < best[0]:
            best = (t[mask].mean(), tau)
    return best[1]


def boot(d, mask, cols, fn, n=2000, seed=1):
    """Percentile interval of fn(sums of cols), problems (contents) drawn together."""
    keys, inv = np.unique(d.key[mask], return_inverse=True)
    S = np.stack(
        [np.bincount(inv, weights=c[mask], minlength=len(keys)) for c in cols]
        + [np.bincount(inv, minlength=len(keys)).astype(float)],
        1,
    )
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        w = np.bincount(rng.integers(0, len(keys), len(keys)), minlength=len(keys))
        out.append(fn(w @ S))
    return fn(S.sum(0)), np.quantile(np.array(out), [0.025, 0.975], axis=0)


def report(d, mask, tok, acc, ref=None):
    """saved, gained (points), and against ref (tok, acc) paired."""
    cols = [d.think, tok, d.free, acc]
    f = lambda s: np.array([100 * (1 - s[1] / s[0]), 100 * (s[3] - s[2]) / s[4]])
    v, ci = boot(d, mask, cols, f)
    out = dict(
        tok=tok[mask].mean(), acc=100 * acc[mask].mean(), saved=v[0], saved_ci=ci[:, 0], gain=v[1], gain_ci=ci[:, 1]
    )
    if ref is not None:
        f = lambda s: np.array([100 * (s[0] - s[1]) / s[0], 100 * (s[3] - s[2]) / s[4]])
        v, ci = boot(d, mask, [ref[0], tok, ref[1], acc], f)
        out.update(less=v[0], less_ci=ci[:, 0], better=v[1], better_ci=ci[:, 1])
    return out


# --- probes ---
def logistic(X, y, l2, iters=40):
    n, k = X.shape
    Z = np.hstack([X, np.ones((n, 1))]).astype(np.float64)
    w = np.zeros(k + 1)
    R = np.full(k + 1, l2)
    R[-1] = 1e-9
    for _ in range(iters):
        p = 1 / (1 + np.exp(-np.clip(Z @ w, -30, 30)))
        g = Z.T @ (p - y) + R * w
        s = np.maximum(p * (1 - p), 1e-6)
        step = np.linalg.solve((Z * s[:, None]).T @ Z + np.diag(R), g)
        m = np.abs(step).max()
        w -= step if m < 5 else step * 5 / m
        if m < 1e-5:
            break
    return w


def logloss(p, y):
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()


def auc(s, y):
    o = np.argsort(s, kind="stable")
    r = np.empty(len(s))
    r[o] = np.arange(1, len(s) + 1)
    # average ranks of ties
    _, inv, cnt = np.unique(s, return_inverse=True, return_counts=True)
    r = (np.bincount(inv, weights=r) / cnt)[inv]
    a, b = y.sum(), (1 - y).sum()
    return (r[y == 1].sum() - a * (a + 1) / 2) / (a * b) if a and b else float("nan")


class MLP:
    def __init__(s, X, y, Xv, yv, hidden=64, seed=1, epochs=60, lr=2e-3, wd=1e-3):
        rng = np.random.default_rng(seed)
        k = X.shape[1]
        P = [
            rng.normal(0, 1 / np.sqrt(k), (k, hidden)),
            np.zeros(hidden),
            rng.normal(0, 1 / np.sqrt(hidden), hidden),
            np.zeros(1),
        ]
        M = [np.zeros_like(p) for p in P]
        V = [np.zeros_like(p) for p in P]
        t = 0
        best = (np.inf, None)
        bad = 0
        for ep in range(epochs):
            o = rng.permutation(len(X))
            for a in range(0, len(X), 256):
                i = o[a : a + 256]
                x = X[i]
                h0 = x @ P[0] + P[1]
                h = np.maximum(h0, 0)
                p = 1 / (1 + np.exp(-np.clip(h @ P[2] + P[3], -30, 30)))
                e = (p - y[i]) / len(i)
                gh = np.outer(e, P[2]) * (h0 > 0)
                G = [x.T @ gh, gh.sum(0), h.T @ e, np.array([e.sum()])]
                t += 1
                for q in range(4):
                    M[q] = 0.9 * M[q] + 0.1 * G[q]
                    V[q] = 0.999 * V[q] + 0.001 * G[q] ** 2
                    P[q] = P[q] - lr * (
                        M[q] / (1 - 0.9**t) / (np.sqrt(V[q] / (1 - 0.999**t)) + 1e-8) + (wd * P[q] if q % 2 == 0 else 0)
                    )
            l = logloss(s._p(P, Xv), yv)
            if l < best[0]:
                best = (l, [p.copy() for p in P])
                bad = 0
            else:
                bad += 1
                if bad > 8:
                    break
        s.P, s.loss = best[1], best[0]

    @staticmethod
    def _p(P, X):
        return 1 / (1 + np.exp(-np.clip(np.maximum(X @ P[0] + P[1], 0) @ P[2] + P[3], -30, 30)))

    def score(s, X):
        return np.maximum(X @ s.P[0] + s.P[1], 0) @ s.P[2] + s.P[3]


def inner(keys, seed=7):
    """Which contents of the training set choose penalties and layers."""
    u = np.unique(keys)
    rng = np.random.default_rng(seed)
    v = set(rng.choice(u, len(u) // 5, replace=False))
    return np.array([k in v for k in keys])


def fit(X, y, keys, kinds=("logistic", "mlp"), parts=("layer 1", "layer 3", "layer 4", "last", "all"), log=None):
    """A probe on rows X (records): the part, model and penalty that do best on the inner split. Returns score(X)."""
    v = inner(keys)
    best = (np.inf, None, None)
    for part in parts:
        Z = X[:, LAYER[part]] if part in LAYER else X
        mu, sd = Z[~v].mean(0), Z[~v].std(0) + 1e-6
        Zs = (Z - mu) / sd
        if "logistic" in kinds:
            for l2 in (3, 30, 300):
                w = logistic(Zs[~v], y[~v], l2)
                p = 1 / (1 + np.exp(-(Zs[v] @ w[:-1] + w[-1])))
                l = logloss(p, y[v])
                if log is not None:
                    log.append((part, "logistic", l2, l, auc(p, y[v])))
                if l < best[0]:
                    best = (
                        l,
                        f"{part}, logistic, {l2}",
                        lambda A, part=part, mu=mu, sd=sd, w=w: ((A[:, LAYER[part]] if part in LAYER else A) - mu)
                        / sd
                        @ w[:-1]
                        + w[-1],
                    )
        if "mlp" in kinds:
            m = MLP(Zs[~v], y[~v], Zs[v], y[v])
            if log is not None:
                log.append((part, "mlp", 64, m.loss, auc(m.score(Zs[v]), y[v])))
            if m.loss < best[0]:
                best = (
                    m.loss,
                    f"{part}, mlp",
                    lambda A, part=part, mu=mu, sd=sd, m=m: m.score(
                        ((A[:, LAYER[part]] if part in LAYER else A) - mu) / sd
                    ),
                )
    return best[2], best[1], best[0]


def apply(score, d, place):
    s = np.full(place.rec.shape, -np.inf)
    s[place.ok] = score(d.X[place.rec[place.ok]])
    return s


def ridge(X, y, l2):
    mu, sd = X.mean(0), X.std(0) + 1e-6
    Z = ((X - mu) / sd).astype(np.float64)
    m = y.mean()
    w = np.linalg.solve(Z.T @ Z + l2 * np.eye(Z.shape[1]), Z.T @ (y - m))
    return lambda A: ((A - mu) / sd) @ w + m


# --- what is compared
model, temp = sys.argv[1], float(sys.argv[2])
MORE = sys.argv[3:]
AR = {"add", "subtract", "times-digit", "times-2x2", "story"}
d = load(f"data/{model}-{temp:g}", temp)
B, C = d.blank, d.cue
extra = [load(f"data/{m}", 1.0) for m in MORE]
for e in extra:
    assert not (set(e.key[e.split == "train"]) & set(d.key[d.split != "train"]))
f2 = lambda x: round(float(x), 2)
print(
    model,
    temp,
    len(d.T),
    "thoughts; free",
    {s: (f2(100 * d.free[d.split == s].mean()), f2(d.think[d.split == s].mean())) for s in ("train", "cal", "test")},
    "closed",
    d.closed.mean(),
    "training thoughts",
    int((d.split == "train").sum()) + sum(int((e.split == "train").sum()) for e in extra),
)
print(
    "said right",
    np.mean([t["said_right"] for t in d.T]),
    "blanks",
    f2(B.ok.sum(1).mean()),
    "right at k-th blank",
    [f2(100 * B.right[B.ok[:, j], j].mean()) for j in range(min(6, B.ok.shape[1]))],
)
print("cues", Counter(p["token"] for t in d.T for p in t["points"] or [] if p["kind"] == "cue").most_common(8))
print(
    "right behind a cue, exit there",
    f2(100 * C.right[C.ok].mean()),
    "exit before it",
    f2(100 * np.take_along_axis(B.right, np.maximum(C.prev, 0), 1)[C.ok].mean()),
)


def gather(kind, seen, label):
    X, y, K, extra_cols = [], [], [], []
    for e in [d] + extra:
        P = getattr(e, kind)
        m = np.isin(e.task, list(seen)) & (e.split == "train")
        ok = P.ok & m[:, None]
        X.append(e.X[P.rec[ok]])
        y.append(label(e, P)[ok])
        K.append(np.repeat(e.key[:, None], P.ok.shape[1], 1)[ok])
    return np.vstack(X), np.concatenate(y).astype(float), np.concatenate(K)


def cols(e):
    P = e.blank
    ev = np.where(np.isfinite(e.eat), -e.eat, 1.0)
    return [P.h, np.log(P.h + 1e-6), np.log(ev + 1e-6), np.log(P.cp + 1e-9), np.minimum(P.index, 6), np.log(P.at + 1)]


def stack(feats, sel, y, l2=1.0):
    """feats: function of a data set; sel: which of its places teach."""
    X = np.vstack([np.stack([c[s] for c in feats(e)], 1) for e, s in zip([d] + extra, sel)])
    mu, sd = X.mean(0), X.std(0) + 1e-6
    w = logistic((X - mu) / sd, y, l2)
    s = np.full(B.rec.shape, -np.inf)
    s[B.ok] = ((np.stack([c[B.ok] for c in feats(d)], 1) - mu) / sd) @ w[:-1] + w[-1]
    return s


def scores(seen, quick):
    out, info = {}, {}
    right = lambda e, P: P.right
    opt = (
        dict(kinds=("mlp",), parts=("layer 4",))
        if quick
        else dict(parts=("layer 3", "layer 4", "last", "all"), kinds=("mlp",))
    )
    X, y, K = gather("blank", seen, right)
    f, info["LYNX blank"], _ = fit(X, y, K, **opt)
    out["LYNX blank"] = (B, apply(f, d, B), None)
    # the stack learns on contents that its own probe has not seen
    v = inner(K, 8)
    g, _, _ = fit(X[~v], y[~v], K[~v], kinds=("mlp",), parts=("layer 4",))
    sel, ys = [], []
    lost = set(np.unique(K[v]))
    for e in [d] + extra:
        m = np.isin(e.task, list(seen)) & (e.split == "train") & np.array([k in lost for k in e.key])
        s = e.blank.ok & m[:, None]
        sel.append(s)
        ys.append(e.blank.right[s])
    ys = np.concatenate(ys).astype(float)
    cache = {}

    def fs(e):
        if id(e) not in cache:
            cache[id(e)] = apply(g, e, e.blank)
        return [np.where(e.blank.ok, cache[id(e)], 0)] + cols(e)[:3]

    out["LYNX blank + EAT"] = (B, stack(fs, sel, ys), None)
    sel = [e.blank.ok & (np.isin(e.task, list(seen)) & (e.split == "train"))[:, None] for e in [d] + extra]
    out["signals, no states"] = (
        B,
        stack(cols, sel, np.concatenate([e.blank.right[s] for e, s in zip([d] + extra, sel)]).astype(float)),
        None,
    )
    Xc, yc, Kc = gather("cue", seen, right)
    if len(yc) > 50 and yc.min() == 0:
        f, info["LYNX cue"], _ = fit(Xc, yc, Kc, **opt)
        out["LYNX cue"] = (C, apply(f, d, C), None)
        before = lambda e, P: np.take_along_axis(e.blank.right, np.maximum(P.prev, 0), 1)
        Xc, yc, Kc = gather("cue", seen, before)
        f, info["LYNX cue, exit before"], _ = fit(Xc, yc, Kc, **opt)
        out["LYNX cue, exit before"] = (C, apply(f, d, C), np.take_along_axis(B.acc, np.maximum(C.prev, 0), 1))
    R = []
    for e in [d] + extra:
        for i in np.flatnonzero(np.isin(e.task, list(seen)) & (e.split == "train")):
            t = e.T[i]
            good = [p["at"] for p in t["points"] or [] if p["kind"] == "blank" and p["right"]]
            star = good[0] if good else t["think"]
            for p in t["points"] or []:
                R.append((e, p["record"], min(1, p["at"] / star), np.log1p(max(0, star - p["at"]))))
    XR = np.vstack([e.X[[r[1] for r in R if r[0] is e]][:, L3] for e in [d] + extra])
    pr = np.concatenate([[r[2] for r in R if r[0] is e] for e in [d] + extra])
    re = np.concatenate([[r[3] for r in R if r[0] is e] for e in [d] + extra])
    S = {"conf": ridge(X[:, L3], y, 300), "prog": ridge(XR, pr, 300), "rem": ridge(XR, re, 300)}
    sig = {}
    for k, h in S.items():
        raw, mean = np.full(B.rec.shape, -np.inf), np.full(B.rec.shape, -np.inf)
        raw[B.ok] = h(d.X[B.rec[B.ok]][:, L3])
        mean[B.ok] = h(d.X[B.rec[B.ok]][:, MEAN])
        steps = raw.copy()
        for j in range(1, raw.shape[1]):
            steps[:, j] = np.where(B.ok[:, j], 0.5 * steps[:, j - 1] + 0.5 * raw[:, j], -np.inf)
        sig[k] = dict(none=raw, tokens=mean, steps=steps)
    out["sig"] = sig
    if not quick:
        te = B.ok & (d.split == "test")[:, None]
        n = "none"
        nxt = np.array(
            [next((p["at"] for p in t["points"] or [] if p["kind"] == "blank" and p["right"]), t["think"]) for t in d.T]
        )
        y2 = np.log1p(np.maximum(0, nxt[:, None] - B.at))
        y1 = np.minimum(1, B.at / nxt[:, None])
        print(
            "SpecExit at blank lines of the test set, r2: conf",
            f2(1 - ((sig["conf"][n] - B.right)[te] ** 2).mean() / B.right[te].var()),
            "progress",
            f2(1 - ((sig["prog"][n] - y1)[te] ** 2).mean() / y1[te].var()),
            "remaining",
            f2(1 - ((sig["rem"][n] - y2)[te] ** 2).mean() / y2[te].var()),
        )
    out["EAT"] = (B, d.eat, None)
    out["RPDI"] = (B, d.rpdi, None)
    out["entropy"] = (B, np.where(B.ok, -B.h, -np.inf), None)
    out["P(</think>)"] = (B, np.where(B.ok, B.cp, -np.inf), None)
    out["k-th blank line"] = (B, np.where(B.ok, B.index, -np.inf).astype(float), None)
    return out, info


ORDER = [
    "k-th blank line",
    "EAT",
    "RPDI",
    "P(</think>)",
    "entropy",
    "signals, no states",
    "LYNX cue",
    "LYNX cue, exit before",
    "LYNX blank",
    "SpecExit",
    "LYNX blank + EAT",
]


def spec_choose(sig, cal, floor, limits):
    best = (np.inf, None)
    u = Sub(d, B, cal)
    okc = u.p.ok
    for sm in ("none", "tokens", "steps"):
        c, p, r = (sig[k][sm][cal] for k in ("conf", "prog", "rem"))
        for qc in [0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]:
            for qp in [0, 0.1, 0.2, 0.3, 0.5]:
                for qr in [1, 0.9, 0.8, 0.7, 0.5]:
                    th = (np.quantile(c[okc], qc), np.quantile(p[okc], qp), np.quantile(r[okc], qr))
                    g = (c >= th[0]) & (p >= th[1]) & (r <= th[2])
                    for lo, hi in limits:
                        t, a, _, _ = outcome(u.d, u.p, ((g & (u.p.index >= lo)) | (u.p.index >= hi)).astype(float), 0.5)
                        if a.mean() >= floor and t.mean() < best[0]:
                            best = (t.mean(), (sm, th, (lo, hi)))
    if best[1] is None:
        return None
    sm, th, (lo, hi) = best[1]
    c, p, r = (sig[k][sm] for k in ("conf", "prog", "rem"))
    return (
        sm,
        th,
        ((((c >= th[0]) & (p >= th[1]) & (r <= th[2])) & (B.index >= lo)) | (B.index >= hi)).astype(float),
        (lo, hi),
    )


def table(seen, unseen, rules, quick):
    sc, info = scores(seen, quick)
    cal = np.isin(d.task, list(seen)) & (d.split == "cal")
    test = np.isin(d.task, list(unseen)) & (d.split == "test")
    res = {}
    fr = d.free[cal].mean()
    tau = choose(d, B, sc["EAT"][1], cal, fr - 0.01)
    t, a, k, _ = outcome(d, B, sc["EAT"][1], tau)
    eat_cal = a[cal].mean()
    eat = (t, a)
    for rule in rules:
        floor = {"free-1": fr - 0.01, "EAT": eat_cal}[rule]
        res[rule] = {}
        for n in ORDER:
            for lim in ([False] if n in ("k-th blank line", "EAT") else [False, True] if rule == "EAT" else [False]):
                name = n + (" with limits" if lim else "")
                if n == "SpecExit":
                    b = spec_choose(sc["sig"], cal, floor, LIMITS if lim else LIMITS[:1])
                    if b is None:
                        continue
                    place, s, acc, tau, ex = B, b[2], None, 0.5, (b[0],) + tuple(f2(x) for x in b[1]) + b[3]
                elif n not in sc:
                    continue
                else:
                    place, s, acc = sc[n]
                    if lim:
                        tau, (lo, hi) = choose_limited(d, place, s, cal, floor, acc=acc)
                        s = limited(place, s, lo, hi)
                        ex = (float(tau), lo, hi)
                    else:
                        tau = choose(
                            d, place, s, cal, floor, n=int(max(12, s.max())) if n == "k-th blank line" else 120, acc=acc
                        )
                        ex = (float(tau),)
                t, a, k, _ = outcome(d, place, s, tau, acc=acc)
                r = report(d, test, t, a, eat)
                r.update(tau=ex, probes=(k[test] + 1).mean(), tokens=t, accs=a, cal=100 * a[cal].mean())
                res[rule][name] = r
    return res, info, sc


def show(res):
    for rule, rs in res.items():
        print(f"-- threshold: fewest tokens at an accuracy on the calibration set of at least: {rule}")
        for n, r in rs.items():
            print(
                f"{n:34s} acc {r['acc']:5.1f} tok {r['tok']:6.1f} saved {r['saved']:5.1f} ({r['saved_ci'][0]:.1f}…{r['saved_ci'][1]:.1f}) gain {r['gain']:+.2f} ({r['gain_ci'][0]:+.2f}…{r['gain_ci'][1]:+.2f})"
                f" | vs EAT: {r['less']:+5.1f}% ({r['less_ci'][0]:+.1f}…{r['less_ci'][1]:+.1f}), {r['better']:+.2f} ({r['better_ci'][0]:+.2f}…{r['better_ci'][1]:+.2f}) | {r['probes']:.2f} places, tau {r['tau']} cal {r.get('cal', 0):.1f}",
                flush=True,
            )


ALL = set(d.task)
print("== all kinds seen")
res, info, sc = table(ALL, ALL, ["free-1", "EAT"], False)
print(info)
show(res)
test = d.split == "test"
cal = d.split == "cal"
for n in ("LYNX blank", "LYNX cue", "LYNX blank + EAT", "EAT", "entropy", "P(</think>)", "signals, no states"):
    if n not in sc:
        continue
    pl, s, _ = sc[n]
    ok = pl.ok & test[:, None] & np.isfinite(s)
    o1 = ok & (pl.index == 1)
    print(
        "AUC of right, test",
        n,
        f2(auc(s[ok], pl.right[ok].astype(float))),
        "at the first",
        f2(auc(s[o1], pl.right[o1].astype(float))) if o1.any() else "",
    )
for n in ("LYNX blank", "LYNX cue"):
    if n not in sc:
        continue
    pl, s, acc = sc[n]
    for delta in (0.05, 0.1, 0.2, 0.3, 0.5):
        bad = np.sort(s[pl.ok & cal[:, None] & ~pl.right])
        k = int(np.ceil((len(bad) + 1) * (1 - delta)))
        tau = bad[k - 1] if k <= len(bad) else np.inf
        t, a, _, _ = outcome(d, pl, s, np.nextafter(tau, np.inf))
        r = report(d, test, t, a)
        okt = pl.ok & test[:, None] & ~pl.right
        print(
            f"conformal {n} delta {delta}: bad cal {len(bad)}, false exits on test {100*(s[okt] > tau).mean():.1f}%, acc {r['acc']:.1f} tok {r['tok']:.1f} saved {r['saved']:.1f} ({r['saved_ci'][0]:.1f}…{r['saved_ci'][1]:.1f}) gain {r['gain']:+.2f} ({r['gain_ci'][0]:+.2f}…{r['gain_ci'][1]:+.2f})",
            flush=True,
        )
for name, seen in (("arithmetic -> others", AR), ("others -> arithmetic", ALL - AR)):
    print("==", name)
    res, info, _ = table(seen, ALL - seen, ["EAT"], True)
    show(res)
print("== each kind unseen in turn")
tot = {}
per = {}
for task in sorted(ALL):
    res, info, sc = table(ALL - {task}, {task}, ["EAT"], True)
    for n, r in res["EAT"].items():
        T, Y = tot.setdefault(n, (d.think.copy(), d.free.copy()))
        m = d.task == task
        T[m] = r["tokens"][m]
        Y[m] = r["accs"][m]
        per.setdefault(n, {})[task] = (f2(r["less"]), f2(r["better"]))
    for n in ("LYNX blank", "entropy"):
        if n in sc:
            ok = B.ok & (test & (d.task == task))[:, None]
            s = sc[n][1]
            per.setdefault(n + " AUC", {})[task] = f2(auc(s[ok], B.right[ok].astype(float)))
full = {}
for n, (T, Y) in tot.items():
    r = report(d, test, T, Y, tot["EAT"])
    r["probes"] = 0
    r["tau"] = ()
    full[n] = r
show({"EAT, unseen": full})
for n in (
    "entropy with limits",
    "LYNX blank with limits",
    "SpecExit with limits",
    "LYNX blank + EAT with limits",
    "LYNX blank AUC",
    "entropy AUC",
):
    print(n, per.get(n))
