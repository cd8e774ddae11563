# SPDX-License-Identifier: Apache-2.0
"""The checks: every kernel beside its reference (kernels_check.cc), and whole runs beside one
another. More of them in variants.py."""
import os
import subprocess
import threading
import time

import host_copies
import variants
from judged import judged, same, worst
from points import SMALL


def runtime_of(log):
    """What the log says that the run has used, and why not more."""
    told = ("runtime:", "no fused kernels", "attention: ", "attention over packed")
    lines = [line for line in log.split("\n") if any(text in line for text in told)]
    return "; ".join(lines) or "no such line"


def log_says(what, run, text, expected=True):
    """A row: whether the log of a run has this in it."""
    return judged(what, lambda: (text in run()[1]) == expected, lambda: runtime_of(run()[1]))


def steps_of(run):
    return lambda: run()[0]


# Of kernels_check.cc.
KERNELS = ("rms_norm", "swiglu", "cross_entropy", "rotary", "attention", "adamw", "squares",
           "weight_gradients", "residual_norm", "projections")


def with_stubs(program, device):
    """The environment of a program of ours: without a card it has the stubs beside it."""
    environment = dict(os.environ)
    if device == "cpu":
        stubs = os.path.join(os.path.dirname(program), "stub_cuda")
        environment["LD_PRELOAD"] = " ".join(os.path.join(stubs, name) for name in
                                             ("libcuda.so.1", "libnvrtc.so.12"))
    return environment


