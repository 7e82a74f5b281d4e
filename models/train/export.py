"""Writes a checkpoint as GGUF: matrices Q8_0, norms F32, tokenizer and chat template inside.

    python3 export.py DIR uma-tiny.gguf       DIR as train.py left it; the model's name is the file's
"""
import os
import struct
import sys

import numpy as np
import torch

import tokenizer

ALIGN = 32
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5  # enum gguf_type
F32_TENSOR, Q8_0_TENSOR = 0, 8  # enum ggml_type
NORMAL, CONTROL = 1, 3  # enum llama_token_type


def q8_0(x):
    """Per 32 weights a half-precision scale d = max|x| / 127 and 32 signed bytes round(x / d)."""
    x = x.reshape(-1, 32).astype(np.float32)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    q = np.divide(x, d, out=np.zeros_like(x), where=d > 0)
    q = np.trunc(q + np.copysign(np.float32(0.5), q)).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), q.view(np.uint8)], 1).tobytes()


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


SCALAR = {U32: "<I", F32: "<f", BOOL: "<?", I32: "<i"}


def value(kind, v):
    return string(v) if kind == STRING else struct.pack(SCALAR[kind], v)


def pair(key, kind, v):
    if isinstance(kind, tuple):  # an array
        return string(key) + struct.pack("<IIQ", ARRAY, kind[0], len(v)) + b"".join(value(kind[0], x) for x in v)
    return string(key) + struct.pack("<I", kind) + value(kind, v)


def tensors(state, c):
    """(name, shape, matrix?) under llama.cpp's names; shape as PyTorch has it."""
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    yield "token_embd.weight", state["embed.weight"]
    yield "output_norm.weight", state["norm.weight"]
    for i in range(c["layers"]):
        layer, blk = f"layers.{i}.", f"blk.{i}."
        yield blk + "attn_norm.weight", state[layer + "norm1.weight"]
        for name, w in zip("qkv", state[layer + "qkv.weight"].split([q, kv, kv])):
            yield f"{blk}attn_{name}.weight", w
        yield blk + "attn_output.weight", state[layer + "out.weight"]
        yield blk + "ffn_norm.weight", state[layer + "norm2.weight"]
        gate, up = state[layer + "up.weight"].chunk(2)
        yield blk + "ffn_gate.weight", gate
        yield blk + "ffn_up.weight", up
        yield blk + "ffn_down.weight", state[layer + "down.weight"]


def export(directory, path):
    saved = torch.load(os.path.join(directory, "checkpoint.pt"), map_location="cpu")
    tok = tokenizer.Tokenizer.load(os.path.join(directory, "tokenizer.json"))
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chatml.jinja")) as f:
        template = f.read().rstrip("\n")
    c = saved["config"]
    pairs = [
        ("general.architecture", STRING, "llama"),
        ("general.type", STRING, "model"),
        ("general.name", STRING, os.path.splitext(os.path.basename(path))[0]),
        ("general.license", STRING, "mit"),
        ("general.description", STRING, "A small demonstration model: arithmetic, sorting, letters, calendar, with thinking. Not a general assistant."),
        ("general.file_type", U32, 7),  # mostly Q8_0
        ("general.quantization_version", U32, 2),
        ("llama.block_count", U32, c["layers"]),
        ("llama.context_length", U32, c["context"]),
        ("llama.embedding_length", U32, c["dim"]),
        ("llama.feed_forward_length", U32, c["ffn"]),
        ("llama.vocab_size", U32, c["vocab"]),
        ("llama.attention.head_count", U32, c["heads"]),
        ("llama.attention.head_count_kv", U32, c["kv_heads"]),
        ("llama.attention.key_length", U32, c["head_dim"]),
        ("llama.attention.value_length", U32, c["head_dim"]),
        ("llama.attention.layer_norm_rms_epsilon", F32, c["eps"]),
        ("llama.rope.dimension_count", U32, c["head_dim"]),
        ("llama.rope.freq_base", F32, c["rope_base"]),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "qwen2"),
        ("tokenizer.ggml.tokens", (STRING,), tok.tokens),
        ("tokenizer.ggml.token_type", (I32,), [CONTROL if i < len(tokenizer.SPECIAL) else NORMAL for i in range(len(tok.tokens))]),
        ("tokenizer.ggml.merges", (STRING,), [f"{a} {b}" for a, b in tok.merges]),
        ("tokenizer.ggml.bos_token_id", U32, tokenizer.END),
        ("tokenizer.ggml.eos_token_id", U32, tokenizer.IM_END),
        ("tokenizer.ggml.padding_token_id", U32, tokenizer.END),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.ggml.add_space_prefix", BOOL, False),
        ("tokenizer.chat_template", STRING, template),
    ]
    header, data, count = b"", b"", 0
    for name, w in tensors(saved["mean"], c):
        shape = list(reversed(w.shape))  # ggml names the contiguous dimension first
        kind, raw = (Q8_0_TENSOR, q8_0(w.numpy())) if w.dim() == 2 else (F32_TENSOR, w.numpy().astype("<f4").tobytes())
        header += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += raw + b"\0" * (-len(raw) % ALIGN)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pair(*p) for p in pairs) + header
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN) + data)
    print(f"{path}: {os.path.getsize(path)} bytes, step {saved['step']}, {saved['seen']} tokens seen")


if __name__ == "__main__":
    export(sys.argv[1], sys.argv[2])
