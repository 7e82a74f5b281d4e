"""The network: llama's architecture as llama.cpp computes it (RMS norm, SwiGLU, grouped queries, rotary pairs 2i, 2i+1,
input embedding used as output matrix)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(dim=192, layers=5, heads=6, kv_heads=2, head_dim=32, ffn=512, context=2048, rope_base=10000.0, eps=1e-5)


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cos, sin):
    """x: batch, time, heads, head_dim; pairs are neighbours."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        self.norm1, self.norm2 = Norm(c["dim"], c["eps"]), Norm(c["dim"], c["eps"])
        self.qkv = nn.Linear(c["dim"], q + 2 * kv, bias=False)
        self.out = nn.Linear(q, c["dim"], bias=False)
        self.up = nn.Linear(c["dim"], 2 * c["ffn"], bias=False)  # gate and up
        self.down = nn.Linear(c["ffn"], c["dim"], bias=False)

    def forward(self, x, cos, sin, mask, cache=None):
        c = self.c
        b, t, _ = x.shape
        h, g, d = c["heads"], c["kv_heads"], c["head_dim"]
        q, k, v = self.qkv(self.norm1(x)).split([h * d, g * d, g * d], -1)
        q, k, v = rotate(q.view(b, t, h, d), cos, sin), rotate(k.view(b, t, g, d), cos, sin), v.view(b, t, g, d)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
            cache[:] = [k, v]
        # The query heads of one group are rows beside each other, so keys and values are not repeated.
        q = q.view(b, t, g, h // g, d).permute(0, 2, 3, 1, 4).reshape(b * g, (h // g) * t, d)
        k, v = k.permute(0, 2, 3, 1).reshape(b * g, d, -1), v.transpose(1, 2).reshape(b * g, -1, d)
        s = torch.bmm(q, k.to(q.dtype)).float().view(b, g, h // g, t, -1) * (1 / math.sqrt(d)) + mask
        w = torch.softmax(s, -1).to(v.dtype).view(b * g, (h // g) * t, -1)
        y = torch.bmm(w, v).view(b, g, h // g, t, d).permute(0, 3, 1, 2, 4).reshape(b, t, h * d)
        x = x + self.out(y)
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, vocab, **over):
        super().__init__()
        self.c = c = {**CONFIG, **over, "vocab": vocab}
        self.embed = nn.Embedding(vocab, c["dim"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = Norm(c["dim"], c["eps"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if name == "embed.weight" else p.shape[1] ** -0.5)
            if name.endswith(("out.weight", "down.weight")):
                p.data /= math.sqrt(2 * c["layers"])
        freq = c["rope_base"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
        angle = torch.outer(torch.arange(c["context"]).float(), freq)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, positions=None, mask=None, cache=None):
        """Hidden states after the final norm. Without positions: a batch that starts at 0, padded on the right."""
        b, t = ids.shape
        if positions is None:
            cos, sin = self.cos[:t, None], self.sin[:t, None]
            mask = torch.full((t, t), float("-inf"), device=ids.device).triu(1)
        else:
            cos, sin = self.cos[positions][:, :, None], self.sin[positions][:, :, None]
        x = self.embed(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, mask, cache[i] if cache is not None else None)
        return self.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.embed.weight)

    @torch.no_grad()
    def generate(self, prompts, limit, stop):
        """Greedy continuations of token lists, all at once, up to a stop token or limit tokens."""
        b, longest = len(prompts), max(map(len, prompts))
        dev = self.embed.weight.device
        pad = torch.tensor([longest - len(p) for p in prompts], device=dev)
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=dev)
        cache, out, done = [[] for _ in self.layers], [[] for _ in prompts], [False] * b
        rows = torch.arange(longest + limit, device=dev)
        start = 0
        while True:
            end = start + ids.shape[1]
            positions = (rows[None, start:end] - pad[:, None]).clamp(min=0)
            hide = (rows[None, None, :end] < pad[:, None, None]) | (rows[None, None, :end] > rows[None, start:end, None])
            hide &= rows[None, None, :end] != rows[None, start:end, None]  # padding sees itself: no empty softmax
            mask = torch.zeros(hide.shape, device=dev).masked_fill(hide, float("-inf"))[:, None, None]
            nxt = self.logits(self(ids, positions, mask, cache)[:, -1].to(self.embed.weight.dtype)).argmax(-1)
            for i, token in enumerate(nxt.tolist()):
                if not done[i]:
                    out[i].append(token)
                    done[i] = token == stop
            start, ids = end, nxt[:, None]
            if all(done) or start >= longest + limit - 1:
                return out
