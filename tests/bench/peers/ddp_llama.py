# SPDX-License-Identifier: Apache-2.0
"""The peer of the recovery benchmark: the same model trained by a Python script, under torchrun
and under hpctl.

Llama-3 architecture with TorchTitan's debugmodel dimensions, byte tokens of one text file, four
Gloo workers with DistributedDataParallel, a checkpoint every few steps by rank 0, resumed on start.
Appends one JSON line per step to OUT/metrics.jsonl (rank 0) and its pid to OUT/pid-RANK.
"""
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

DIM, LAYERS, HEADS, FFN, VOCAB, SEQ = 256, 6, 16, 768, 2048, 128


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = RMSNorm(DIM), RMSNorm(DIM)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(DIM, FFN, bias=False), nn.Linear(DIM, FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        y = self.n1(x)
        q, k, v = (p(y).view(b, t, HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v))

        def rope(z):
            half = z.shape[-1] // 2
            return z * cos + torch.cat((-z[..., half:], z[..., :half]), -1) * sin

        scores = rope(q) @ rope(k).transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask
        out = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, DIM)
        x = x + self.o(out)
        z = self.n2(x)
        return x + self.w2(F.silu(self.w1(z)) * self.w3(z))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = RMSNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens, cos, sin, mask):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.head(self.norm(x))


def main():
    data_path, out, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    os.environ["USE_LIBUV"] = "0"  # Debian's newer PyTorch is built without it
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with open(f"{out}/pid-{rank}", "w") as f:
        f.write(str(os.getpid()))
    data = torch.frombuffer(bytearray(open(data_path, "rb").read()), dtype=torch.uint8).long()
    freq = 1.0 / (500000.0 ** (torch.arange(0, DIM // HEADS, 2).float() / (DIM // HEADS)))
    angle = torch.outer(torch.arange(SEQ).float(), freq)
    cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()
    mask = torch.full((SEQ, SEQ), float("-inf")).triu(1)
    torch.manual_seed(1)
    model = Llama()
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    checkpoint, step = f"{out}/checkpoint.pt", 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    progress = open(os.environ.get("HPCTL_PROGRESS_FILE", os.devnull), "a", buffering=1)
    while step < steps:
        begin = time.time()
        at = (step * world + rank) * SEQ % (len(data) - SEQ - 1)
        tokens, target = data[at:at + SEQ], data[at + 1:at + SEQ + 1]
        loss = F.cross_entropy(ddp(tokens[None], cos, sin, mask)[0], target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        print(step, file=progress)
        if rank == 0:
            if step % 10 == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "step": step}, checkpoint + ".tmp")
                os.replace(checkpoint + ".tmp", checkpoint)
            with open(f"{out}/metrics.jsonl", "a") as f:
                f.write(json.dumps({"step": step, "step_ms": (time.time() - begin) * 1e3,
                                    "loss": loss.item(), "pid": os.getpid()}) + "\n")


if __name__ == "__main__":
    main()
