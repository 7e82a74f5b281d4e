#!/usr/bin/env python3
"""Trains an EAGLE-3 head for a model of the architecture llama, on a processor; docs/models.md shows the whole way.

    head.py new MODEL.gguf HEAD.gguf                          an untrained head, of the model's last layer
    head.py train MODEL.gguf HEAD.gguf DATA… [--minutes 60]   trains it; again goes on where it was

DATA are files of scripts/head/collect: what the model says, with the inputs of its layers that the head reads. They may
still grow. Training keeps what it needs to go on in HEAD.gguf.pt and writes HEAD.gguf every few minutes. Needs the
packages torch, numpy and gguf. MODEL may have any quantisation: the head learns from what it says as it is.
"""

import argparse
import os
import pathlib
import random
import struct
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F

MAGIC, TOP = 0x48454144, 8  # of a text in DATA; the most probable tokens that it has of each row
WINDOW, TEXTS = 256, 6  # rows and texts of a batch
HELD_OUT = 40  # one text in so many shows how good the head is, and is not learned
BF16 = torch.bfloat16


class Model:
    """What a head takes of its model: sizes, embeddings, last layer."""

    def __init__(self, path):
        self.file = gguf.GGUFReader(path)
        fields = self.file.fields
        key = lambda name, other=None: fields[n].contents() if (n := "llama." + name) in fields else other
        if fields["general.architecture"].contents() != "llama":
            raise SystemExit(f"{path}: heads are trained for the architecture llama alone")
        self.width, self.ffn, self.layers = key("embedding_length"), key("feed_forward_length"), key("block_count")
        self.heads = key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv", self.heads)
        self.head_width = key("attention.key_length", self.width // self.heads)
        self.eps, self.base = float(key("attention.layer_norm_rms_epsilon")), float(key("rope.freq_base", 10000.0))
        self.context = key("context_length")
        self.reads = [self.layers // 3, 2 * self.layers // 3, self.layers - 1]
        last = f"blk.{self.layers - 1}."
        self.weights = {
            t.name.removeprefix(last): torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).astype("f4"))
            for t in self.file.tensors
            if t.name.startswith(last) or t.name in ("token_embd.weight", "output.weight", "output_norm.weight")}
        self.embeddings = self.weights["token_embd.weight"]
        self.output = self.weights.get("output.weight", self.embeddings)


