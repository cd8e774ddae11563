#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a Llama, one of its kind (qwen2, qwen3, mistral) or a GPT in PyTorch from given weights and
data, for pytorch_test.cc to compare with.

Shares no code with the trainer: the model is written here on torch.nn.functional, optimizer and
clipping are torch's own. With float16 the weights stay fp32, and what a GPU computes in fp16 is
computed in fp32 from fp16 and rounded, forward and backward; the loss is scaled, and a batch whose
gradients overflow is dropped. Usage: train.py, which trains for each line "DIR TYPE" of its input,
TYPE being float16, float32 or float64, and answers with a line when that is done: importing torch
takes longer than most of what it is asked for. DIR holds

  job.json     {"model": {...}, "train": {...}, "tensors": [[name, shape], ...]} (keys of job.yaml)
  weights.bin  the tensors' elements one after the other, fp32
  tokens.bin   int64 [batches, sequences, seq_len + 1]; more than steps when some may be dropped;
               a last token of -100 is not predicted
  adapters.bin  with "lora" in "train": the elements of the "adapters" of job.json, fp32; they are
               trained instead of the weights, and the gradient is theirs
  positions.bin  with "documents" in "train": int64 [batches, sequences, seq_len], each token's
               position in its document, which attention does not leave; with "answers", too,
               only capitals and exclamation marks are predicted

