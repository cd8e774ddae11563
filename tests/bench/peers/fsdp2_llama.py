# SPDX-License-Identifier: Apache-2.0
"""The peer of the trainer's benchmark at many tokens a step: the same model under PyTorch's FSDP2.

Llama-3 architecture with TorchTitan's debugmodel dimensions, byte tokens of one text file, Gloo
workers, each block and the whole sharded with fully_shard. Written as its guides advise: SDPA with
is_causal, F.rms_norm, the fused AdamW.

    fsdp2_llama.py TEXT OUT STEPS TOKENS SEQUENCES

SEQUENCES is per worker and step, all in one pass. Rank 0 appends a line of JSON per step to
OUT/metrics.jsonl. Needs PyTorch 2.6 or later.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DIM, LAYERS, HEADS, FFN, VOCAB = 256, 6, 16, 768, 2048


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return F.rms_norm(x, (DIM,), self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(DIM, FFN, bias=False), nn.Linear(DIM, FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        y = self.n1(x)
        q, k, v = (p(y).view(b, t, HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v))

        def rope(z):
            half = z.shape[-1] // 2
            return z * cos + torch.cat((-z[..., half:], z[..., :half]), -1) * sin

        out = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
        x = x + self.o(out.transpose(1, 2).reshape(b, t, DIM))
        z = self.n2(x)
        return x + self.w2(F.silu(self.w1(z)) * self.w3(z))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = RMSNorm(), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens, cos, sin):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def main():
    data_path, out = sys.argv[1:3]
    steps, length, sequences = (int(word) for word in sys.argv[3:6])
    torch.set_num_threads(1)
    os.environ["USE_LIBUV"] = "0"  # Debian's PyTorch is built without it
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.frombuffer(bytearray(open(data_path, "rb").read()), dtype=torch.uint8).long()
    freq = 1.0 / (500000.0 ** (torch.arange(0, DIM // HEADS, 2).float() / (DIM // HEADS)))
    angle = torch.outer(torch.arange(length).float(), freq)
    both = torch.cat((angle, angle), -1)
    cos, sin = both.cos(), both.sin()
    torch.manual_seed(1)
    model = Llama()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    for step in range(1, steps + 1):
        begin = time.time()
        first = ((step * world + rank) * sequences * length) % (len(data) - sequences * length - 1)
        text = data[first:first + sequences * length + 1]
        tokens, target = text[:-1].view(sequences, length), text[1:]
        logits = model(tokens, cos, sin).view(-1, VOCAB)
        loss = F.cross_entropy(logits, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if rank == 0:
            with open(f"{out}/metrics.jsonl", "a") as f:
                f.write(json.dumps({"step": step, "step_ms": (time.time() - begin) * 1e3,
                                    "loss": value}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
