# SPDX-License-Identifier: Apache-2.0
"""A training script as users have them: DistributedDataParallel over Gloo, rendezvous by the
environment, and its own checkpoint, saved every few steps by rank 0 and loaded on start.

  ddp_train.py OUT STEPS [fail-at STEP]

Tells its steps in HPCTL_PROGRESS_FILE. Writes OUT/checkpoint.pt, a line per step to OUT/steps.jsonl
(rank 0), what each rank was told, and its pid, to OUT/env-gG-rR.json, and the final loss to
OUT/loss. While OUT/hold-S exists rank 0 waits before step S; so a test can choose the step at
which something dies. fail-at: rank 1 raises at that step.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SAVE_EVERY = 5
TOLD = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK "
    "ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT "
    "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE "
    "OMP_NUM_THREADS HPCTL_GENERATION"
).split()


def write_atomic(path, write):
    write(path + ".new")
    os.replace(path + ".new", path)


def save(path, step, model, optimizer):
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    write_atomic(path, lambda new: torch.save(state, new))


def tell(out, rank):
    told = {name: os.environ.get(name) for name in TOLD} | {"pid": os.getpid()}
    path = f"{out}/env-g{told['HPCTL_GENERATION']}-r{rank}.json"
    write_atomic(path, lambda new: open(new, "w").write(json.dumps(told)))


@record
def main():
    out, steps = sys.argv[1], int(sys.argv[2])
    fail_at = int(sys.argv[4]) if len(sys.argv) > 3 else None
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tell(out, rank)
    torch.manual_seed(11)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    # Otherwise DDP orders its buckets anew after the first step, so that the first step after a start
    # sums in another order than the same step in a run that goes on, and the last bits differ.
    model = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checkpoint, done = f"{out}/checkpoint.pt", 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        done = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    progress = open(os.environ.get("HPCTL_PROGRESS_FILE", os.devnull), "a", buffering=1)
    dist.barrier()  # nobody saves before everybody has loaded
    for step in range(done + 1, steps + 1):
        while rank == 0 and os.path.exists(f"{out}/hold-{step}"):
            time.sleep(0.01)
        if rank == 1 and step == fail_at:
            raise ValueError(f"no luck at step {step}")
        data = torch.Generator().manual_seed(step * 1000 + rank)
        x = torch.randn(8, 16, generator=data)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, 32, file=progress)
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            if step == steps:  # before its checkpoint, from which nothing is left to compute
                write_atomic(f"{out}/loss", lambda new: open(new, "w").write(repr(total.item())))
            if step % SAVE_EVERY == 0:
                save(checkpoint, step, model, optimizer)
            with open(f"{out}/steps.jsonl", "a") as f:
                line = {"step": step, "generation": os.environ["HPCTL_GENERATION"]}
                f.write(json.dumps(line) + "\n")
    dist.barrier()


if __name__ == "__main__":
    main()
