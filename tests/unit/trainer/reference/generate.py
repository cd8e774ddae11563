#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_training.h: five steps of training in PyTorch, in fp64, as an independent judge of
model, gradient clipping, AdamW, schedule and initial values.

Shares no code with the trainer: the model is written here on torch.nn.functional, the optimizer is
torch.optim.AdamW, initial values follow docs/decisions/0201. Needs python3-torch.
Usage: generate.py > golden_training.h
"""
import math

import torch
import torch.nn.functional as F

DIM, LAYERS, HEADS, KV, FFN, VOCAB, EPS, THETA = 64, 2, 4, 2, 192, 256, 1e-5, 500000.0
BATCH, LENGTH, STEPS, SEED = 4, 24, 5, 11
LR, BETAS, ADAM_EPS, DECAY, CLIP, WARMUP, FLOOR = 5e-3, (0.9, 0.95), 1e-8, 0.1, 0.5, 2, 0.1
MASK = (1 << 64) - 1


def mix64(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def key_of(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    return mix64(mix64(SEED) ^ h)


def initial(name, shape, std, low=0.0, high=1.0):
    """Exact quantiles (erfinv); the trainer's approximation is within 1.2e-9 of them."""
    key = key_of(name)
    n = math.prod(shape)
    uniform = [((mix64((key + i * 0x9E3779B97F4A7C15) & MASK) >> 11) + 0.5) * 2.0**-53
               for i in range(n)]
    p = low + (high - low) * torch.tensor(uniform, dtype=torch.float64)
    z = math.sqrt(2.0) * torch.erfinv(2.0 * p - 1.0)
    return (std * z).float().double().view(shape)  # stored as fp32


def parameters():
    p = {"model.embed_tokens.weight": initial("model.embed_tokens.weight", (VOCAB, DIM), 1.0)}
    hd = DIM // HEADS
    for i in range(LAYERS):
        scaled = 0.02 / math.sqrt(2 * (i + 1))
        at = f"model.layers.{i}."
        for part, shape, std in [
                ("self_attn.q_proj", (HEADS * hd, DIM), 0.02),
                ("self_attn.k_proj", (KV * hd, DIM), 0.02),
                ("self_attn.v_proj", (KV * hd, DIM), 0.02),
                ("self_attn.o_proj", (DIM, HEADS * hd), scaled),
                ("mlp.gate_proj", (FFN, DIM), 0.02),
                ("mlp.up_proj", (FFN, DIM), scaled),
                ("mlp.down_proj", (DIM, FFN), scaled)]:
            p[at + part + ".weight"] = initial(at + part + ".weight", shape, std)
        for part in ("input_layernorm", "post_attention_layernorm"):
            p[at + part + ".weight"] = torch.ones(DIM, dtype=torch.float64)
    p["model.norm.weight"] = torch.ones(DIM, dtype=torch.float64)
    tail = 0.5 * math.erfc(3 / math.sqrt(2))
    p["lm_head.weight"] = initial("lm_head.weight", (VOCAB, DIM), DIM**-0.5, tail, 1 - tail)
    return {name: t.requires_grad_(True) for name, t in p.items()}


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rope(x):
    half = x.shape[-1] // 2
    inverse = THETA ** (-torch.arange(0, half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), inverse)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def loss_of(p, tokens, targets):
    hd = DIM // HEADS
    x = F.embedding(tokens, p["model.embed_tokens.weight"])
    for i in range(LAYERS):
        w = lambda part: p[f"model.layers.{i}.{part}.weight"]
        split = lambda y, n: y.view(BATCH, LENGTH, n, hd).transpose(1, 2)
        a = norm(x, w("input_layernorm"))
        q = rope(split(F.linear(a, w("self_attn.q_proj")), HEADS))
        k = rope(split(F.linear(a, w("self_attn.k_proj")), KV)).repeat_interleave(HEADS // KV, 1)
        v = split(F.linear(a, w("self_attn.v_proj")), KV).repeat_interleave(HEADS // KV, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(hd)
        future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + F.linear(mixed.transpose(1, 2).reshape(BATCH, LENGTH, DIM), w("self_attn.o_proj"))
        b = norm(x, w("post_attention_layernorm"))
        hidden = F.silu(F.linear(b, w("mlp.gate_proj"))) * F.linear(b, w("mlp.up_proj"))
        x = x + F.linear(hidden, w("mlp.down_proj"))
    logits = F.linear(norm(x, p["model.norm.weight"]), p["lm_head.weight"])
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def learning_rate(k):
    if k <= WARMUP:
        return LR * k / WARMUP
    progress = (k - WARMUP) / (STEPS + 1 - WARMUP)
    return LR * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress)))


def window(step):
    n = BATCH * (LENGTH + 1)
    rows = [(i * 37 + step * 101 + i * i % 13) % VOCAB for i in range(n)]
    rows = torch.tensor(rows).view(BATCH, LENGTH + 1)
    return rows[:, :-1], rows[:, 1:]


def main():
    p = parameters()
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in p.values() if t.dim() > 1], "weight_decay": DECAY},
         {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0}],
        betas=BETAS, eps=ADAM_EPS)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = loss_of(p, *window(step))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Written by generate.py with PyTorch {torch.__version__}; do not edit.")
    print("#pragma once\n\n#include <array>\n#include <utility>\n\nnamespace hpctl::testing {\n")
    for name, values in (("kGoldenLosses", losses), ("kGoldenNorms", norms)):
        text = ", ".join(f"{v:.12g}" for v in values)
        print(f"inline constexpr std::array<double, {STEPS}> {name} = {{\n    {text}}};")
    print("// Tensor and the sum of its elements' absolute values after the last step.")
    picks = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
             "model.layers.1.mlp.down_proj.weight", "model.layers.1.input_layernorm.weight",
             "model.norm.weight", "lm_head.weight"]
    print(f"inline constexpr std::array<std::pair<const char*, double>, {len(picks)}> kGoldenSums ="
          " {{")
    for name in picks:
        print(f'    {{"{name}", {p[name].abs().sum().item():.12g}}},')
    print("}};\n\n}  // namespace hpctl::testing")


if __name__ == "__main__":
    main()
