"""Makes a checkpoint of a model that export.py wrote, for train.py --resume: python3 restore.py uma-tiny.gguf DIR

The weights are those of the file, rounded to Q8_0; the optimizer begins anew.
"""
import os
import struct
import sys

import numpy as np
import torch

import export
import tokenizer
from model import CONFIG, Model


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        v = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return v[0]

    def string(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n : self.at].decode()

    def value(self, kind):
        if kind == export.ARRAY:
            kind = self.take("<I")
            return [self.value(kind) for _ in range(self.take("<Q"))]
        return self.string() if kind == export.STRING else self.take({**export.SCALAR, export.I32: "<i"}[kind])


def read(path):
    """(metadata, tensors by name as float32 arrays with PyTorch's shapes)"""
    with open(path, "rb") as f:
        r = Reader(f.read())
    if r.take("4s") != b"GGUF" or r.take("<I") != 3:
        sys.exit(f"{path}: not a GGUF of version 3")
    count, pairs = r.take("<Q"), r.take("<Q")
    meta = {}
    for _ in range(pairs):
        key = r.string()
        meta[key] = r.value(r.take("<I"))
    infos = []
    for _ in range(count):
        name = r.string()
        shape = [r.take("<Q") for _ in range(r.take("<I"))]
        infos.append((name, shape[::-1], r.take("<I"), r.take("<Q")))
    begin = -(-r.at // export.ALIGN) * export.ALIGN
    out = {}
    for name, shape, kind, at in infos:
        n = int(np.prod(shape))
        if kind == export.Q8_0_TENSOR:
            blocks = np.frombuffer(r.data, np.uint8, n // 32 * 34, begin + at).reshape(-1, 34)
            scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
            w = blocks[:, 2:].copy().view(np.int8).astype(np.float32) * scale
        elif kind == export.F32_TENSOR:
            w = np.frombuffer(r.data, "<f4", n, begin + at)
        else:
            sys.exit(f"{path}: {name} is of type {kind}, which export.py does not write")
        out[name] = torch.from_numpy(w.reshape(shape).copy())
    return meta, out


def restore(path, directory):
    meta, w = read(path)
    tok = tokenizer.Tokenizer([m.split(" ") for m in meta["tokenizer.ggml.merges"]])
    if tok.tokens != meta["tokenizer.ggml.tokens"]:
        sys.exit(f"{path}: its vocabulary is not one of tokenizer.py")
    model = Model(len(tok.tokens))
    state = {"embed.weight": w["token_embd.weight"], "norm.weight": w["output_norm.weight"]}
    for i in range(CONFIG["layers"]):
        layer, blk = f"layers.{i}.", f"blk.{i}."
        state[layer + "norm1.weight"] = w[blk + "attn_norm.weight"]
        state[layer + "qkv.weight"] = torch.cat([w[f"{blk}attn_{n}.weight"] for n in "qkv"])
        state[layer + "out.weight"] = w[blk + "attn_output.weight"]
        state[layer + "norm2.weight"] = w[blk + "ffn_norm.weight"]
        state[layer + "up.weight"] = torch.cat([w[blk + "ffn_gate.weight"], w[blk + "ffn_up.weight"]])
        state[layer + "down.weight"] = w[blk + "ffn_down.weight"]
    model.load_state_dict(state)
    n = sum(p.numel() for p in model.parameters())
    os.makedirs(directory, exist_ok=True)
    tok.save(os.path.join(directory, "tokenizer.json"))
    none = {"m": torch.zeros(n), "v": torch.zeros(n), "step": 0, "seen": 0, "spent": 0.0}
    torch.save({"model": state, "mean": state, "config": model.c, **none}, os.path.join(directory, "checkpoint.pt"))


if __name__ == "__main__":
    restore(sys.argv[1], sys.argv[2])
