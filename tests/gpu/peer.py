#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of the GPU benchmark: a Llama step in PyTorch as one would write it for one card.

fp32 parameters, bf16 by autocast, LibTorch's attention, AdamW in one kernel, clipping; whole, eager
or through torch.compile. With "torchtitan" the model is TorchTitan's, where its package is
installed (releases that have torchtitan.models.llama3.Transformer: up to 0.2). Usage: peer.py SPEC,
a JSON document {"model": {dim, layers, heads, kv_heads, ffn, vocab, tied}, "seq_len", "micro",
"passes", "steps", "device", "compile", "torchtitan"}: so many micro-batches a step; prints one line of JSON {"step_ms": [...],
"peak_memory_bytes", "loss"}, or {"failed": "why"}.
"""
import json
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def attention(q, k, v):
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    if HAS_SDPA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        dim, ffn = m["dim"], m["ffn"]
        self.head_dim = dim // m["heads"]
        kv = m["kv_heads"] * self.head_dim
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        bias = m.get("arch") == "qwen2"
        self.q, self.o = nn.Linear(dim, dim, bias=bias), nn.Linear(dim, dim, bias=False)
        self.k, self.v = nn.Linear(dim, kv, bias=bias), nn.Linear(dim, kv, bias=bias)
        self.gate, self.up = nn.Linear(dim, ffn, bias=False), nn.Linear(dim, ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)

    def forward(self, x, cos, sin):
        split = lambda y: y.view(x.shape[0], x.shape[1], -1, self.head_dim).transpose(1, 2)

        def rope(y):
            half = self.head_dim // 2
            turned = torch.cat((-y[..., half:], y[..., :half]), -1)
            return (y * cos + turned * sin).to(y.dtype)

        a = self.norm1(x)
        mixed = attention(rope(split(self.q(a))), rope(split(self.k(a))), split(self.v(a)))
        x = x + self.o(mixed.transpose(1, 2).reshape(x.shape))
        b = self.norm2(x)
        return x + self.down(F.silu(self.gate(b)) * self.up(b))


class Llama(nn.Module):
    def __init__(self, m, seq_len):
        super().__init__()
        self.embed = nn.Embedding(m["vocab"], m["dim"])
        self.layers = nn.ModuleList(Layer(m) for _ in range(m["layers"]))
        self.norm = RMSNorm(m["dim"])
        self.head = nn.Linear(m["dim"], m["vocab"], bias=False)
        if m["tied"]:
            self.head.weight = self.embed.weight
        head_dim = m["dim"] // m["heads"]
        inverse = 5e5 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angle = torch.outer(torch.arange(seq_len, dtype=torch.float64), inverse)
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def torchtitan_arguments(m, seq_len):
    """Of TorchTitan's TransformerModelArgs, which takes the width of the feed-forward part as a
    factor on two thirds of four times `dim`, rounded up to a multiple: here from half of the
    multiple below."""
    multiple = m["ffn"] & -m["ffn"]
    return {"dim": m["dim"], "n_layers": m["layers"], "n_heads": m["heads"],
            "n_kv_heads": m["kv_heads"], "vocab_size": m["vocab"], "multiple_of": multiple,
            "ffn_dim_multiplier": (m["ffn"] - multiple / 2) / int(8 * m["dim"] / 3),
            "rope_theta": 5e5, "max_seq_len": seq_len}


def torchtitan_model(m, seq_len):
    from torchtitan.models.llama3 import Transformer, TransformerModelArgs

    class Titan(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Transformer(TransformerModelArgs(**torchtitan_arguments(m, seq_len)))
            if m["tied"]:
                self.model.output.weight = self.model.tok_embeddings.weight

        def forward(self, tokens, targets):
            logits = self.model(tokens).float()
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    return Titan()


def run(spec):
    device = torch.device(spec["device"])
    cuda = device.type == "cuda"
    torch.manual_seed(1)
    with torch.device(device) if hasattr(torch, "set_default_device") else device_scope():
        make = torchtitan_model if spec["torchtitan"] else Llama
        model = make(spec["model"], spec["seq_len"])
    model = model.to(device)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    options = {"fused": True} if cuda else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  **options)
    step_of = torch.compile(model) if spec["compile"] else model
    vocab, shape = spec["model"]["vocab"], (spec["micro"], spec["seq_len"] + 1)
    step_ms, loss = [], None
    for _ in range(spec["steps"]):
        passes = torch.randint(0, vocab, (spec["passes"], *shape)).to(device)
        begin = time.perf_counter()
        for rows in passes:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = step_of(rows[:, :-1], rows[:, 1:]) / spec["passes"]
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item() * spec["passes"]  # of the last micro-batch
        if cuda:
            torch.cuda.synchronize()
        step_ms.append((time.perf_counter() - begin) * 1e3)
    peak = torch.cuda.max_memory_reserved() if cuda else 0
    return {"step_ms": step_ms, "peak_memory_bytes": peak, "loss": value}


class device_scope:
    """torch.device as a context came with 2.0."""

    def __enter__(self):
        pass

    def __exit__(self, *args):
        pass


def main():
    spec = json.loads(sys.argv[1])
    if spec["compile"] and not hasattr(torch, "compile"):
        print(json.dumps({"failed": "torch %s has no torch.compile" % torch.__version__}))
        return
    try:
        print(json.dumps(run(spec)))
    except ImportError as error:
        print(json.dumps({"failed": "no such model here: %s" % error}))
    except Exception as error:  # out of memory, mostly
        print(json.dumps({"failed": " ".join(str(error).split("\n")[:2])}))


if __name__ == "__main__":
    main()