class Head(torch.nn.Module):
    """The head that llama.cpp computes. It begins as the last layer, which reads what that layer has read."""

    names = {"fc": "fc", "q": "blk.0.attn_q", "k": "blk.0.attn_k", "v": "blk.0.attn_v", "o": "blk.0.attn_output",
             "gate": "blk.0.ffn_gate", "up": "blk.0.ffn_up", "down": "blk.0.ffn_down", "norm_token": "blk.0.attn_norm",
             "norm_state": "blk.0.attn_norm_2", "norm_ffn": "blk.0.ffn_norm", "norm_out": "output_norm"}

    def __init__(self, m):
        super().__init__()
        self.m, d, w = m, m.width, {k.removesuffix(".weight"): v for k, v in m.weights.items()}
        noise = lambda rows, size: size * torch.randn(rows, d)
        # A group's keys and values are repeated: through the values alone the newest token is seen.
        own = lambda x: x.view(m.kv_heads, m.head_width, d).repeat_interleave(m.heads // m.kv_heads, 0).reshape(-1, d)
        rows = m.heads * m.head_width
        first = {"fc": torch.cat([noise(d, .002), noise(d, .002), torch.eye(d)], 1),
                 "q": torch.cat([noise(rows, .01), w["attn_q"]], 1),
                 "k": torch.cat([noise(rows, .01), own(w["attn_k"])], 1),
                 "v": torch.cat([noise(rows, .02), own(w["attn_v"])], 1), "o": w["attn_output"],
                 "gate": w["ffn_gate"], "up": w["ffn_up"], "down": w["ffn_down"], "norm_token": torch.ones(d),
                 "norm_state": w["attn_norm"], "norm_ffn": w["ffn_norm"], "norm_out": w["output_norm"]}
        for name, value in first.items():
            setattr(self, name, torch.nn.Parameter(value.clone()))
        self.turn = m.base ** (-torch.arange(0, m.head_width, 2) / m.head_width)

    def norm(self, x, weight):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.m.eps) * weight

    def rope(self, x):
        angle = torch.arange(x.shape[2])[:, None] * self.turn
        a, b = x[..., 0::2].float(), x[..., 1::2].float()
        cos, sin = angle.cos(), angle.sin()
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(BF16)

    def forward(self, inputs, tokens, rows, steps):
        """Yields the output of rows as the first, second … guess behind the newest row. Row i has token i and the
        inputs of the model's layers at i-1, or the head's own state there if it is not the first guess."""
        m, (texts, length, _) = self.m, tokens.shape
        linear = lambda x, w: F.linear(x.to(BF16), w.to(BF16))
        split = lambda x: x.view(texts, length, m.heads, m.head_width).transpose(1, 2)
        later = lambda x, by: F.pad(x, (0, 0, by, 0))[..., :length, :]
        state, token, keys, values = linear(inputs, self.fc), self.norm(tokens, self.norm_token), [], []
        for step in range(steps):
            x = torch.cat([token, self.norm(state, self.norm_state)], -1)
            q = self.rope(split(linear(x, self.q)))
            keys.append(self.rope(split(linear(x, self.k))))
            values.append(split(linear(x, self.v)))
            if step == 0:
                seen = F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
            else:  # rows of the model up to the guesses, then a row of each guess before this one
                hidden = torch.full((length, length), float("-inf")).triu(1 - step)
                scores = [(q @ keys[0].transpose(-1, -2)).float() / m.head_width**.5 + hidden]
                for j in range(1, step + 1):
                    scores.append((q * later(keys[j], step - j)).sum(-1, keepdim=True).float() / m.head_width**.5)
                share = torch.cat(scores, -1).softmax(-1).to(BF16)
                seen = share[..., :length] @ values[0]
                for j in range(1, step + 1):
                    seen = seen + share[..., length + j - 1:length + j] * later(values[j], step - j)
            state = state + linear(seen.transpose(1, 2).reshape(texts, length, -1), self.o)
            x = self.norm(state, self.norm_ffn)
            state = state + linear(F.silu(linear(x, self.gate)) * linear(x, self.up), self.down)
            yield self.norm(state[rows], self.norm_out)
            state = later(state, 1)


class Loss(torch.autograd.Function):
    """Cross-entropy with the model's most probable tokens; also returns the head's best token. It forms the gradient at
    once, in the place of the logits, which are by far the largest."""

    @staticmethod
    def forward(ctx, out, matrix, ids, chances, weight):
        x = F.linear(out.to(BF16), matrix).float()
        most, best = x.max(-1, keepdim=True)
        of_ids, mass = x.gather(1, ids), chances.sum(-1, keepdim=True)
        total = x.sub_(most).exp_().sum(-1, keepdim=True)
        loss = (mass * (total.log() + most)).squeeze(1) - (chances * of_ids).sum(-1)
        x.mul_(weight[:, None] * mass / total).scatter_add_(1, ids, -chances * weight[:, None])
        ctx.save_for_backward(x.to(BF16) @ matrix)
        return (loss * weight).sum(), best.squeeze(1)

    @staticmethod
    def backward(ctx, grad, _):
        return ctx.saved_tensors[0].float() * grad, None, None, None, None