Writes DIR/TYPE.json {"losses", "norms", "scales"}, one number per step, and DIR/TYPE.gradient: the
gradient of the first step, fp64, laid out as the weights. Exit code 77: no torch.
"""
import json
import math
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)


def wide(x):
    return x.float() if x.dtype == torch.float16 else x


def linear(x, w, bias=None):
    return F.linear(wide(x), wide(w), None if bias is None else wide(bias)).to(x.dtype)


def norm(x, weight, eps):
    y = wide(x)
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def llama31_frequencies(inverse, s):
    """As Hugging Face transformers defines rope_type "llama3" (modeling_rope_utils.py)."""
    wavelength = 2 * math.pi / inverse
    low = s["original_max_len"] / s["low_freq_factor"]
    high = s["original_max_len"] / s["high_freq_factor"]
    smooth = ((s["original_max_len"] / wavelength - s["low_freq_factor"])
              / (s["high_freq_factor"] - s["low_freq_factor"]))
    between = (1 - smooth) * inverse / s["factor"] + smooth * inverse
    result = torch.where(wavelength > low, inverse / s["factor"], inverse)
    return torch.where((wavelength <= low) & (wavelength >= high), between, result)


def rope(x, m, positions):
    """Rotates the pairs (i, i + h/2) of x [B, heads, T, h] (the order of Hugging Face)."""
    half = x.shape[-1] // 2
    inverse = m["rope_theta"] ** (-torch.arange(0, half, dtype=torch.float64) / half)
    scaling = m["rope_scaling"]
    if scaling["factor"]:
        inverse = llama31_frequencies(inverse, scaling)
    angle = positions.double()[:, None, :, None] * inverse
    y = wide(x)
    cos, sin = angle.cos().to(y.dtype), angle.sin().to(y.dtype)
    a, b = y[..., :half], y[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def attention(q, k, v, positions, window=0):
    """Causal; q, k, v are [B, heads, T, h], the result is [B, T, heads * h]."""
    batch, heads, length, h = q.shape
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    if window:  # a token sees itself and window - 1 before it
        future = future | torch.ones(length, length, dtype=torch.bool).tril(-window)
    document = (positions == 0).cumsum(-1)
    future = future | (document[:, None, :, None] != document[:, None, None, :])
    scores = wide(q * (1 / math.sqrt(h))) @ wide(k).transpose(-1, -2)
    scores = wide(scores.to(q.dtype)).masked_fill(future, float("-inf"))
    mixed = (wide(scores.softmax(-1).to(q.dtype)) @ wide(v)).to(q.dtype)
    return mixed.transpose(1, 2).reshape(batch, length, heads * h)


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * weight + bias


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))


def gpt_logits(p, m, tokens, positions):
    """As transformers defines GPT2LMHeadModel, without dropout; matrices are [in, out]."""
    batch, length = tokens.shape
    heads, dim = m["heads"], m["dim"]
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][positions]
    for i in range(m["layers"]):
        w = lambda part: p[f"transformer.h.{i}.{part}"]
        norm = lambda y, part: layer_norm(y, w(part + ".weight"), w(part + ".bias"), m["norm_eps"])
        conv1d = lambda y, part: y @ w(part + ".weight") + w(part + ".bias")
        qkv = conv1d(norm(x, "ln_1"), "attn.c_attn").split(dim, -1)
        q, k, v = (y.view(batch, length, heads, dim // heads).transpose(1, 2) for y in qkv)
        x = x + conv1d(attention(q, k, v, positions), "attn.c_proj")
        x = x + conv1d(gelu_new(conv1d(norm(x, "ln_2"), "mlp.c_fc")), "mlp.c_proj")
    x = layer_norm(x, p["transformer.ln_f.weight"], p["transformer.ln_f.bias"], m["norm_eps"])
    return F.linear(x, p["transformer.wte.weight" if m["tied_embeddings"] else "lm_head.weight"])


def adapted(p, name, x, lora, bias=None):
    """LoRA as its paper has it: W x + alpha / rank * B A x."""
    y = linear(x, p[name + ".weight"], bias)
    if not lora or name + ".lora_A.weight" not in p:
        return y
    low = linear(x, p[name + ".lora_A.weight"])
    return y + linear(low, p[name + ".lora_B.weight"]) * (lora["alpha"] / lora["rank"])


def llama_logits(p, m, tokens, positions, lora=None):
    batch, length = tokens.shape
    heads, kv = m["heads"], m["kv_heads"]
    hd = m["head_dim"] or m["dim"] // heads
    x = F.embedding(tokens, p["model.embed_tokens.weight"])
    for i in range(m["layers"]):
        w = lambda part: p[f"model.layers.{i}.{part}.weight"]
        def project(part, n):
            part = "self_attn." + part
            bias = p[f"model.layers.{i}.{part}.bias"] if m["arch"] == "qwen2" else None
            return adapted(p, f"model.layers.{i}.{part}", a, lora, bias).view(batch, length, n, hd).transpose(1, 2)
        a = norm(x, w("input_layernorm"), m["norm_eps"])
        q, k, v = project("q_proj", heads), project("k_proj", kv), project("v_proj", kv)
        if m["arch"] == "qwen3":
            q = norm(q, w("self_attn.q_norm"), m["norm_eps"])
            k = norm(k, w("self_attn.k_norm"), m["norm_eps"])
        q, k = rope(q, m, positions), rope(k, m, positions)
        k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
        mixed = attention(q, k, v, positions, m["sliding_window"])
        of = lambda part, y: adapted(p, f"model.layers.{i}.{part}", y, lora)
        x = x + of("self_attn.o_proj", mixed)
        b = norm(x, w("post_attention_layernorm"), m["norm_eps"])
        gate, up = of("mlp.gate_proj", b), of("mlp.up_proj", b)
        hidden = F.silu(wide(gate)).to(x.dtype) * up
        x = x + of("mlp.down_proj", hidden)
    output = p["model.embed_tokens.weight" if m["tied_embeddings"] else "lm_head.weight"]
    return linear(norm(x, p["model.norm.weight"], m["norm_eps"]), output)


def loss_of(p, m, rows, positions, z_loss, answers, lora):
    """(cross entropy, that plus the z-loss), means over the tokens."""
    tokens, targets = rows[:, :-1], rows[:, 1:].clone()
    # The first token of another document is not predicted; where it is the last of a row, it is
    # marked in tokens.bin.
    targets[:, :-1][positions[:, 1:] == 0] = -100
    if answers:
        capital = (targets >= ord("A")) & (targets <= ord("Z"))
        targets[~(capital | (targets == ord("!")))] = -100
    counted = targets.reshape(-1) != -100
    if m["arch"] == "gpt":
        logits = gpt_logits(p, m, tokens, positions)
    else:
        logits = llama_logits(p, m, tokens, positions, lora)
    logits = wide(logits).view(-1, m["vocab"])
    entropy = F.cross_entropy(logits, targets.reshape(-1))
    return entropy, entropy + z_loss * logits[counted].logsumexp(-1).pow(2).mean()


def learning_rate(t, k):
    """Of step k = 1, 2, ...; docs/job-yaml.md."""
    s = t["schedule"]
    w, floor = s["warmup_steps"], s["min_lr_ratio"]
    if k <= w:
        return t["optimizer"]["lr"] * k / w
    if s["name"] == "cosine":
        progress = (k - w) / (t["steps"] + 1 - w)
        part = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        assert (s["name"], s["decay"]) == ("wsd", "sqrt")
        stable = t["steps"] - s["decay_steps"]
        part = 1 - math.sqrt(max(0, k - stable) / (s["decay_steps"] + 1))
    return t["optimizer"]["lr"] * (floor + (1 - floor) * part)


def group_of(name):
    """Of optimizer.no_decay."""
    if name.endswith(".bias"):
        return "biases"
    if "norm" in name or ".ln_" in name:
        return "norms"
    return "embeddings" if any(e in name for e in ("embed", ".wte.", ".wpe.")) else "matrices"


def read_numbers(path, shape):
    with open(path, "rb") as f:
        return torch.frombuffer(bytearray(f.read()), dtype=torch.int64).view(-1, *shape)


def read_weights(path, tensors, dtype):
    with open(path, "rb") as f:
        flat = torch.frombuffer(bytearray(f.read()), dtype=torch.float32)
    weights, at = {}, 0
    for name, shape in tensors:
        n = math.prod(shape)
        weights[name] = flat[at:at + n].to(dtype).clone().view(shape).requires_grad_(True)
        at += n
    return weights


class LossScale:
    """docs/job-yaml.md, workload.train.loss_scale."""

    def __init__(self, settings):
        self.settings, self.value = settings, settings["initial"]
        self.forgiven, self.good = settings["hysteresis"] - 1, 0

    def fits(self, finite):
        if finite:
            self.good += 1
            if self.good == self.settings["growth_interval"]:
                self.value, self.good = self.value * 2, 0
                self.forgiven = self.settings["hysteresis"] - 1
        else:
            self.good = 0
            if self.forgiven > 0:
                self.forgiven -= 1
            else:
                self.value = max(self.value / 2, self.settings["min"])
        return finite


def train(directory, name):
    dtype = getattr(torch, name)
    master = torch.float32 if dtype == torch.float16 else dtype
    with open(f"{directory}/job.json") as f:
        job = json.load(f)
    m, t = job["model"], job["train"]
    o = t["optimizer"]
    p = read_weights(f"{directory}/weights.bin", job["tensors"], master)
    trained = p
    if "lora" in t:
        for w in p.values():
            w.requires_grad_(False)
        trained = read_weights(f"{directory}/adapters.bin", job["adapters"], master)
        p = p | trained
    shape = (t["sequences"], t["seq_len"])
    tokens = read_numbers(f"{directory}/tokens.bin", (shape[0], shape[1] + 1))
    if t["documents"]:
        positions = read_numbers(f"{directory}/positions.bin", shape)
    else:
        positions = torch.arange(shape[1]).expand(len(tokens), *shape)
    exempt = lambda name: group_of(name) in o["no_decay"]
    optimizer = torch.optim.AdamW(
        [{"params": [w for n, w in trained.items() if not exempt(n)],
          "weight_decay": o["weight_decay"]},
         {"params": [w for n, w in trained.items() if exempt(n)], "weight_decay": 0.0}],
        betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms, scales = [], [], []
    scale = LossScale(t["loss_scale"]) if dtype == torch.float16 else None
    batches = zip(tokens, positions)
    while len(losses) < t["steps"]:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(t, len(losses) + 1)
        optimizer.zero_grad()
        factor = scale.value if scale else 1
        rows, row_positions = next(batches)
        entropy = 0.0
        # What overflows in fp16 is a micro-batch's part of a gradient; the sum is fp32.
        size = t["micro"] if scale else len(rows)
        for part, where in zip(rows.split(size), row_positions.split(size)):
            used = {n: w.half() for n, w in p.items()} if scale else p
            share = len(part) / len(rows)
            part_entropy, loss = loss_of(used, m, part, where, t["z_loss"], t["answers"],
                                         t.get("lora"))
            (loss * (share * factor)).backward()
            entropy += part_entropy.item() * share
        for w in trained.values():
            w.grad /= factor
        if scale and not scale.fits(all(w.grad.isfinite().all() for w in trained.values())):
            continue
        if not losses:
            with open(f"{directory}/{name}.gradient", "wb") as f:
                for w in trained.values():
                    f.write(w.grad.double().numpy().tobytes())
        norms.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), o["clip"]).item())
        losses.append(entropy)
        scales.append(scale.value if scale else 0)
        optimizer.step()
    with open(f"{directory}/{name}.json", "w") as f:
        json.dump({"losses": losses, "norms": norms, "scales": scales}, f)


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        train(*line.split())
        print("done", flush=True)


if __name__ == "__main__":
    main()