def check_kernels(program, device, kind, limit_s):
    """(exit code, lines) of kernels_check.cc; of one that hangs what it said until then."""
    with subprocess.Popen([program, device, kind], env=with_stubs(program, device), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as check:
        late = threading.Timer(limit_s, check.kill)
        late.start()
        lines = check.stdout.read().strip().split("\n")
        late.cancel()
    return check.returncode, lines


def kernels_beside_references(trainer, program, device):
    """The kernels of each operation, on the card that is there, by a process of their own: a fault
    of one takes the card from its process."""
    limit_s = max(0, min(180, trainer.seconds_left()))
    begun = [(kind, trainer.pool.submit(check_kernels, program, device, kind, limit_s).result)
             for kind in KERNELS]
    for kind, result in begun:
        try:
            code, lines = result()
        except OSError as error:
            yield f"kernels of {kind} beside their reference", False, str(error)
            continue
        print("\n".join(lines), flush=True)
        failed = [line for line in lines if line.startswith("FAILED")][:3]
        yield f"kernels of {kind} beside their reference", code == 0, \
            "; ".join([f"exit code {code}"] * (code != 0) + failed + lines[-1:])


def named_kernels(start, spec, fp32):
    """As checks(): what workload.train.gpu names is had, or refused when the job starts."""
    begun = [(gpu, [start({**spec, "precision": "bf16", "gpu": gpu}) for _ in range(2)])
             for gpu in ({"attention": "flash"}, {"attention": "products"},
                         {"attention": "cudnn", "deterministic": False})]
    for gpu, (first, again) in begun:
        what = "bf16: " + ", ".join(f"{k} {v}" for k, v in gpu.items())
        row = judged(what + ", losses of fp32, to 2e-2",
                     lambda: worst(first()[0], fp32()), below=2e-2)
        if "is not to be had" in row[2]:
            yield what, None, row[2]
            continue
        yield row
        if gpu.get("deterministic", True):
            yield judged(what + ", the same bits run to run",
                         lambda: same(first()[0], again()[0]))


def on_several_cards(start, spec, fp32, cards):
    """As checks(), over NCCL."""
    for strategy in ("full", "shard_grad_op", "optimizer", "no_shard"):
        several, moved = (steps_of(start({**spec, "world_size": 2, "strategy": strategy, **more}))
                          for more in ({}, {"offload": ["parameters" if strategy == "full"
                                                        else "optimizer"]}))
        yield judged(f"fp32: {strategy} on 2 cards, to 1e-4", lambda: worst(several(), fp32()),
                     below=1e-4)
        yield judged(f"fp32: {strategy} on 2 cards, offloaded: the same bits",
                     lambda: same(moved(), several()))
    # Both groups of two where there are four cards, and else two replicas.
    ranks, group = (4, 2) if cards >= 4 else (2, 1)
    several = steps_of(start({**spec, "world_size": ranks, "micro": 1, "strategy": "hybrid",
                              "shard_group": group}))
    yield judged(f"fp32: hybrid on {ranks} cards, groups of {group}, to 1e-4",
                 lambda: worst(several(), fp32()), below=1e-4)


def saved_by(run, name):
    """A checkpoint of a run; of one that failed a directory that is not there."""
    try:
        return os.path.join(run()[2], name)
    except Exception:  # the check that needs it says why
        return "/none/" + name


def newest_checkpoint(directory):
    """(step, path) of the newest whole checkpoint."""
    found = [(int(name[len("step-"):name.index(".g")]), os.path.join(directory, name))
             for name in os.listdir(directory) if name.startswith("step-")
             if os.path.exists(os.path.join(directory, name, "manifest.json"))]
    return max(found)


def killed_in_mid_step(start, spec, whole):
    """As checks(): SIGKILL after the step before the last. What the card and the process held is
    lost, and the next process goes on from the newest checkpoint. Says what that costs."""
    spec = {**spec, "save_every": 2}
    killed = start(spec, stop_after=spec["steps"] - 1)

    found = {}

    def goes_on():
        done, _, directory = killed()
        step, path = newest_checkpoint(directory)
        begun = time.time()
        steps = start({**spec, "generation": 2, "start_step": step, "resume": path})()[0]
        found.update(done=len(done), step=step, lost=len(done) - step,
                     seconds=steps[0]["time"] - begun)
        return same(steps, whole()[step:])

    yield judged("bf16: killed in mid-step, goes on with the same bits", goes_on,
                 lambda: "killed after step {done}, went on after step {step}: {lost} steps and the "
                         "one under way are done again, {seconds:.1f} s to the first".format(**found))


def checks(trainer, device, cards):
    """Yields (what, passed, detail), of whole runs. What needs no other run is begun at once."""
    spec = {"model": SMALL, "seq_len": 128, "micro": 2, "global": 4, "steps": 8,
            "precision": "fp32", "save_every": 4}
    bf16 = {**spec, "precision": "bf16"}
    plain = {"environment": {"HPTRAIN_DEVICE_KERNELS": "none"}}
    start = trainer.start
    cuda = device == "cuda"
    runs = {"fp32": (start(spec), start(spec)), "bf16": (start(bf16), start(bf16))}
    cpu = steps_of(start({**spec, **variants.ON_CPU}))
    without = {"fp32": start({**spec, **plain}), "bf16": start({**bf16, **plain})} if cuda else {}
    recomputed = {what: steps_of(start({**bf16, "recompute": what}))
                  for what in ("full", "operations")}
    moved = {precision: steps_of(start({**spec, "precision": precision, "recompute": "full",
                                        "offload": ["optimizer", "parameters", "activations"]}))
             for precision in ("bf16", "fp32")}
    chunked = steps_of(start({**bf16, "chunk_tokens": 48}))
    first, narrow = steps_of(runs["fp32"][0]), steps_of(runs["bf16"][0])

    yield log_says("computes on the " + device, runs["fp32"][0], "cuda sm_", cuda)
    for precision, (one, two) in runs.items():
        yield log_says(f"{precision}: fused kernels by NVRTC", one, "device_kernels nvrtc", cuda)
        yield judged(f"{precision}: the same bits run to run", lambda: same(one()[0], two()[0]))
    yield judged("fp32: losses of the CPU, to 1e-4", lambda: worst(first(), cpu()), below=1e-4)
    yield judged("bf16: losses of fp32, to 2e-2", lambda: worst(narrow(), first()), below=2e-2)
    # The fused kernels beside LibTorch's operations in whole steps: same losses, other kernels.
    for precision, bound in (("fp32", 1e-4), ("bf16", 2e-2)):
        what = f"{precision}: losses without fused kernels, to {bound:g}"
        if not cuda:
            yield what, None, "no card here"
            continue
        yield log_says(f"{precision}: without fused kernels", without[precision],
                       "device_kernels LibTorch's")
        yield judged(what, lambda: worst(without[precision]()[0], runs[precision][0]()[0]),
                     below=bound)
    for what, run in recomputed.items():
        yield judged(f"bf16: recomputation ({what}) gives the same bits",
                     lambda: same(run(), narrow()))
    for precision, run in moved.items():
        yield judged(f"{precision}: offload gives the same bits",
                     lambda: same(run(), runs[precision][0]()[0]))
    yield judged("bf16: loss in chunks, to 1e-3", lambda: worst(chunked(), narrow()), below=1e-3)
    resumed = steps_of(start({**bf16, "generation": 2, "start_step": 4,
                              "resume": saved_by(runs["bf16"][0], "step-4.g1")}))
    yield judged("bf16: goes on from a checkpoint with the same bits",
                 lambda: same(resumed(), narrow()[4:]), "steps 5 to 8")
    yield from killed_in_mid_step(start, bf16, narrow)
    yield from host_copies.killed_before_the_seal(start, bf16, narrow, cuda)
    yield from packed_documents(start, {**spec, "mask": "documents"}, first, cuda)
    yield from named_kernels(start, spec, first)
    yield from variants.checks(lambda one: steps_of(start(one)), spec, first, narrow,
                               saved_by(runs["fp32"][0], "step-8.g1"))
    if cards < 2:
        yield "several cards over NCCL", None, f"{cards} card(s) here"
        return
    yield from on_several_cards(start, spec, first, cards)


def packed_documents(start, spec, whole, cuda):
    """As checks(). On a GPU all documents of a micro-batch in one call, in fp32 one by one."""
    one_by_one = steps_of(start(spec))
    narrow, again = (start({**spec, "precision": "bf16"}) for _ in range(2))
    yield judged("fp32: packed documents have losses of their own",
                 lambda: not same(one_by_one(), whole()))
    if cuda:
        yield log_says("bf16: packed documents in one call", narrow, "attention: packed")
    yield judged("bf16: packed documents, losses of fp32, to 2e-2",
                 lambda: worst(narrow()[0], one_by_one()), below=2e-2)
    yield judged("bf16: packed documents, the same bits run to run",
                 lambda: same(narrow()[0], again()[0]))


# Runs of checks() on one card, and seconds of one: of a GPU mostly its start (its context, NVRTC).
RUNS = 60
SECONDS_OF_RUN = {"cuda": 12, "cpu": 4}


def seconds(trainer, device):
    """About how long all of them take."""
    return RUNS * SECONDS_OF_RUN[device] / trainer.parallel


def rows(trainer, program, device, cards):
    """Yields a row of the results for each."""
    begun = time.monotonic()
    for found in (kernels_beside_references(trainer, program, device),
                  checks(trainer, device, cards)):
        for what, passed, detail in found:
            taken = time.monotonic() - begun
            begun += taken
            print(f"{what}: {'left out' if passed is None else passed} ({detail}), "
                  f"{taken:.1f} s", flush=True)
            yield {"what": what, "passed": passed, "detail": detail, "seconds": taken}