class Texts:
    """The texts of DATA, which may still grow."""

    def __init__(self, paths, width):
        self.ends, self.width, self.all = dict.fromkeys(paths, 0), width, []

    def read(self):
        for path, at in self.ends.items():
            with open(path, "rb") as f:
                f.seek(at)
                while len(head := f.read(20)) == 20:
                    magic, number, n, prompt, width = struct.unpack("<5i", head)
                    if magic != MAGIC or width != self.width:
                        raise SystemExit(f"{path}: no data of collect for this head, at byte {at}")
                    rows = n - prompt + 1
                    part = f.read(4 * (n + 1) + 2 * n * width + 6 * rows * TOP)
                    if len(part) < 4 * (n + 1) + 2 * n * width + 6 * rows * TOP:
                        break  # not yet whole
                    take = lambda kind, count, off: torch.from_numpy(np.frombuffer(part, kind, count, off).copy())
                    states, ids = 4 * (n + 1), 4 * (n + 1) + 2 * n * width
                    self.all.append((number, prompt, take("<i4", n + 1, 0),
                                     take("<i2", n * width, states).view(BF16).view(n, width),
                                     take("<u2", rows * TOP, ids).long().view(rows, TOP),
                                     take("<f4", rows * TOP, ids + 2 * rows * TOP).view(rows, TOP)))
                    at += 20 + len(part)
            self.ends[path] = at


def batch(texts, m):
    """Windows of texts, each up to a place in its answer."""
    inputs = torch.zeros(len(texts), WINDOW, len(m.reads) * m.width, dtype=BF16)
    tokens = torch.zeros(len(texts), WINDOW, m.width)
    which, rows, ids, logits = [], [], [], []
    for i, (_, prompt, toks, states, top, values) in enumerate(texts):
        end = len(states)
        if end - 1 > WINDOW:
            end = random.randint(max(prompt + 8, WINDOW) + 1, end)
        begin = max(1, end - WINDOW)
        inputs[i, :end - begin] = states[begin - 1:end - 1]
        tokens[i, :end - begin] = m.embeddings[toks[begin:end].long()]
        first = max(begin, prompt - 1)
        rows.append(torch.arange(first - begin, end - begin))
        which.append(torch.full_like(rows[-1], i))
        ids.append(top[first - prompt + 1:end - prompt + 1])
        logits.append(values[first - prompt + 1:end - prompt + 1])
    return inputs, tokens, (torch.cat(which), torch.cat(rows)), torch.cat(ids), torch.cat(logits)


def losses(head, texts, place, matrix, steps):
    """The loss of a batch, and for each step the share of rows where the head's best token is the model's."""
    inputs, tokens, rows, ids, logits = batch(texts, head.m)
    known = place[ids]
    chances = logits.mul(1.3).softmax(-1) * (known >= 0)  # sharper: what is drafted are most probable tokens
    known, can = known.clamp(min=0), known[:, 0] >= 0
    loss, right = 0, []
    for step, out in enumerate(head(inputs, tokens, rows, steps)):
        counts = rows[1] >= step  # rows before have no state of the head's own
        part, best = Loss.apply(out, matrix, known, chances, (counts & can).float() / len(can))
        loss = loss + part * .9**step
        right.append(((best == known[:, 0]) & can)[counts].float().mean().item())
    return loss, right


def vocabulary(texts, m, size):
    """The tokens that the head can guess: those that the model says most often, and then those of the lowest ids."""
    count = -np.arange(len(m.embeddings)) * 1e-7
    for t in texts:
        count += np.bincount(t[4][:, 0].numpy(), minlength=len(count))
    return torch.from_numpy(np.sort(np.argsort(-count)[:size]))


