#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch DistributedDataParallel script as people start it with torchrun: a small language model
of one text file, on GPUs or CPUs, with its own checkpoint, which it loads when it starts.

    torchrun --nproc_per_node=2 ddp_train.py --steps 300
    hpctl submit ddp.yaml --local --wait

hpctl needs no change in it. The two lines with HPCTL_PROGRESS_FILE let it see the steps, and find a
rank that hangs (docs/commands.md). Under torchrun they write to /dev/null.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SEQUENCE, BATCH = 64, 8


class LanguageModel(nn.Module):
    def __init__(self, width=128, layers=2):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)
        mask = torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens), self.mask))


def batch_of(text, step, rank, world):
    """What a rank trains on depends on the step alone, so a restart repeats and leaves out nothing."""
    draw = torch.Generator().manual_seed(step * world + rank)
    starts = torch.randint(len(text) - SEQUENCE - 1, (BATCH,), generator=draw).tolist()
    rows = torch.stack([text[s : s + SEQUENCE + 1] for s in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def save(path, step, model, optimizer):
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)  # a checkpoint is there whole, or the one before is


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    # Under hpctl the working directory is the job's own, which all its nodes see.
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")  # RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    text = torch.frombuffer(bytearray(open(args.text, "rb").read()), dtype=torch.uint8)

    torch.manual_seed(1)
    net = LanguageModel().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    done = 0
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=device)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    model = DistributedDataParallel(net)
    if rank == 0:
        print(f"{world} ranks, from step {done}", flush=True)

    progress = open(os.environ.get("HPCTL_PROGRESS_FILE", os.devnull), "a", buffering=1)
    for step in range(done + 1, args.steps + 1):
        tokens, target = (t.to(device) for t in batch_of(text, step, rank, world))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, world * BATCH * SEQUENCE, file=progress)
        if rank == 0 and step % args.save_every == 0:
            save(args.checkpoint, step, net, optimizer)
            print(f"step {step}  loss {loss.item():.4f}  saved", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