def write(path, head, tokens, weights):
    m = head.m
    w = gguf.GGUFWriter(path + ".new", "eagle3")
    w.add_context_length(m.context)
    w.add_embedding_length(m.width)
    w.add_block_count(1)
    w.add_feed_forward_length(m.ffn)
    w.add_head_count(m.heads)
    w.add_head_count_kv(m.heads)
    w.add_key_length(m.head_width)
    w.add_value_length(m.head_width)
    w.add_layer_norm_rms_eps(m.eps)
    w.add_rope_freq_base(m.base)
    w.add_rope_dimension_count(m.head_width)
    w.add_vocab_size(len(m.embeddings))
    w.add_array("eagle3.target_layers", m.reads)
    w.add_uint32("eagle3.target_hidden_size", m.width)
    for name, field in m.file.fields.items():
        if name.startswith("tokenizer.ggml."):
            if field.types[0] == gguf.GGUFValueType.ARRAY:
                w.add_array(name, field.contents())
            else:
                w.add_key_value(name, field.contents(), field.types[0])
    matrices = {Head.names[n] + ".weight": p.detach() for n, p in head.named_parameters()}
    matrices["output.weight"] = m.output[tokens]
    for name, x in matrices.items():
        if x.ndim == 1:
            w.add_tensor(name, x.numpy())
        else:
            kind = gguf.GGMLQuantizationType[weights.upper()]
            w.add_tensor(name, gguf.quants.quantize(x.numpy(), kind), raw_dtype=kind)
    w.add_tensor("d2t", tokens.numpy().astype(np.int64))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(path + ".new", path)


def train(o, m, head):
    state = pathlib.Path(o.head + ".pt")
    if state.exists():
        head.load_state_dict(torch.load(state))
    texts = Texts(o.data, len(m.reads) * m.width)
    texts.read()
    if len(texts.all) < 2 * HELD_OUT:
        raise SystemExit(f"{len(texts.all)} texts are too few to begin")
    matrices, vectors = [[p for p in head.parameters() if p.ndim == n] for n in (2, 1)]
    steppers = [torch.optim.Muon(matrices, weight_decay=.01, adjust_lr_fn="match_rms_adamw"),
                torch.optim.AdamW(vectors, betas=(.9, .95), weight_decay=0)]
    begin, saved, step, left, right = time.time(), time.time(), 0, [], []
    while (done := (time.time() - begin) / 60 / o.minutes) < 1:
        if len(left) < TEXTS:
            texts.read()
            held, left = [[t for t in texts.all if (t[0] % HELD_OUT == 7) == out] for out in (True, False)]
            tokens = vocabulary(left, m, o.tokens)
            random.shuffle(left)
            place = torch.full((len(m.embeddings),), -1)
            place[tokens] = torch.arange(len(tokens))
            matrix = m.output[tokens].to(BF16)
        taken = [left.pop() for _ in range(TEXTS)]
        for s in steppers:
            for g in s.param_groups:
                g["lr"] = o.rate * min(1, (step + 1) / 20, max(.05, (1 - done) / .6))
        loss, shares = losses(head, taken, place, matrix, o.guesses)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1)
        for s in steppers:
            s.step()
            s.zero_grad()
        step += 1
        right.append(shares)
        if time.time() - saved > 120:
            save(o, head, tokens, state)
            with torch.no_grad():
                unseen = losses(head, held[:24], place, matrix, o.guesses)[1]
            print(f"{time.strftime('%H:%M:%S')} {len(texts.all)} texts, step {step}: right guesses by place "
                  f"{np.round(np.mean(right, 0), 3)}, held out {np.round(unseen, 3)}", flush=True)
            saved, right = time.time(), []
    save(o, head, tokens, state)


def save(o, head, tokens, state):
    torch.save(head.state_dict(), state)
    write(o.head, head, tokens, o.weights)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["new", "train"])
    p.add_argument("model")
    p.add_argument("head")
    p.add_argument("data", nargs="*")
    p.add_argument("--minutes", type=float, default=60, help="time to train (default 60)")
    p.add_argument("--tokens", type=int, default=8192, help="tokens that the head can guess (default 8192)")
    p.add_argument("--guesses", type=int, default=3, help="guesses in a row that are trained (default 3)")
    p.add_argument("--weights", default="q8_0", help="type of the file's matrices, such as q4_1 (default q8_0)")
    p.add_argument("--rate", type=float, default=1.5e-3, help="learning rate (default 0.0015)")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    m = Model(o.model)
    head = Head(m)
    if o.command == "new":
        write(o.head, head, torch.arange(min(o.tokens, len(m.embeddings))), o.weights)
    else:
        train(o, m, head)


if __name__ == "__main__":
    main()
